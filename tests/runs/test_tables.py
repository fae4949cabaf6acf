"""Who listened to whom: nothing is lost by keeping only some pairs; a file cut anywhere keeps its whole rounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import allforone as afo
from allforone.algorithms import Info
from allforone.errors import InputError
from allforone.runs import tables as module
from allforone.runs.durable import Mark
from allforone.runs.tables import CROWD, TABLES, InMemory, Snapshot
from allforone.runs.tables_file import TITLE, TablesFile

from ..recorded import recorded

SPARSE = st.sampled_from([0.0, 0.0, 0.5, 1.0, 1e-9])
PARTLY_KNOWN = st.sampled_from([float("nan"), float("nan"), 0.0, 0.25, 3.0])


@st.composite
def records(draw):
    """Dense tables of some rounds; what is not told of a round is NaN throughout."""
    rounds, n = draw(st.integers(1, 5)), draw(st.integers(1, 4))

    def table(values):
        return torch.from_numpy(draw(arrays("float64", (rounds, n, n), elements=values)))

    told = {name: table(PARTLY_KNOWN).to(TABLES[name]) for name in draw(st.sets(st.sampled_from([*TABLES][1:])))}
    present = torch.from_numpy(draw(arrays(bool, (rounds, n))))
    weights = table(SPARSE).float()
    if draw(st.booleans()):
        weights[:] = weights[0].clone()
    return {"rounds": torch.arange(1, rounds + 1), "present": present, "weights": weights, **told}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)


@given(records())
def test_what_is_kept_of_pairs_gives_the_dense_tables_back(tmp_path_factory, tensors):
    file = TablesFile(tmp_path_factory.mktemp("run") / "weights")
    for tables in (recorded(tensors), recorded(tensors, file), TablesFile(file.path)):
        assert_same(tables.tensors(), tensors)
        assert recorded(tables.tensors()).names == tables.names
        assert tables.constant == all(snapshot.tells_the_same(tables[0]) for snapshot in tables)


@given(records(), st.data())
def test_cut_at_any_byte_a_file_keeps_the_rounds_that_were_whole(tmp_path_factory, tensors, data):
    path = tmp_path_factory.mktemp("run") / "weights"
    ends = []
    file = TablesFile(path)
    for snapshot in recorded(tensors):
        file.append(snapshot)
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    kept = sum(end <= path.stat().st_size for end in ends)
    cut = TablesFile(path)
    assert cut.rounds == list(range(1, kept + 1))
    assert_same(cut.tensors(), {name: table[:kept] for name, table in tensors.items()} if kept else {})
    done = data.draw(st.integers(0, kept))
    end = ends[done - 1] if done else 0
    cut = TablesFile(path, Mark().after(whole[:end]))
    for snapshot in list(recorded(tensors))[done:]:
        cut.append(snapshot)
    assert path.read_bytes() == whole  # as if nothing had happened


@pytest.mark.parametrize("tail", [bytes(500), b"\xff" * 500, b"\x07" + bytes(300)], ids=["zeros", "ones", "a round"])
def test_what_a_broken_disk_left_at_the_end_is_not_read(tmp_path, tail):
    info = Info(torch.eye(3, dtype=torch.float64))
    file = TablesFile(tmp_path / "weights")
    for number in (1, 2):
        file.append(Snapshot.of(number, info, torch.ones(3, dtype=torch.bool)))
    size = file.path.stat().st_size
    with file.path.open("ab") as damaged:
        damaged.write(tail)
    assert TablesFile(file.path).rounds == [1, 2]
    assert TablesFile(file.path, file.file.mark).rounds == [1, 2]
    assert file.path.stat().st_size == size


def test_a_file_that_is_not_one_of_rounds_or_has_a_round_twice_is_told(tmp_path):
    path, snapshot = tmp_path / "weights", Snapshot.of(1, Info(torch.eye(3).double()), torch.ones(3, dtype=torch.bool))
    TablesFile(path).append(snapshot)
    once = path.read_bytes()
    path.write_bytes(once + once[len(TITLE) :])
    with pytest.raises(InputError, match="round 1 stands there after round 1, as if two processes"):
        TablesFile(path)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="not the weights of a run"):
        TablesFile(path)


def test_damage_in_the_middle_is_named_when_it_is_read(tmp_path):
    file = TablesFile(tmp_path / "weights")
    for number in (1, 2):
        file.append(Snapshot.of(number, Info(number * torch.eye(3).double()), torch.ones(3, dtype=torch.bool)))
    content = bytearray(file.path.read_bytes())
    content[len(TITLE) + 30] ^= 1
    file.path.write_bytes(content)
    again = TablesFile(file.path)
    assert again[1].dense().equal(2 * torch.eye(3))
    with pytest.raises(InputError, match="damaged in round 1"):
        again[0]


def test_a_round_that_tells_the_same_takes_no_room(tmp_path):
    file, weights = TablesFile(tmp_path / "weights"), torch.full((50, 50), 0.02).double()
    sizes = []
    for number in range(1, 4):
        file.append(Snapshot.of(number, Info(weights), torch.arange(50) != number))
        sizes.append(file.path.stat().st_size)
    assert sizes[0] > 50 * 50 * 8 and sizes[2] - sizes[1] == sizes[1] - sizes[0] == 24 + 50
    assert [int((~shot.present).nonzero()) for shot in TablesFile(file.path)] == [1, 2, 3]
    assert TablesFile(file.path).constant and TablesFile(file.path).dense().eq(torch.tensor(0.02)).all()


def test_of_a_crowd_only_pairs_with_a_weight_are_kept():
    n = CROWD + 1
    weights = torch.eye(n, dtype=torch.float64)
    weights[3, 5], weights[7, 7] = 0.25, 0
    bias = torch.ones_like(weights)
    shot = Snapshot.of(1, Info(weights, bias=bias), torch.ones(n, dtype=torch.bool))
    assert len(shot.pairs) == n + 1
    assert shot.dense().double().equal(weights)
    assert shot.dense("bias").isfinite().sum() == n + 1
    row = shot.of_client(3)
    assert (
        row["partners"].tolist() == [3, 5] and row["weights"].tolist() == [1, 0.25] and row["bias"].tolist() == [1, 1]
    )
    assert shot.of_client(7)["weights"].tolist() == [0]


def test_dense_weights_that_would_not_fit_are_refused_with_what_to_do_instead(monkeypatch):
    result = afo.train(afo.synthetic(clients=4), algorithm=afo.Oracle(), rounds=3)
    assert result.weights.shape == (3, 4, 4) and result.weights.dtype == torch.float64
    monkeypatch.setattr(module, "MOST_DENSE", 47)
    with pytest.raises(InputError, match=r"result\.tables\[-1\]\.dense\(\)"):
        _ = result.weights
    assert result.tables[-1].dense().sum() == 4


def test_before_the_first_round_there_are_no_tables(tmp_path):
    for tables in (InMemory(), TablesFile(tmp_path / "weights")):
        assert not tables and tables.names == [] and tables.tensors() == {} and tables.constant
