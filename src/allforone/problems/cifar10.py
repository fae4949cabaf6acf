"""Cifar10: 60,000 natural images from the publisher's binary or python archive, dealt to 20 clients; LeNet-5."""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import sources
from .arrays_only import load_arrays
from .base import Problem, Settings
from .bounded import Bounded
from .data import generator
from .images import crop_and_flip, deal, normalise
from .metrics import accuracy

BATCHES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
#: Of one batch file, with room to spare: the publisher's have 31 million.
MOST_BYTES = 2**26
#: Of all that is in an archive: the publisher's have 185 million.
UNPACKED = 2**28
PIXELS = 3 * 32 * 32


def cifar10(
    seed: int = 127,
    clients: int = 20,
    split: Literal["cluster", "iid", "dirichlet", "shards"] = "cluster",
    samples_per_client: int | None = None,
    test_share: float = 0.2,
    augmented: bool = True,
    clusters: int | None = None,
    concentration: float | None = None,
    least: int | None = None,
    as_published: bool = False,
) -> Problem:
    """Training and test images pooled, dealt (cluster: even clients see classes 0–4, odd 5–9), then 80/20 each.

    augmented: random crop and flip of the training images. samples_per_client: train on that many only. clusters: of
    the cluster split, by default two. concentration, least: of Dirichlet, by default 0.5 and any number of images.
    as_published: as the paper's authors had it. Images are cropped and flipped once, before they are dealt, those to be
    tested on too; the network averages where it pools; of the cluster split, odd clients see classes 0–4.
    """
    images, labels = read_cifar10()
    if as_published and augmented:
        images = crop_and_flip(images, generator(seed, "as published"))
    return Problem(
        clients=deal(
            images,
            labels,
            clients=clients,
            split=split,
            seed=seed,
            test_share=test_share,
            samples_per_client=samples_per_client,
            clusters=clusters,
            concentration=concentration,
            least=least,
            first=1 if as_published and split == "cluster" else None,
            augment=crop_and_flip if augmented and not as_published else None,
            transform=partial(normalise, mean=[0.4914, 0.4822, 0.4465], std=[0.2023, 0.1994, 0.2010]),
        ),
        model=partial(lenet, averaging=True) if as_published else lenet,
        loss=F.cross_entropy,
        metrics={"accuracy": accuracy},
        settings=Settings(
            rounds=100,
            inner=50,
            batch_size=16,
            estimation=512,
            optimizer={"name": "SGD", "lr": 0.001, "momentum": 0.9, "weight_decay": 5e-4},
        ),
        name="cifar10",
    )


def lenet(averaging: bool = False) -> nn.Module:
    """LeNet-5 for colour images: 62,006 parameters. It pools by the maximum, or by averaging."""

    def pooling() -> list[nn.Module]:
        """Rectifying after the maximum gives the same as before it, for a quarter."""
        return [nn.ReLU(), nn.AvgPool2d(2)] if averaging else [nn.MaxPool2d(2), nn.ReLU()]

    return nn.Sequential(
        nn.Conv2d(3, 6, 5),
        *pooling(),
        nn.Conv2d(6, 16, 5),
        *pooling(),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def read_cifar10() -> tuple[Tensor, Tensor]:
    """Images [n, 3, 32, 32] as bytes and labels [n], from whichever of the publisher's layouts is there."""
    place = sources.folder("cifar10")
    layouts: list[tuple[str, str, Callable[[bytes], tuple[np.ndarray, np.ndarray]]]] = [
        ("cifar-10-batches-bin", ".bin", _binary),
        ("cifar-10-batches-py", "", _python),
    ]
    for name, ending, decode in layouts:
        if (place / name).is_dir():
            return _gather(place / name, partial(_read, place / name), ending, decode)
    archives = [("cifar-10-binary.tar.gz", *layouts[0]), ("cifar-10-python.tar.gz", *layouts[1])]
    for archive, inner, ending, decode in archives:
        path = place / archive
        if path.is_file():
            try:
                with (
                    gzip.open(path) as packed,
                    tarfile.open(fileobj=Bounded(packed, UNPACKED), mode="r|") as tar,  # headers count as well
                ):
                    members = {
                        Path(m.name).name: tar.extractfile(m).read()  # type: ignore[union-attr]
                        for m in tar
                        if m.isfile() and Path(m.name).parent.name == inner and _is_wanted(m, ending)
                    }
            except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
                raise sources.damaged("cifar10", path, f"a whole archive ({error})") from error
            return _gather(path, members.__getitem__, ending, decode)
    raise sources.missing("cifar10", "cifar-10-binary.tar.gz")


def _is_wanted(member: tarfile.TarInfo, ending: str) -> bool:
    """Of an archive only what is needed is unpacked, and only if it is as large as it should be."""
    return member.name.removesuffix(ending).rpartition("/")[2] in BATCHES and member.size <= MOST_BYTES


def _read(place: Path, name: str) -> bytes:
    path = place / name
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return Bounded(file, MOST_BYTES).read()


def _gather(
    path: Path, read: Callable[[str], bytes], ending: str, decode: Callable[[bytes], tuple[np.ndarray, np.ndarray]]
) -> tuple[Tensor, Tensor]:
    images, labels = [], []
    for batch in BATCHES:
        try:
            pixels, classes = decode(read(batch + ending))
        except (KeyError, FileNotFoundError) as error:
            raise sources.missing("cifar10", f"{path.name}/{batch}{ending}") from error
        except ValueError as error:
            raise sources.damaged("cifar10", path / (batch + ending), str(error)) from error
        images.append(torch.from_numpy(pixels.reshape(-1, 3, 32, 32)))
        labels.append(torch.from_numpy(classes.astype(np.int64)))
    return torch.cat(images), torch.cat(labels)


def _binary(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one label byte and 3,072 pixel bytes."""
    if not content or len(content) % (1 + PIXELS):
        raise ValueError(f"a multiple of {1 + PIXELS} bytes, found {len(content)}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    if rows[:, 0].max() > 9:
        raise ValueError(f"labels from 0 to 9, found {rows[:, 0].max()}")
    return rows[:, 1:].copy(), rows[:, 0]


def _python(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    found = load_arrays(content)
    pixels, labels = found.get(b"data"), np.asarray(found.get(b"labels", []))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS):
        raise ValueError(f"bytes of {PIXELS} pixels for each of its labels")
    if not len(labels) or not 0 <= labels.min() <= labels.max() <= 9:
        raise ValueError("labels from 0 to 9")
    return pixels, labels
