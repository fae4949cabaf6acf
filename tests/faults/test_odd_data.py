"""Data files that are damaged, or packed to hurt: one line names the file, before memory or patience run out."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
from importlib import import_module

import pytest

from allforone.errors import InputError
from allforone.problems import cifar10, heart_disease, ixi, mnist, sources

#: The modules, whose names in the package are those of their functions.
cifar10_module, ixi_module = (import_module(f"allforone.problems.{name}") for name in ("cifar10", "ixi"))
METADATA = b"Patient ID,Manufacturer,Split\n0,0,train\n"
VOLUME = "IXI000-Guys-0001_image.nii.gz"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Write a file of a set into the folder of all."""
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))

    def put(path, content):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)

    return put


def zipped(content, name=VOLUME):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def tarred(members, **header):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), header
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize("shape", [(-2, -2, 5), (0, 28, 28)], ids=str)
def test_images_of_no_shape_are_told(data, shape):
    data("mnist/train-images-idx3-ubyte.gz", gzip.compress(struct.pack(">4i", 2051, *shape) + bytes(20)))
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz is damaged .* at least one of images"):
        mnist()


def test_a_table_with_an_endless_entry_is_told(data):
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        data(f"heart_disease/processed.{name}.data", b'"' + b"1" * 200_000 + b'"\n')
    with pytest.raises(InputError, match=r"processed\.cleveland\.data is damaged .* a table of values with commas"):
        heart_disease()


@pytest.mark.parametrize("line", [b'"' + b"1" * 200_000 + b'",0,train\n', b"\xe9,0,train\n"], ids=["endless", "latin"])
def test_metadata_that_are_no_table_are_told(data, line):
    data("ixi/sample.zip", zipped(b"nothing"))
    data("ixi/metadata_tiny.csv", METADATA + line)
    with pytest.raises(InputError, match="ixi: "):
        ixi()


def with_version(archive, version):
    """The same archive, but its directory says that it needs a program from the future."""
    place = archive.index(b"PK\x01\x02")
    return archive[: place + 6] + struct.pack("<H", version) + archive[place + 8 :]


def test_a_zip_file_of_another_age_is_told_by_reading_and_by_checking(data):
    data("ixi/metadata_tiny.csv", METADATA)
    data("ixi/7kd5wj7v7p-3.zip", with_version(zipped(b"nothing"), 99))
    with pytest.raises(InputError, match=r"7kd5wj7v7p-3\.zip is damaged"):
        ixi()
    assert [found.fine for found in sources.check("ixi") if found.file.endswith(".zip")] == [False]


def test_a_zip_file_with_bits_flipped_inside_is_found_by_checking(data):
    whole = bytearray(zipped(bytes(range(256)) * 99))
    whole[60:80] = bytes(20 * [255])
    data("ixi/7kd5wj7v7p-3.zip", bytes(whole))
    assert [found.fine for found in sources.check("ixi") if found.file.endswith(".zip")] == [False]


def most_held(work):
    """Bytes that Python held at once meanwhile, without those of what is imported on the way."""
    with pytest.raises(InputError, match="when unpacked"):
        work()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="when unpacked"):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_volume_in_a_zip_file_that_unpacks_to_too_much_is_refused_before_it_is_held(data, monkeypatch):
    monkeypatch.setattr(ixi_module, "MOST_BYTES", 2**16)
    data("ixi/metadata_tiny.csv", METADATA)
    data("ixi/sample.zip", zipped(bytes(2**24)))
    assert most_held(lambda: ixi_module._volume(VOLUME, ixi_module._files(sources.folder("ixi")))) < 2**22


@pytest.mark.parametrize("where", ["a member", "a header"])
def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_held(data, monkeypatch, where):
    monkeypatch.setattr(cifar10_module, "UNPACKED", 2**16)
    huge = tarred({"x": b""}, comment="x" * 2**24) if where == "a header" else tarred({"x": bytes(2**24)})
    data("cifar10/cifar-10-binary.tar.gz", huge)
    assert most_held(cifar10) < 2**22


def test_a_batch_file_that_is_too_large_is_refused(data, monkeypatch):
    monkeypatch.setattr(cifar10_module, "MOST_BYTES", 2**10)
    for name in cifar10_module.BATCHES:
        data(f"cifar10/cifar-10-batches-bin/{name}.bin", bytes(2**12))
    with pytest.raises(InputError, match=r"data_batch_1\.bin is damaged .* more than 1024 bytes"):
        cifar10()
