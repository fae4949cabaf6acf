"""Why one client does or does not use another: decided here from what was recorded, told by page and Python alike."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError, called
from ..runs import FinishedRun
from ..runs.tables import Snapshot
from . import style
from .clusters import place_of
from .curves import Array

Booleans = npt.NDArray[np.bool_]

#: Of one's own weight: a partner below it is hardly used.
LITTLE = 0.05
#: From this trust on, a difference is said to be let through.
WHOLE = 0.95
#: Of similarity: a partner below it that is used is called a little similar.
SIMILAR = 0.3

_PAIR = (
    "Alone, {A}'s steps err by {alone} times its squared gradient, by noise. With {B} as its only partner, noise could "
    "fall to {lowered}. {found}, so its best weight is {best}, which saves {worth}. "
)
_AGAIN = "{Bs} counts with weight {weight}, {share}. Its gradient at {A}'s model has similarity {r} with {A}'s own."

#: Verdict and sentences of every case, in the order in which they are looked for. The words in braces are filled in.
REASONS = {
    "it was absent": "{As} was absent in this round: its model stayed as it was.",
    "absent": "{Bs} was absent in this round, so it could not be asked.",
    "not let through": "Nothing of {B} was let through: its answer was missing, or far too long.",
    "not known yet": "Nothing is known of others yet, so {A} trains alone.",
    "no partner": "{Bs} is no partner: the two have not met yet, or its gradient at {A}'s model is next to nothing.",
    "no noise": "No noise can be seen in {A}'s steps that {B} could lower. Its weight is {weight}.",
    "partly let through": _PAIR + "Among all partners it would get {asked}. Only {trust} of that is let through, since "
    "{B}'s gradient in this round is too far from {A}'s: its weight is {weight}.",
    "worth its bias": _PAIR + "Among all partners it gets {weight}. Together they lower noise to {left}.",
    "same task": _PAIR + "Among all partners it gets {weight}. Together they lower noise to {left}.",
    "not worth it": _PAIR + "It gets {gets}. Nobody is worth more in this round, so {A} trains alone.",
    "too different": _PAIR + "It is too different: among all partners it gets {gets}.",
    "too noisy": _PAIR + "It is too noisy: among all partners it gets {gets}.",
    "others do better": _PAIR + "But others have lowered noise to {left} already, and what is left is not worth {B}'s "
    "bias: it gets {gets}.",
    "hardly used": _AGAIN,
    "a little similar": _AGAIN,
    "similar": _AGAIN,
    "below {threshold}": "{Bs}'s gradient at {A}'s model has similarity {r} with {A}'s own: below the threshold "
    "λ = {threshold}, so {B} does not count.",
    "no weight": "{Bs}'s gradient has similarity {r} with {A}'s own, but the rule that turns similarity into weight "
    "gives it none.",
    "dissimilar": "The estimated similarity is 0: as far as can be seen through the noise, {B}'s gradient at {A}'s "
    "model differs from {A}'s own by at least as much as {A}'s own is long.",
    "used": "{label} gives {B} a weight of {weight}. It does not estimate how similar clients are.",
    "not used": "{label} gives {B} no weight. It does not estimate how similar clients are; its rule alone decides.",
}
#: Of a crowd, what the page says of those whom it does not hold.
NOT_RECORDED = (
    "{Bs} has no weight, or is not among the {partners} partners that {A} listened to most in this round. Of so many "
    "clients the page knows no more."
)
CODES = {verdict: code for code, verdict in enumerate(REASONS)}


class Reason(NamedTuple):
    """Why one client did or did not use another in a round."""

    verdict: str  #: in a few words
    text: str  #: in sentences

    def __str__(self) -> str:
        return self.text


class Rows(NamedTuple):
    """What some clients have recorded of their partners in a round; where a table is not known, NaN."""

    weights: Array  #: [R, K]
    similarity: Array
    bias: Array
    noise: Array
    trust: Array
    own: Booleans  #: [R, K], whether the partner is the client itself
    here: Booleans  #: [R], whether the client was there
    there: Booleans  #: [R, K], whether the partner was

    @property
    def own_weight(self) -> Array:
        return _own(self.weights, self.own)

    @property
    def alone(self) -> Array:
        """[R], a client's own noise."""
        return _own(self.noise, self.own)

    @property
    def best(self) -> Array:
        """The weight of least w² bias + (1 − w)² alone + w² noise, of a client's only partner."""
        return self.alone[:, None] / (self.alone[:, None] + self.noise + self.bias)

    @property
    def asked(self) -> Array:
        """The weights before trust cut them."""
        trust = np.nan_to_num(self.trust, nan=1.0)
        return self.weights / np.where(trust > 0, trust, 1)

    @property
    def left(self) -> Array:
        """[R], what is left of a client's noise by the weights of the round."""
        return np.asarray(np.nansum(self.weights**2 * self.noise, 1))

    @property
    def given(self) -> Array:
        """[R], what the rule gave others."""
        return np.asarray(np.where(~self.own & (self.weights > 0), self.asked, 0).sum(1))


def _own(table: Array, own: Booleans) -> Array:
    return np.asarray(np.where(own, table, 0).sum(1))


def rows_of(shot: Snapshot, clients: list[int] | None = None) -> Rows:
    """Of a round, those of some clients, by default of all, with every partner."""
    n = len(shot.present)
    some = list(range(n)) if clients is None else clients
    tables = {
        name: shot.dense(name).double().numpy()[some] for name in ("weights", "similarity", "bias", "noise", "trust")
    }
    here = shot.present.numpy()
    own = np.arange(n) == np.asarray(some)[:, None]
    return Rows(**tables, own=own, here=here[some], there=np.broadcast_to(here, own.shape))


