"""The weights of least error: bias², as far as it is known, plus the noise that is left.

A step's progress is at least η/2 (‖∇R_i‖² − bias² − ηβ·noise), and a model trained on few samples errs by σ²/n besides.
So client i takes the weights α with the least ‖Σ_k α_k Δ_ik‖² + Σ_k α_k² (ηβ/b_k + 1/n_k) σ_k², where
Δ_ik = ∇R_k(θ_i) − ∇R_i(θ_i). At α = e_i that is the error of training alone, at equal weights that of averaging, inside
the true cluster the oracle's; the least is never above any of them, as far as the estimates hold.

Everything of row i is in units of client i's own squared gradient S_i, so that nothing depends on its scale. A row has
a place for each client that i looks at, itself among them: all N, or c candidates.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..fleet import Look, Roster
from .similarity import Memory
from .simplex import least_quadratic

#: How much of the logarithm of a gradient's size is kept at each refresh: sizes change fast.
SIZE_KEPT = 0.8
#: A gradient, squared, of more than so many times what is remembered is believed at once: who was at rest and is drawn
#: away would take its growth for noise.
LEAP = 10
#: How much of the noise seen before is kept.
NOISE_KEPT = 0.9
#: How much of the differences seen before is kept: the models move on, and what is averaged for longer than some twenty
#: refreshes turns meanwhile, so that strangers would look alike.
DIFFERENCE_KEPT = 0.95
#: How much of the curvature seen before is kept.
CURVATURE_KEPT = 0.9
#: The part of the triangle bound in the Gram matrix of differences: it caps what liars gain by cancelling each other.
TRIANGLE = 0.1
#: A gradient below this share of one's own squared size would only shorten the step, so it is no partner's.
IDLE = 0.01
#: P parameters can be fitted to P samples; those of fewer parameters are far less fitted while it matters: (P/n)⁴.
FITTING = 4
#: What fitted samples hide counts so many times more as chance: one's own mean gradient is bent by it, too. Walks that
#: pass the samples many times show it themselves.
HIDDEN = 3
#: What one batch tells of noise is uncertain by this factor.
UNCERTAIN = 4
#: No less of the noise of walks is taken for that of samples, whatever is said: of a stream alone there is none.
LEAST_SHARE = 1e-6
#: Where one's own samples are fitted, others' tell the noise at one's model: that of the least noisy quarter of them.
QUARTER = 0.25
#: A partner may add to a step as much as one's own gradient at this κ: the smaller the step, the less a lie can do.
REACH = 0.5
#: A bias so many times one's own noise is a stranger's: it would have no weight, only rounding errors.
STRANGE = 1e12
#: Nobody's noise is taken for more than so many times one's own, whatever it says: it has no weight then.
MOST_COST = 1e9
#: A gradient is not taken for smaller than this share of the largest at the same model, so that ratios stay finite.
SMALLEST = 1e-40
#: What is taken for ηβ stays above this, however flat the loss seems.
LEAST_CURVATURE = 0.003
#: Partners who together lower the error by no more than this share are not asked: each is a gradient more an update.
SPARED = 0.001


class Setting(NamedTuple):
    """What the weights depend on besides what is seen: of each client at its places in the rows."""

    itself: Tensor  #: [R, c], where a row has its owner
    batch: Tensor  #: [R, c], b_k, samples of an update
    rarity: Tensor  #: [R, c], 1/n_k, of walks only for the share of noise that is their samples'; 0 of a stream
    unfitted: (
        Tensor  #: [R], 1 − (P/n_i)⁴: the share of the noise that P parameters leave of n_i samples; 0 where P ≥ n_i
    )
    hidden: Tensor  #: [R], HIDDEN, less where walks of K updates pass n_i samples more than once: n_i/(K b_i)

    @classmethod
    def of(
        cls, roster: Roster, batch_size: int, parameters: int, rows: Tensor, ids: Tensor, updates: int = 1
    ) -> "Setting":
        """Of the clients `ids` [R, c] that `rows` [R] look at, by gradients or by walks of so many updates."""
        sizes = torch.where(torch.tensor([member.stream for member in roster]), torch.inf, roster.sizes)
        theirs = sizes[ids]
        unfitted = 1 - (parameters / sizes[rows]).clamp(max=1) ** FITTING
        once = (sizes[rows] / (updates * sizes[rows].clamp(max=batch_size))).clamp(max=1)
        return cls(ids == rows[:, None], theirs.clamp(max=batch_size), 1 / theirs, unfitted, HIDDEN * once)

    def own(self, table: Tensor) -> Tensor:
        """[R, …], what a table [R, c, …] says of the rows' owners."""
        return table[self.itself]


