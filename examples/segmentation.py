"""Every pixel of an image is told apart: a small convolutional network for each scanner, judged by Dice's coefficient.

python examples/segmentation.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo

SIDE = 16


def dice(output: Tensor, target: Tensor) -> Tensor:
    """Twice the overlap of what was found and what is there, over the sum of both."""
    found, there = output.argmax(1) == 1, target == 1
    return 2 * (found & there).sum() / (found.sum() + there.sum()).clamp(min=1)


def scans(bright: bool, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Invented: a disc that is brighter than the rest, or darker, as scanners have it."""
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    centre = torch.randint(4, SIDE - 4, (count, 2, 1, 1), generator=generator)
    inside = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < 12
    noise = 0.3 * torch.randn(count, SIDE, SIDE, generator=generator)
    return (inside * (1.0 if bright else -1.0) + noise)[:, None], inside.long()


def main(rounds: int = 12) -> afo.Trained:
    random = torch.Generator().manual_seed(0)
    clients = [
        afo.Client(
            scans(bright, 20, random), scans(bright, 20, random), name=f"{'bright' if bright else 'dark'} {number}"
        )
        for bright in (True, False)
        for number in (1, 2)
    ]
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
    metrics = {"dice": afo.Metric(dice, percent=True)}
    return afo.train(
        model, clients, loss=F.cross_entropy, metrics=metrics, rounds=rounds, inner=5, batch_size=8, lr=0.3
    )


if __name__ == "__main__":
    result = main()
    print(result.gains())
    print(result.why("bright 1", "dark 1"))
