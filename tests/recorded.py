"""Tables of a run from dense tensors, as `Tables.tensors` gives them."""

from allforone.algorithms import Info
from allforone.runs.tables import TABLES, InMemory, Snapshot


def recorded(tensors, into=None):
    tables = InMemory() if into is None else into
    for at, number in enumerate(tensors["rounds"].tolist()):
        info = Info(**{name: tensors[name][at].double() for name in TABLES if name in tensors})
        tables.append(Snapshot.of(number, info, tensors["present"][at]))
    return tables
