from dataclasses import dataclass
import torch
from ..collaboration import least_error as rule
from ..fleet import Fleet, Round
from .base import Info, Memory, State, Weighted

@dataclass(frozen=True)
class Second(Weighted):
    samples: int = 16
    sketch: int = 64
    lag: bool = True
    name = "second"
    label = "Second"

    def collaborate(self, state: State, fleet: Fleet, round: Round) -> tuple[Info, Memory]:
        n = len(fleet.roster)
        look = fleet.look(state.models, round, self.samples, self.sketch)
        sizes = torch.tensor([float("inf") if m.stream else float(m.size) for m in fleet.roster], dtype=torch.float64)
        setting = rule.Setting(torch.minimum(torch.tensor(float(fleet.batch_size)).double(), sizes), 1 / sizes)
        memory = state.own or rule.nothing(n, look.halves.shape[-1])
        kappa = torch.ones(n, dtype=torch.float64)
        lr = state.optimizer.lr
        if fleet.smoothness:
            kappa = kappa * min(1.0, lr * fleet.smoothness)
        else:
            from ..fleet.sketch import sketch
            flat = torch.cat([state.models[name].flatten(1) for name in fleet.trained], 1)
            points = sketch(flat.shape[1], self.sketch)(flat).double()
            apart = torch.cdist(flat.double(), flat.double()).square()
            memory, kappa = rule.curvature(memory, look, points, apart, lr)
        after = rule.remember(memory, look, setting)
        known = memory if self.lag else after
        size = known["size"].exp()
        care = torch.where(known["seen"].diagonal() > 0, (look.norm.diagonal() / size).clamp(max=1).nan_to_num(1.0), 1) ** 2
        terms = rule.weigh_up(known, setting, kappa * care)
        weights = rule.least_error(terms)
        weights = torch.where((known["seen"].diagonal() > 0)[:, None], weights, torch.eye(n, dtype=torch.float64))
        weights = rule.trusted_reach(weights, after, look, setting)
        return Info(weights, similarity=(1 - terms.bias).clamp(0, 1)), after