def verdicts_of_pairs(rows: Rows, threshold: float | None, given: Array | None = None) -> Array:
    """[R, K], the place in REASONS of the case of each pair; `given` where some partners are not among the K."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own, trust = rows.own_weight[:, None], np.nan_to_num(rows.trust, nan=1.0)
        by_error = np.isfinite(_own(rows.bias, rows.own))[:, None]
        unknown = (~np.isfinite(rows.bias) | rows.own).all(1, keepdims=True)
        used = (rows.weights > 0) & (rows.weights >= LITTLE * own)
        alike = np.isfinite(rows.similarity)
        r = np.nan_to_num(rows.similarity)
        below = (r > 0) & (r < (threshold or 0))
        cases = {
            "it was absent": np.broadcast_to(~rows.here[:, None], own.shape),
            "absent": ~rows.there,
            "not let through": by_error & (trust == 0),
            "not known yet": by_error & np.isnan(rows.bias) & unknown,
            "no partner": by_error & np.isnan(rows.bias),
            "no noise": by_error & (rows.alone[:, None] == 0),
            "partly let through": by_error & (trust < WHOLE) & (rows.asked >= LITTLE * own),
            "worth its bias": by_error & used & (rows.bias != 0),
            "same task": by_error & used,
            "not worth it": by_error & ((rows.given if given is None else given)[:, None] < LITTLE * own),
            "too different": by_error & (rows.best < LITTLE) & (rows.bias > rows.noise),
            "too noisy": by_error & (rows.best < LITTLE),
            "others do better": by_error,
            "hardly used": alike & (rows.weights > 0) & ~used,
            "a little similar": alike & (rows.weights > 0) & (r < SIMILAR),
            "similar": alike & (rows.weights > 0),
            "below {threshold}": alike & below,
            "no weight": alike & (r > 0),
            "dissimilar": alike,
            "used": rows.weights > 0,
        }
    shape = rows.weights.shape
    conditions = [np.broadcast_to(case, shape) for case in cases.values()]
    return np.select(conditions, [CODES[name] for name in cases], CODES["not used"])


#: What a reader is told of a verdict, where another case has the same words.
SHOWN = {"similar": "used", "dissimilar": "too different"}


def told_reasons() -> list[tuple[str, str]]:
    """For the page, by code: verdict and sentences; the last is of those whom it does not hold."""
    known = [(SHOWN.get(verdict, verdict), text) for verdict, text in REASONS.items()]
    return [*known, ("not recorded", NOT_RECORDED)]


def reason(run: FinishedRun, client: int, partner: int, round: int | None = None) -> Reason:
    """Why `client` did or did not use `partner` in a round of a run, by default the last."""
    if client == partner:
        raise InputError(f"why: {called(client, None)} is asked about itself; give two clients")
    if not len(run.tables):
        raise InputError("why: no round is done yet")
    shot = run.tables[place_of(run.tables.rounds, round)]
    n = len(shot.present)
    rows, threshold = rows_of(shot, [client]), run.config.get("algorithm", {}).get("threshold")
    verdict = list(REASONS)[int(verdicts_of_pairs(rows, threshold)[0, partner])]
    names = [member["name"] for member in run.clients] or [None] * n
    listener = told_name(client, names[client])
    words = {
        **_words(rows, partner, listener),
        "A": listener,
        "B": told_name(partner, names[partner]),
        "threshold": threshold,
        "label": style.label(run.algorithm),
    }
    words |= {f"{key}s": sentence(words[key]) for key in ("A", "B")}
    return Reason(SHOWN.get(verdict, verdict).format(**words), REASONS[verdict].format(**words))


def _words(rows: Rows, k: int, listener: str) -> dict[str, Any]:
    """Of a client's partner, what may stand in a sentence."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        weight, own, alone = (float(value) for value in (rows.weights[0, k], rows.own_weight[0], rows.alone[0]))
        bias, noise, best = (float(table[0, k]) for table in (rows.bias, rows.noise, rows.best))
        saved, lowered = alone * best, alone * noise / (alone + noise) if alone + noise else math.nan
        asked, left, trust = float(rows.asked[0, k]), float(rows.left[0]), float(rows.trust[0, k])
    off = f"Its gradient is off by {short(bias)} (bias)"
    share = weight / own if own > 0 else 0
    return {
        **{"alone": short(alone), "lowered": short(lowered), "best": short_weight(best), "left": short(left)},
        **{"asked": short_weight(asked), "weight": short_weight(weight), "r": short(float(rows.similarity[0, k]))},
        "found": off if bias else "As far as can be seen, both have the same task (no bias)",
        "worth": "next to nothing" if saved < alone / 1000 else short(saved),
        "trust": percent(trust),
        "gets": f"only {short(weight)}" if weight >= 0.001 else "hardly any weight" if weight > 0 else "no weight",
        "share": f"{'as much as' if share >= 0.995 else f'{percent(share)} of what'} {listener} gives itself",
    }


def told_name(number: int, name: str | None) -> str:
    return name if name and not name.isdecimal() else called(number if name is None else int(name), None)


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def short_weight(weight: float) -> str:
    return "below 0.001" if 0 < weight < 0.001 else short(weight)


def percent(share: float) -> str:
    return "–" if math.isnan(share) else "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def short(value: float) -> str:
    """With the digits that count, as the page writes it."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e5 or size < 1e-3:
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits.replace('.0', '')}·10{str(int(power)).translate(RAISED)}"
    return f"{value:,.0f}".replace(",", "\u202f") if size >= 100 else f"{float(f'{value:.3g}'):g}"


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
