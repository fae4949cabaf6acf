"""Where the real data sets come from, where they lie, and whether they are whole.

They lie in a folder per set, under ALLFORONE_DATA or else the user's cache, laid out as their publishers do.
"""

import csv
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import InputError, MissingData, suggest

#: What reading a damaged zip file raises: of what is wrong inside, whatever the part that found it has.
BROKEN_ZIP = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OSError, zlib.error)

Line = TypeVar("Line")


@dataclass(frozen=True)
class File:
    name: str
    url: str
    md5: str | None = None  #: None where the publisher gives none
    size: int | None = None  #: bytes


@dataclass(frozen=True)
class Source:
    folder: str
    title: str
    licence: str
    page: str
    files: tuple[File, ...]
    instead: str = ""  #: another layout that does as well


MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CIFAR = "https://www.cs.toronto.edu/~kriz/"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"

SOURCES = {
    "mnist": Source(
        "mnist",
        "Handwritten digits, 70,000 images of 28×28",
        "CC BY-SA 3.0",
        "http://yann.lecun.com/exdb/mnist",
        (
            File(
                "train-images-idx3-ubyte.gz",
                MNIST + "train-images-idx3-ubyte.gz",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                9_912_422,
            ),
            File(
                "train-labels-idx1-ubyte.gz",
                MNIST + "train-labels-idx1-ubyte.gz",
                "d53e105ee54ea40749a09fcbcd1e9432",
                28_881,
            ),
            File(
                "t10k-images-idx3-ubyte.gz",
                MNIST + "t10k-images-idx3-ubyte.gz",
                "9fb629c4189551a2d022fa330f9573f3",
                1_648_877,
            ),
            File(
                "t10k-labels-idx1-ubyte.gz",
                MNIST + "t10k-labels-idx1-ubyte.gz",
                "ec29112dd5afa0611ce80d1b7f02629c",
                4_542,
            ),
        ),
    ),
    "cifar10": Source(
        "cifar10",
        "Natural images, 60,000 of 3×32×32 in 10 classes",
        "none stated; cite Krizhevsky (2009)",
        CIFAR + "cifar.html",
        (
            File(
                "cifar-10-binary.tar.gz",
                CIFAR + "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530",
                170_052_171,
            ),
        ),
        instead="cifar-10-batches-bin/, cifar-10-python.tar.gz or cifar-10-batches-py/",
    ),
    "heart-disease": Source(
        "heart_disease",
        "Heart disease at four hospitals, 740 patients",
        "CC BY 4.0",
        "https://archive.ics.uci.edu/dataset/45/heart+disease",
        (
            File(
                "processed.cleveland.data", UCI + "processed.cleveland.data", "2d91a8ff69cfd9616aa47b59d6f843db", 18_461
            ),
            File(
                "processed.hungarian.data", UCI + "processed.hungarian.data", "22e96bee155b5973568101c93b3705f6", 10_263
            ),
            File(
                "processed.switzerland.data",
                UCI + "processed.switzerland.data",
                "9a87f7577310b3917730d06ba9349e20",
                4_109,
            ),
            File("processed.va.data", UCI + "processed.va.data", "4249d03ca7711e84f4444768c9426170", 6_737),
        ),
    ),
    "ixi": Source(
        "ixi",
        "IXITiny: brain MRI of three London hospitals, 566 volumes with masks",
        "CC BY-SA 3.0",
        "https://brain-development.org/ixi-dataset",
        (
            File(
                "7kd5wj7v7p-3.zip",
                "https://prod-dcd-datasets-cache-zipfiles.s3.eu-west-1.amazonaws.com/7kd5wj7v7p-3.zip",
            ),
            File(
                "metadata_tiny.csv",
                "https://raw.githubusercontent.com/owkin/FLamby/main/flamby/datasets/fed_ixi/"
                "metadata/metadata_tiny.csv",
            ),
        ),
        instead="IXI_sample/ with metadata_tiny.csv",
    ),
}


def source(name: str) -> Source:
    if name not in SOURCES:
        raise InputError(f"unknown data set '{name}'; {suggest(name, SOURCES)}")
    return SOURCES[name]


def folder(name: str) -> Path:
    """Where a data set lies, or would."""
    root = os.environ.get("ALLFORONE_DATA")
    if root is None:
        import pooch

        root = str(pooch.os_cache("allforone"))
    return Path(root).expanduser() / source(name).folder


def missing(name: str, what: str) -> MissingData:
    """What to say when a file is not there."""
    return MissingData(
        f"{name}: {what} is missing in {folder(name)}: get it with `allforone data fetch {name}`, or set "
        f"ALLFORONE_DATA to a folder that has {source(name).folder}/{what}"
    )


def damaged(name: str, path: Path, expected: str) -> InputError:
    return InputError(
        f"{name}: {path} is damaged or not what it should be, {expected}: remove it and run "
        f"`allforone data fetch {name}`"
    )


def lines_of(table: Iterable[Line], name: str, path: Path) -> Iterator[Line]:
    """The lines of a table of values with commas, as far as it is one."""
    try:
        yield from table
    except csv.Error as error:
        raise damaged(name, path, f"a table of values with commas ({error})") from error


class Finding(NamedTuple):
    file: str
    state: str  #: «whole», «missing», or what is wrong
    fine: bool


def check(name: str) -> list[Finding]:
    """Each file of a set against its published size and checksum."""
    place = folder(name)
    return [_check(file, place / file.name) for file in source(name).files]


def _check(file: File, path: Path) -> Finding:
    if not path.is_file():
        return Finding(file.name, "missing", False)
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return Finding(file.name, f"{size} bytes, expected {file.size}", False)
    if file.md5 is not None:
        found = _md5(path)
        if found != file.md5:
            return Finding(file.name, f"md5 {found}, expected {file.md5}", False)
        return Finding(file.name, "whole", True)
    if file.name.endswith(".zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()
        except BROKEN_ZIP as error:
            return Finding(file.name, f"not a zip file ({error})", False)
        if broken:
            return Finding(file.name, f"{broken} in it is damaged", False)
    return Finding(file.name, "there; its publisher gives no checksum", True)


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def fetch(name: str, bar: Any = None) -> Path:
    """Download what is missing or damaged. A file appears under its name only when it is whole."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")  # what it would say, our own progress and errors say
    place = folder(name)
    for file, finding in zip(source(name).files, check(name), strict=True):
        if finding.fine:
            continue
        unfinished = f"{file.name}.unfinished"
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / unfinished).unlink(missing_ok=True)
            pooch.retrieve(
                file.url,
                f"md5:{file.md5}" if file.md5 else None,
                unfinished,
                place,
                downloader=pooch.HTTPDownloader(progressbar=bar, timeout=30),
            )
            if not (found := _check(file, place / unfinished)).fine:
                raise ValueError(found.state)
            os.replace(place / unfinished, place / file.name)  # what was there is lost only now
        except ValueError as error:
            raise InputError(
                f"{name}: what {file.url} sent is not {file.name}, whose md5 is {file.md5}: nothing was "
                "changed; try again later or get the file from elsewhere"
            ) from error
        except (requests.exceptions.RequestException, OSError) as error:
            raise InputError(
                f"{name}: could not download {file.url} ({type(error).__name__}): download it by hand and "
                f"put it at {place / file.name}"
            ) from error
        finally:
            (place / unfinished).unlink(missing_ok=True)
    return place
