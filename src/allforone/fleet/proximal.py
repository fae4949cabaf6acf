"""A direction that can be told to whoever descends, since it is data and no code."""

from dataclasses import dataclass

from .models import Models, plus


@dataclass(frozen=True, eq=False)
class Proximal:
    """g_i(θ_i) + strength · (θ_i − centre): models held near another."""

    strength: float
    centre: Models  #: of what is trained, a stack of one

    def __call__(self, models: Models, gradients: Models) -> Models:
        return plus(gradients, {name: self.strength * (models[name] - w) for name, w in self.centre.items()})
