"""A large frozen backbone that all share, and a small adapter that each site trains: only adapters are ever sent.

python examples/lora.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo


class Adapted(nn.Module):
    """A frozen layer and the correction B·A of low rank beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.frozen(inputs) + inputs @ self.down.T @ self.up.T


def backbone() -> nn.Sequential:
    """What was trained elsewhere; here on digits of other people, in a few seconds."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    pretrained = afo.train(model, afo.digits(clients=1, split="iid").clients, loss=F.cross_entropy, rounds=20, inner=5)
    return pretrained.model(0)  # type: ignore[return-value]


def main(rounds: int = 8) -> afo.Trained:
    torch.manual_seed(0)
    trained = backbone()
    model = nn.Sequential(Adapted(trained[0]), nn.ReLU(), Adapted(trained[2]))
    clients = afo.digits(clients=6).clients
    return afo.train(model, clients, loss=F.cross_entropy, rounds=rounds, inner=5)


if __name__ == "__main__":
    result = main()
    model = result.model(0)
    trained, whole = (
        sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (True, False)
    )
    print(f"{trained} of {whole} numbers are trained and sent")
    print(result.gains())
