"""What Mnist and Cifar10 share: one pool of images, dealt to clients, normalised and augmented batch by batch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, short
from . import splits
from .client import Client
from .data import Augment

SPLITS = {"cluster": splits.cluster, "iid": splits.iid, "dirichlet": splits.dirichlet, "shards": splits.shards}
#: The options of each split that may be given.
OPTIONS = {"cluster": ("clusters", "first"), "dirichlet": ("concentration", "least")}


def deal(
    images: Tensor,
    labels: Tensor,
    *,
    clients: int,
    split: str,
    seed: int,
    test_share: float,
    samples_per_client: int | None = None,
    transform: Callable[[Tensor], Tensor] | None = None,
    augment: Augment | None = None,
    **options: float | None,
) -> list[Client]:
    """Deal a pool to clients by its labels, then split each client's part into training and test.

    The options are those of the split; what is None is as the split has it.
    """
    if not 1 <= clients <= len(labels):
        raise InputError(f"clients is {short(clients)}: must be between 1 and {len(labels)}, the number of samples")
    if not 0 < test_share < 1:
        raise InputError(f"test_share is {test_share}: must be between 0 and 1")
    if samples_per_client is not None and samples_per_client < 2:
        raise InputError(f"samples_per_client is {samples_per_client}: must be at least 2, to train and to test")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in OPTIONS.get(split, ()):
            fits = next(each for each, names in OPTIONS.items() if name in names)
            raise InputError(f"{name} is an option of split={fits}, not of split={split}: leave it out")
    dealt = SPLITS[split](labels, clients, seed=seed, **given)

    def client(i: int) -> Client:
        part = dealt.parts[i]
        part = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))]
        test, train = part.tensor_split([max(1, round(test_share * len(part)))])
        train = train[:samples_per_client]  # test data are not made fewer: they only judge
        return Client(
            (images[train], labels[train]),
            (images[test], labels[test]),
            transform=transform,
            augment=augment,
            cluster=None if dealt.clusters is None else dealt.clusters[i],
        )

    return [client(i) for i in range(clients)]


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bytes [b, c, h, w] to numbers of mean 0 and deviation 1 in each channel."""
    shift, scale = (255 * torch.tensor(values)[:, None, None] for values in (mean, std))
    return images.float().sub_(shift).div_(scale)


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Each image moved by up to `padding` pixels, black beyond its edge, and mirrored half of the time."""
    b, _, h, w = images.shape
    windows = F.pad(images, [padding] * 4).unfold(2, h, 1).unfold(3, w, 1)
    top, left = torch.randint(0, 2 * padding + 1, (2, b), generator=generator)
    mirrored = torch.rand(b, generator=generator) < 0.5
    cropped = windows[torch.arange(b), :, top, left]
    return torch.where(mirrored[:, None, None, None], cropped.flip(3), cropped)