def nothing(n: int, places: int, sketch: int) -> Memory:
    """What is remembered before the first refresh."""
    table, row = torch.zeros(n, places, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    return {
        "size": row,  # ln S_i, smoothed
        "ratio": table,  # ln S_ik/S_i, smoothed
        "noise": table,  # of one sample of k, in units of S_ik
        "seen": table,  # the weight of that noise
        "difference": torch.zeros(n, places, sketch, dtype=torch.float64),  # Σ ω x, in units of √S_i
        "weight": table,  # Σ ω, in units of 1/S_i
        "spread": table,  # Σ ω² of the noise of x, in units of 1/S_i
        "veil": table,  # what of that was added for privacy
        "rise": row,  # Σ η²‖δg‖²/‖δθ‖² between models
        "chords": row,  # how many of them
        "sampled": row,  # the share of noise that is the samples', smoothed; of walks alone
    }


def sampled(memory: Memory, look: Look, first: Tensor, updates: int) -> Tensor:
    """[R], the share of the noise of walks that is their samples', the median over those asked.

    The halves of a walk part by themselves where steps are long, however many samples there are. So the noise, over the
    square of the mean, is that of samples as far as the first update [R, c] had it, when both were at one model.
    """
    whole = updates * look.noise / (look.norm - look.noise).clamp(min=1e-300)
    known = memory["sampled"] > 0
    now = (UNCERTAIN * (first / whole).nanmedian(1).values).nan_to_num(1.0, posinf=1.0).clamp(LEAST_SHARE, 1)
    return torch.where(known, NOISE_KEPT * memory["sampled"] + (1 - NOISE_KEPT) * now, now)


def remember(memory: Memory, look: Look, setting: Setting) -> Memory:
    """Sizes, noise and differences with those of now; what was not asked stays as it was.

    Averaging differences as vectors, instead of squared distances, is what tells a twin from a stranger under noise.
    """
    met = look.norm.isfinite() & look.noise.isfinite()
    met = met & setting.own(met)[:, None]
    largest = torch.where(met, look.norm, 0).amax(1, keepdim=True)
    size = look.norm.maximum(SMALLEST * largest).clamp(min=1e-300)
    new = memory["seen"] == 0

    def smoothed(name: str, now: Tensor, first: Tensor, known: Tensor) -> Tensor:
        kept = torch.where(first, now, SIZE_KEPT * memory[name] + (1 - SIZE_KEPT) * now)
        return torch.where(known, kept, memory[name])

    def of_both(table: Tensor) -> Tensor:
        return table + setting.own(table)[:, None]

    own = setting.own(size).log()
    log_size = smoothed("size", own, setting.own(new), setting.own(met))
    log_size = torch.where(setting.own(met), log_size.maximum(own - math.log(LEAP)), log_size)
    ratio = smoothed("ratio", size.log() - own[:, None], new, met)
    unit, relative = log_size.exp()[:, None], ratio.exp()
    grown = torch.where(setting.own(new), 1, (log_size - memory["size"]).exp())[:, None]  # S_i now / before
    certain = 1 / (1 + relative)  # ω S_i: differences between small gradients count more
    added = look.added / unit
    noise = look.noise / unit - added  # below 0 by chance: it is their mean that tells
    left = noise.clamp(min=0) * (1 - look.read * setting.rarity).clamp(min=0)  # who shows all its data shows no chance
    mean = look.halves.mean(2)
    x = (mean - setting.own(mean)[:, None]) / unit.sqrt()[..., None]
    now = {
        "noise": NOISE_KEPT * memory["noise"] + (1 - NOISE_KEPT) * noise * look.read / relative,
        "seen": NOISE_KEPT * memory["seen"] + (1 - NOISE_KEPT),
        "difference": DIFFERENCE_KEPT * grown.sqrt()[..., None] * memory["difference"] + certain[..., None] * x,
        "weight": DIFFERENCE_KEPT * grown * memory["weight"] + certain,
        "spread": DIFFERENCE_KEPT**2 * grown * memory["spread"] + certain**2 * of_both(left + added),
        "veil": DIFFERENCE_KEPT**2 * grown * memory["veil"] + certain**2 * of_both(added),
    }
    kept = {name: torch.where(met if t.dim() == 2 else met[..., None], t, memory[name]) for name, t in now.items()}
    return {**memory, **kept, "size": log_size, "ratio": ratio}


def bend(memory: Memory, ids: Tensor, halves: Tensor, points: Tensor, step: float) -> Memory:
    """How steeply client k's own gradient differs between models: η²⟨δa, δb⟩/‖δθ‖², free of the halves' noise.

    ids: [N, c], whose the halves [N, c, 2, s] are; points: [N, s], the models, sketched; step: η.
    """
    home = halves[ids == torch.arange(len(points))[:, None]]  # [N, 2, s], each client's at its own model
    change = step * (home[ids] - halves)
    apart = (points[ids] - points[:, None]).square().sum(2)
    known = (ids >= 0) & (apart > 0) & change.isfinite().all(3).all(2)
    steep = (change[:, :, 0] * change[:, :, 1]).sum(2) / apart

    def kept(name: str, values: Tensor) -> Tensor:
        parts = torch.where(known, values, 0).flatten()
        now = torch.zeros_like(memory[name]).index_add(0, ids.clamp(min=0).flatten(), parts)
        return CURVATURE_KEPT * memory[name] + now

    return {**memory, "rise": kept("rise", steep), "chords": kept("chords", torch.ones_like(steep))}


def curvature(memory: Memory) -> Tensor:
    """[N], κ_k for ηβ: η‖δg‖/‖δθ‖, as smoothness is defined; NaN while models coincide."""
    steep = memory["rise"] / memory["chords"].clamp(min=1e-300)
    return torch.where(steep > 0, steep.clamp(min=0).sqrt().clamp(LEAST_CURVATURE, 1), torch.nan)


def or_first(kappa: Tensor, look: Look, setting: Setting, step: float) -> Tensor:
    """[R], κ_i also where it is not yet seen: η tr Cov(g_i), at most 1, since of a likelihood the noise of a sample is
    the trace of the curvature; 1 of a stream, whose looks are too small to tell.

    step: η if the look is at gradients, 1/η if it is at ηg.
    """
    noise = (step * setting.own((look.noise - look.added) * look.read)).clamp(LEAST_CURVATURE, 1).nan_to_num(1.0)
    first = torch.where(setting.own(setting.rarity) > 0, noise, 1.0)
    return torch.where(kappa.isnan(), first, kappa)


class Noise(NamedTuple):
    """Of one sample, at θ_i, in units of S_i."""

    own: Tensor  #: [R, 1], of one's own
    theirs: Tensor  #: [R, c], of k, not below one's own: who reports none must not take all the weight
    fresh: Tensor  #: [R, c], of samples that θ_i is not fitted to, by what k shows
    least: Tensor  #: [R, 1], of such samples of one's own


def noises(memory: Memory, setting: Setting) -> Noise:
    """Of n_i samples that as many parameters are fitted to, no noise is left, so others must tell it; the more surely
    one differs, the less it tells."""
    met, unfitted = memory["seen"] > 0, setting.unfitted[:, None]
    raw = memory["ratio"].exp() * memory["noise"].clamp(min=0) / memory["seen"].clamp(min=1e-12)
    own = setting.own(raw)[:, None]
    fresh = own.maximum(raw.minimum(torch.where(unfitted > 0, own / unfitted, torch.inf)))
    told = own + (1 - surely(differences(memory, setting, own, fresh))).sqrt() * (fresh - own)
    others = torch.where(met & ~setting.itself, told, torch.nan)
    return Noise(own, raw.maximum(own), fresh, own.fmax(others.nanquantile(QUARTER, dim=1, keepdim=True)))


class Difference(NamedTuple):
    """∇R_k(θ_i) − ∇R_i(θ_i), as remembered, in units of √S_i."""

    mean: Tensor  #: [R, c, s], c_ik
    length: Tensor  #: [R, c], ‖c_ik‖²
    chance: Tensor  #: [R, c], what of that chance alone would make


def believed(memory: Memory, setting: Setting) -> Tensor:
    """[R, c], how much of the looks' chance is taken off: all; of streams, whose looks are small, by and by."""
    return torch.where(setting.own(setting.rarity)[:, None] > 0, 1, memory["seen"])


def differences(memory: Memory, setting: Setting, own: Tensor, fresh: Tensor) -> Difference:
    weight, rare = memory["weight"].clamp(min=1e-150), setting.own(setting.rarity)[:, None] + setting.rarity
    mean = memory["difference"] / weight[..., None]
    drawn = believed(memory, setting) * memory["spread"] / weight.square()  # of the samples looked at
    fitted = fresh - own  # what of the noise one's own samples no longer show
    chance = drawn + rare * (fresh + setting.hidden[:, None] * fitted)  # of finite data
    return Difference(mean, mean.square().sum(2), chance)


def surely(difference: Difference) -> Tensor:
    """[R, c], the share of ‖c_ik‖² that chance does not explain: 0 of a twin, near 1 of a stranger."""
    return (difference.length - difference.chance).clamp(min=0) / difference.length.clamp(min=1e-300)


class Terms(NamedTuple):
    """What is weighed up, in units of S_i."""

    bias: Tensor  #: [R, c], ‖Δ_ik‖² as far as it is known, of what is not corrected
    gram: Tensor  #: [R, c, c], ⟨Δ_ik, Δ_il⟩
    cost: Tensor  #: [R, c], (κ_i/b_k + 1/n_k) σ_k²: what a unit of squared weight costs
    allowed: Tensor  #: [R, c], whether k may be a partner of i
    itself: Tensor  #: [R, c], where a row has its owner


def weigh_up(memory: Memory, setting: Setting, kappa: Tensor, corrected: Tensor | float = 0.0) -> Terms:
    """Bias and noise of every partner, from what is remembered, if the share `corrected` of c_ik is taken off.

    Δ_ik is known to be (1 − chance/‖c‖²) c_ik, up to chance. What may be hidden by noise for privacy counts as bias:
    unlike chance it does not fall with the number of samples. A correction brings in the error of one's own mean
    gradient, half of the chance, which is common to all partners.
    """
    itself, rarity = setting.itself, setting.rarity
    noise = noises(memory, setting)
    difference = differences(memory, setting, noise.own, noise.least)
    allowed = itself | ((memory["seen"] > 0) & (memory["ratio"].exp() > IDLE))
    known = torch.where(allowed & ~itself, surely(difference), 0)
    left = known - corrected
    veiled = torch.where(itself, 0, memory["veil"] / memory["weight"].clamp(min=1e-150).square())
    bias = left.square() * difference.length + known * difference.chance + veiled
    shrunk, root, doubt = left[..., None] * difference.mean, bias.sqrt(), corrected * (difference.chance / 2).sqrt()
    products = shrunk @ shrunk.mT + (doubt[:, :, None] * doubt[:, None])
    gram = (1 - TRIANGLE) * products + TRIANGLE * root[:, :, None] * root[:, None]
    gram = torch.where(torch.eye(gram.shape[1], dtype=torch.bool), torch.diag_embed(bias), gram)
    care = kappa[:, None] / setting.batch
    least = setting.own(care)[:, None] * noise.own + rarity * noise.least
    cost = torch.where(itself, least, ((care + rarity) * noise.theirs).maximum(least))
    return Terms(bias, gram, cost.clamp(min=1e-300), allowed, itself)


def least_error(terms: Terms) -> Tensor:
    """[R, c], the weights of least bias² + noise; rows sum to one. A row of which nothing can be said is alone."""
    own = terms.cost[terms.itself][:, None]
    near = terms.allowed & (terms.bias / own < STRANGE)
    products = torch.where(near[:, :, None] & near[:, None], terms.gram / own[..., None], 0)
    weights = least_quadratic(products + torch.diag_embed((terms.cost / own).clamp(max=MOST_COST)), near)
    fine = weights.isfinite().all(1, keepdim=True)
    return torch.where(fine, weights, terms.itself.to(weights.dtype))


def worth_asking(weights: Tensor, terms: Terms) -> Tensor:
    """The weights [R, c] of least error without the smallest: as many as leave the error within SPARED of it.

    Without those before place m of the rising order, the error is Σ_{k,l ≥ m} α_k α_l H_kl / (Σ_{k ≥ m} α_k)².
    """
    rising = weights.masked_fill(terms.itself, torch.inf).argsort(dim=1, stable=True)
    share, place = weights.gather(1, rising), torch.arange(weights.shape[1])
    products = weights[:, :, None] * weights[:, None]
    parts = torch.where(products > 0, products * (terms.gram + torch.diag_embed(terms.cost)), 0)
    parts = parts.gather(1, rising[:, :, None].expand_as(parts)).gather(2, rising[:, None].expand_as(parts))
    from_here = parts.flip(1, 2).cumsum(1).cumsum(2).diagonal(dim1=1, dim2=2).flip(1)
    error = from_here / share.flip(1).cumsum(1).flip(1).square()
    first = torch.where(error <= (1 + SPARED) * error[:, :1], place, 0).amax(1, keepdim=True)
    kept = torch.zeros_like(weights).scatter(1, rising, torch.where(place >= first, share, 0))
    return kept / kept.sum(1, keepdim=True)


def least_error_in_private(terms: Terms, look: Look, setting: Setting, weight: Tensor, updates: int | None) -> Tensor:
    """The same where noise is added for privacy. An answer at m models has m times the noise of one, that of one's own,
    too: who listened to many a little would drown. So one is alone, with the noise of one, unless the error is less.

    weight: [R], κ_i/S_i. updates: of a walk, whose answers are there already; None of a look.
    """
    if updates:
        return least_error(terms._replace(cost=terms.cost + updates * weight[:, None] * look.added))
    of_update = look.added * (look.read / setting.batch).square() / look.halves.shape[2]  # which is not in parts
    noise = weight[:, None] * setting.own(of_update)[look.ids]  # about one's own each has answered by itself
    cost = terms.cost + terms.allowed.sum(1, keepdim=True) * noise
    together = terms._replace(cost=cost.minimum(MOST_COST * setting.own(cost)[:, None]))
    weights = least_error(together)
    error = (weights[:, None] @ terms.gram @ weights[..., None]).flatten() + (weights.square() * together.cost).sum(1)
    better = error < setting.own(terms.cost + noise)
    return torch.where(better[:, None], weights, terms.itself.to(weights.dtype))


def trust(memory: Memory, look: Look, setting: Setting, kappa: Tensor) -> Tensor:
    """f_ik = √min(1, ρ_i/(‖x_ik‖² − 2V_ii)₊): what a partner may add to a step is bounded, whatever is known.

    ρ_i is one's own squared gradient, now or smoothed, over 2κ; on finite data, where that vanishes near interpolation,
    at least the median distance. Who did not answer is not trusted.
    """
    own = setting.own(look.norm)[:, None]
    middle = torch.where(setting.itself, own, look.distance).nanmedian(1, keepdim=True).values
    reach = (REACH / kappa)[:, None] * own.maximum(memory["size"].exp()[:, None])
    reach = torch.where(setting.own(setting.rarity)[:, None] > 0, reach.maximum(middle), reach)
    beyond = look.distance - 2 * setting.own(look.noise)[:, None]
    share = torch.where(beyond > reach, reach / beyond.clamp(min=1e-300), 1).sqrt()
    return torch.where(look.distance.isfinite(), share.nan_to_num(), 0)
