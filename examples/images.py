"""Images that are augmented as they are drawn, and a convolutional network for each site.

python examples/images.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import allforone as afo


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to one pixel; what is drawn depends on the batch alone, so runs can be repeated."""
    padded = F.pad(images, (1, 1, 1, 1))
    corners = torch.randint(3, (len(images), 2), generator=generator)
    return torch.stack([image[:, r : r + 8, c : c + 8] for image, (r, c) in zip(padded, corners.tolist(), strict=True)])


def main(rounds: int = 10, sites: int = 6) -> afo.Trained:
    clients = []
    for number, client in enumerate(afo.digits(clients=sites).clients):
        (train, labels), (test, truth) = client.train.tensors, client.test.tensors
        data = (train.reshape(-1, 1, 8, 8), labels), (test.reshape(-1, 1, 8, 8), truth)
        clients.append(afo.Client(*data, name=f"camera {number}", augment=shifted))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))
    return afo.train(model, clients, loss=F.cross_entropy, rounds=rounds, inner=5, lr=0.3)


if __name__ == "__main__":
    result = main()
    print(result.gains())
    print("found:", result.clusters())
