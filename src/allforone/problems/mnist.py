"""Mnist: 70,000 handwritten digits from the publisher's idx files, dealt to 20 clients; a small CNN."""

import gzip
import math
import zlib
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import sources
from .base import Problem, Settings
from .images import deal, normalise
from .metrics import accuracy

#: Of an unpacked file, with room to spare: the largest of the publisher's has 47 million.
MOST_BYTES = 2**26
MAGIC = {"images": 2051, "labels": 2049}


def mnist(
    seed: int = 127,
    clients: int = 20,
    split: Literal["cluster", "iid", "dirichlet", "shards"] = "cluster",
    samples_per_client: int | None = None,
    test_share: float = 0.2,
    clusters: int | None = None,
    concentration: float | None = None,
    least: int | None = None,
) -> Problem:
    """Training and test images pooled, dealt (cluster: even clients see 0–4, odd 5–9), then 80/20 for each client.

    samples_per_client: train on that many only, where clients are poor in data and collaboration matters. clusters: of
    the cluster split, by default two. concentration, least: of Dirichlet, by default 0.5 and any number of images.
    """
    parts = [
        (read_idx(f"{part}-images-idx3-ubyte.gz", "images"), read_idx(f"{part}-labels-idx1-ubyte.gz", "labels"))
        for part in ("train", "t10k")
    ]
    images, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return Problem(
        clients=deal(
            images[:, None],
            labels.long(),
            clients=clients,
            split=split,
            seed=seed,
            test_share=test_share,
            samples_per_client=samples_per_client,
            clusters=clusters,
            concentration=concentration,
            least=least,
            transform=partial(normalise, mean=[0.1307], std=[0.3081]),
        ),
        model=network,
        loss=F.cross_entropy,
        metrics={"accuracy": accuracy},
        settings=Settings(
            rounds=100,
            inner=50,
            batch_size=16,
            estimation=512,
            optimizer={"name": "SGD", "lr": 0.1, "weight_decay": 5e-4},
            scheduler={"name": "StepLR", "step_size": 80, "gamma": 0.1},
        ),
        name="mnist",
    )


def network() -> nn.Module:
    """Two convolutions, two full layers: 21,840 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def read_idx(name: str, kind: Literal["images", "labels"]) -> Tensor:
    """One of the publisher's four files: a header of big-endian numbers, then bytes."""
    path = sources.folder("mnist") / name
    if not path.is_file():
        raise sources.missing("mnist", name)
    try:
        with gzip.open(path) as packed:
            content = packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise sources.damaged("mnist", path, f"a whole gzip file ({error})") from error
    if len(content) > MOST_BYTES:
        raise sources.damaged("mnist", path, f"at most {MOST_BYTES} bytes when unpacked")
    dimensions = 3 if kind == "images" else 1
    header = np.frombuffer(content[: 4 * (1 + dimensions)], ">i4").tolist()
    if len(header) != 1 + dimensions or header[0] != MAGIC[kind]:
        raise sources.damaged("mnist", path, f"an idx file of {kind} that starts with {MAGIC[kind]}")
    if min(header[1:]) < 1:
        raise sources.damaged("mnist", path, f"an idx file of at least one of {kind}, found a header of {header[1:]}")
    size = math.prod(header[1:])
    values = np.frombuffer(content, np.uint8, offset=4 * len(header))
    if len(values) != size:
        raise sources.damaged("mnist", path, f"{size} bytes of {kind}, found {len(values)}")
    return torch.from_numpy(values.copy()).reshape(header[1:])
