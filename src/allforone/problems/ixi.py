"""Ixi: segmenting the brain in MRI volumes of three London hospitals (IXITiny, as FLamby); a small 3D U-Net."""

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from ..errors import InputError
from . import sources
from .base import Problem, Settings
from .bounded import Bounded
from .client import Client
from .metrics import Metric

CENTRES = ("Guys", "HH", "IOP")
SHAPE = (48, 60, 48)
#: Updates of a round, as the paper's authors ran them.
INNER = 19


def ixi(seed: int = 127, volumes_per_client: int | None = None, as_published: bool = False) -> Problem:
    """Three clients, one for each hospital; the split is that of metadata_tiny.csv and does not depend on the seed.

    volumes_per_client: read that many training and test volumes of each hospital only, for a quick look.
    as_published: as the paper's authors had it. Volumes and masks are resized by area; a round has 19 updates; the
    running statistics of BatchNorm stay with their owner; the last hospital is not judged.
    """
    found = read_ixi(volumes_per_client, by_area=as_published)
    batches = [-(-len(train[0]) // 8) for train, _ in found.values()]
    return Problem(
        clients=[
            Client(train, None if as_published and name == CENTRES[-1] else test, name=name)
            for name, (train, test) in found.items()
        ],
        model=UNet,
        loss=dice_loss,
        metrics={"dice": Metric(lambda output, target: 1 - dice_loss(output, target), percent=True)},
        settings=Settings(
            rounds=10,
            inner=INNER if as_published else max(1, round(float(np.mean(batches)))),
            batch_size=8,
            estimation=16,
            optimizer={"name": "SGD", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
            private=("statistics",) if as_published else (),
        ),
        name="ixi",
    )


def dice_loss(output: Tensor, target: Tensor) -> Tensor:
    """One minus the soft Dice of both classes, brain and not, the mean over volumes. `target`: [b, d, h, w], 0 or 1."""
    space = (2, 3, 4)
    chance = output.softmax(1)
    truth = torch.stack([target == 0, target == 1], 1).to(chance.dtype)
    both = (chance * truth).sum(space)
    return 1 - (2 * both / (chance.sum(space) + truth.sum(space) + 1e-9)).mean()


#: Of one unpacked volume, with room to spare: those of the set have less than a million.
MOST_BYTES = 2**26


class Convolution(nn.Sequential):
    """Convolution, BatchNorm (the very first has none, but a bias), PReLU."""

    def __init__(self, inputs: int, outputs: int, normalised: bool = True) -> None:
        layers: list[nn.Module] = [nn.Conv3d(inputs, outputs, 3, padding=1, bias=not normalised)]
        super().__init__(*layers, *([nn.BatchNorm3d(outputs)] if normalised else []), nn.PReLU())


class UNet(nn.Module):
    """Three encoding blocks from 8 channels, max-pooling, trilinear upsampling: 246,156 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(Convolution(1, 8, normalised=False), Convolution(8, 16))
        self.down2 = nn.Sequential(Convolution(16, 16), Convolution(16, 32))
        self.bottom = nn.Sequential(Convolution(32, 32), Convolution(32, 64))
        self.up2 = nn.Sequential(Convolution(64 + 32, 32), Convolution(32, 32))
        self.up1 = nn.Sequential(Convolution(32 + 16, 16), Convolution(16, 16))
        self.classify = nn.Conv3d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down1(x)
        coarse = self.down2(F.max_pool3d(fine, 2))
        x = self.bottom(F.max_pool3d(coarse, 2))
        x = self.up2(torch.cat([coarse, _upsampled(x)], 1))
        x = self.up1(torch.cat([fine, _upsampled(x)], 1))
        return self.classify(x)  # type: ignore[no-any-return]


def _upsampled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False)


Part = tuple[Tensor, Tensor]


def read_ixi(limit: int | None = None, by_area: bool = False) -> dict[str, tuple[Part, Part]]:
    """Each hospital's training and test volumes [n, 1, 48, 60, 48] and masks [n, 48, 60, 48]."""
    resized = _by_area if by_area else _between_voxels
    place = sources.folder("ixi")
    if not (place / "metadata_tiny.csv").is_file():
        raise sources.missing("ixi", "metadata_tiny.csv")
    files = _files(place)
    chosen: dict[tuple[str, str], list[str]] = {(c, s): [] for c in CENTRES for s in ("train", "test")}
    for subject, centre, split in _metadata(place / "metadata_tiny.csv", files):
        if limit is None or len(chosen[centre, split]) < limit:
            chosen[centre, split].append(subject)
    for (centre, split), subjects in chosen.items():
        if not subjects:
            raise InputError(f"ixi: metadata_tiny.csv in {place} names no {split} volume of {centre}")
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("reading ixi", total=sum(map(len, chosen.values())))
        parts = {key: _volumes(subjects, files, resized, lambda: bar.advance(task)) for key, subjects in chosen.items()}
    return {centre: (parts[centre, "train"], parts[centre, "test"]) for centre in CENTRES}


Read = Callable[[], bytes]


def _files(place: Path) -> dict[str, Read]:
    """File name → a function that reads it, from the folder IXI_sample or from a zip file."""
    if (place / "IXI_sample").is_dir():
        return {path.name: path.read_bytes for path in sorted((place / "IXI_sample").rglob("*.nii.gz"))}
    archives = sorted(place.glob("*.zip"))
    if not archives:
        raise sources.missing("ixi", "7kd5wj7v7p-3.zip")
    try:
        archive = zipfile.ZipFile(archives[0])
    except sources.BROKEN_ZIP as error:
        raise sources.damaged("ixi", archives[0], f"a zip file ({error})") from error
    return {
        PurePosixPath(name).name: partial(_member, archive, name)
        for name in archive.namelist()
        if name.endswith(".nii.gz")
    }


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as packed:
        return Bounded(packed, MOST_BYTES).read()


def _metadata(path: Path, files: dict[str, Read]) -> list[tuple[str, str, str]]:
    """(subject, hospital, train or test). The publisher writes numbers: 12 for IXI012, and 0–2 for Guys, HH, IOP."""
    subjects = {name.removesuffix("_image.nii.gz") for name in files if name.endswith("_image.nii.gz")}
    by_number = {int(subject[3:6]): subject for subject in subjects if subject[3:6].isdigit()}
    rows = []
    with path.open(newline="", encoding="utf-8", errors="replace") as lines:
        for row in sources.lines_of(csv.DictReader(lines), "ixi", path):
            try:
                who, where, split = row["Patient ID"], row["Manufacturer"], row["Split"]
                centre = CENTRES[int(where)] if where.isdigit() else where
                if centre not in CENTRES or split not in ("train", "test"):
                    raise ValueError(f"{where}, {split}")
                subject = by_number.get(int(who)) if who.isdigit() else who
            except (KeyError, IndexError, ValueError, AttributeError) as error:
                expected = f"a table of Patient ID, Manufacturer, Split (found {error})"
                raise sources.damaged("ixi", path, expected) from error
            if subject not in subjects:
                raise sources.missing("ixi", f"the volume of subject {who} ({centre})")
            rows.append((subject, centre, split))
    return rows


def _between_voxels(image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The image between its voxels, the mask at the nearest one."""
    return F.interpolate(image, SHAPE, mode="trilinear", align_corners=False), F.interpolate(mask, SHAPE)


def _by_area(image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Both the mean of all voxels that a new one meets; brain is what is so in all of them, as FLamby has it."""
    return F.interpolate(image, SHAPE, mode="area"), F.interpolate(mask, SHAPE, mode="area").floor()


Resized = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _volumes(subjects: list[str], files: dict[str, Read], resized: Resized, on_read: Callable[[], None]) -> Part:
    images, masks = [], []
    for subject in subjects:
        image, mask = (_volume(f"{subject}_{kind}.nii.gz", files) for kind in ("image", "label"))
        if image.shape != SHAPE:
            image, mask = (whole[0, 0] for whole in resized(image[None, None], mask[None, None]))
        images.append(((image - image.mean()) / (image.std() + 1e-9))[None])
        masks.append((mask > 0.5).to(torch.uint8))
        on_read()
    return torch.stack(images), torch.stack(masks)


def _unpacked(content: bytes) -> bytes:
    return Bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), MOST_BYTES).read()


def _volume(name: str, files: dict[str, Read]) -> Tensor:
    try:
        import nibabel
    except ImportError as error:
        raise InputError("ixi needs the package nibabel to read NIfTI files: pip install 'allforone[ixi]'") from error
    if name not in files:
        raise sources.missing("ixi", name)
    try:
        image = nibabel.Nifti1Image.from_bytes(_unpacked(files[name]()))
        return torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32))
    except Exception as error:
        raise sources.damaged("ixi", sources.folder("ixi") / name, f"a NIfTI volume ({error})") from error
