"""The publishers' formats, on small files written here: read right, and named when they are broken."""

import csv
import gzip
import io
import os
import pickle
import tarfile
import zipfile

import nibabel
import numpy as np
import pytest
import torch

from allforone.errors import InputError
from allforone.problems import cifar10, heart_disease, ixi, mnist
from allforone.problems.cifar10 import BATCHES, read_cifar10
from allforone.problems.heart_disease import CENTRES, centre, read_centre
from allforone.problems.ixi import read_ixi
from allforone.problems.mnist import read_idx


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    return tmp_path


def write_mnist(data, count=40):
    random = np.random.default_rng(0)
    (data / "mnist").mkdir()
    for part in ("train", "t10k"):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, magic, array in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
            header = np.array([magic, *array.shape], ">i4").tobytes()
            (data / "mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))
    return images, labels


def test_mnist_reads_what_was_written(data):
    images, labels = write_mnist(data)
    assert read_idx("t10k-images-idx3-ubyte.gz", "images").equal(torch.from_numpy(images))
    assert read_idx("t10k-labels-idx1-ubyte.gz", "labels").equal(torch.from_numpy(labels))
    problem = mnist(clients=4)
    assert sum(len(c.train) + len(c.test) for c in problem.clients) == 80
    inputs, targets = problem.clients[1].train.take(torch.arange(4))
    assert inputs.shape == (4, 1, 28, 28)
    raw = problem.clients[1].train.tensors[0][:4]
    torch.testing.assert_close(inputs, (raw.float() / 255 - 0.1307) / 0.3081)
    assert (targets >= 5).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:-30], "a whole gzip file"),
        (lambda content: b"no gzip at all", "a whole gzip file"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-5]), "bytes of images, found"),
        (lambda content: gzip.compress(b"\x00\x00\x08\x01" + gzip.decompress(content)[4:]), "starts with 2051"),
        (lambda content: gzip.compress(b""), "starts with 2051"),
    ],
)
def test_a_broken_mnist_file_is_named(data, change, said):
    write_mnist(data)
    path = data / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=rf"train-images-idx3-ubyte\.gz is damaged.*{said}.*data fetch mnist"):
        mnist()


@pytest.mark.parametrize(
    ("make", "file"),
    [
        (mnist, "train-images-idx3-ubyte.gz"),
        (cifar10, "cifar-10-binary.tar.gz"),
        (heart_disease, "processed.cleveland.data"),
        (ixi, "metadata_tiny.csv"),
    ],
)
def test_a_missing_file_is_named_with_how_to_get_it(data, make, file):
    with pytest.raises(InputError, match=rf"{file} is missing in .*data fetch .* or set ALLFORONE_DATA"):
        make()


def cifar_batches(count=20):
    random = np.random.default_rng(1)
    return {name: (random.integers(0, 256, (count, 3072), dtype=np.uint8), np.arange(count) % 10) for name in BATCHES}


def as_binary(pixels, labels):
    return np.concatenate([labels[:, None], pixels], 1).astype(np.uint8).tobytes()


def as_python(pixels, labels):
    return pickle.dumps({b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"one of six"}, protocol=2)


def write_cifar(data, layout, batches):
    place = data / "cifar10"
    place.mkdir()
    binary = "bin" in layout
    inner, ending = ("cifar-10-batches-bin", ".bin") if binary else ("cifar-10-batches-py", "")
    files = {name + ending: (as_binary if binary else as_python)(*batch) for name, batch in batches.items()}
    if layout.endswith(".tar.gz"):
        with tarfile.open(place / layout, "w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(f"{inner}/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    else:
        (place / inner).mkdir()
        for name, content in files.items():
            (place / inner / name).write_bytes(content)
    return place


@pytest.mark.parametrize(
    "layout", ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "cifar-10-batches-bin", "cifar-10-batches-py"]
)
def test_cifar10_reads_every_layout_alike(data, layout):
    batches = cifar_batches()
    write_cifar(data, layout, batches)
    images, labels = read_cifar10()
    assert images.equal(torch.from_numpy(np.concatenate([b[0] for b in batches.values()]).reshape(-1, 3, 32, 32)))
    assert labels.tolist() == list(range(10)) * 12
    assert len(cifar10(clients=4).clients) == 4


@pytest.mark.parametrize(
    ("layout", "file", "content", "said"),
    [
        ("cifar-10-batches-bin", "test_batch.bin", b"12345", "a multiple of 3073 bytes, found 5"),
        ("cifar-10-batches-bin", "test_batch.bin", bytes([11]) * 3073, "labels from 0 to 9, found 11"),
        ("cifar-10-batches-py", "test_batch", b"12345", "damaged"),
        ("cifar-10-batches-py", "test_batch", pickle.dumps({b"data": 3}), "pixels for each of its labels"),
    ],
)
def test_a_broken_cifar_file_is_named(data, layout, file, content, said):
    place = write_cifar(data, layout, cifar_batches())
    (place / layout / file).write_bytes(content)
    with pytest.raises(InputError, match=f"{file}.*{said}"):
        read_cifar10()
    (place / layout / file).unlink()
    with pytest.raises(InputError, match=f"{file} is missing"):
        read_cifar10()


def test_a_truncated_archive_is_named(data):
    path = write_cifar(data, "cifar-10-binary.tar.gz", cifar_batches()) / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"cifar-10-binary\.tar\.gz is damaged.*a whole archive"):
        read_cifar10()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_python_archive_cannot_run_code(data, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = write_cifar(data, "cifar-10-batches-py", cifar_batches())
    (place / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}))
    with pytest.raises(InputError, match=r"data_batch_3.*asks for posix\.mkdir"):
        read_cifar10()
    assert not (tmp_path / "evil").exists()


PATIENTS = """63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0
67.0,1.0,4.0,160.0,286.0,0.0,1.0,108.0,1.0,1.5,2.0,3.0,3.0,2
37,1,3,130,250,0,0,187,0,3.5,?,?,?,0
41,0,2,?,204,0,2,172,0,1.4,1,0,3,0
"""


def write_heart(data, text=PATIENTS * 5):
    (data / "heart_disease").mkdir()
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        (data / "heart_disease" / f"processed.{name}.data").write_text(text)


def test_heart_disease_keeps_patients_for_whom_the_used_columns_are_known(data):
    write_heart(data)
    features, sick = read_centre("va")
    assert features.shape == (15, 13)
    assert features[1].tolist() == [67, 1, 160, 286, 0, 108, 1, 1.5, 0, 0, 1, 1, 0]
    assert sick.tolist() == [0, 1, 0] * 5
    problem = heart_disease()
    for client in problem.clients:
        inputs = client.train.tensors[0]
        moving = inputs.std(0) > 0
        torch.testing.assert_close(inputs.mean(0), torch.zeros(13), atol=1e-5, rtol=0)
        torch.testing.assert_close(inputs.std(0)[moving], torch.ones(int(moving.sum())))


def patients(cholesterol):
    """Thirty of different age, with this cholesterol at that age."""
    lines = (f"{age},1,3,120,{cholesterol(age)},0,0,150,0,1.0,?,?,?,{age % 2}\n" for age in range(30, 60))
    return "".join(lines)


def test_a_column_that_is_constant_in_training_is_not_blown_up_where_a_test_patient_differs(data):
    write_heart(data, patients(lambda age: 0))
    odd = int(centre("va", scaled=False).test[0][0, 0])
    (data / "heart_disease" / "processed.va.data").write_text(patients(lambda age: 5 * (age == odd)))
    va = centre("va")
    assert (va.train[0][:, 3] == 0).all()
    assert va.test[0][:, 3].tolist() == [5.0] + [0.0] * (len(va.test[0]) - 1)


def test_hospitals_scaled_together_keep_how_they_differ(data):
    write_heart(data, patients(lambda age: 200 + age))
    (data / "heart_disease" / "processed.va.data").write_text(patients(lambda age: 300 + age))
    clients = heart_disease(scaling="together").clients
    raw = [centre(name, scaled=False) for name in CENTRES]
    everybody = torch.cat([hospital.train[0] for hospital in raw])
    unit = torch.where(everybody.std(0) > 0, everybody.std(0), 1)
    for client, hospital in zip(clients, raw, strict=True):
        for ours, theirs in ((client.train, hospital.train), (client.test, hospital.test)):
            torch.testing.assert_close(ours.tensors[0], (theirs[0] - everybody.mean(0)) / unit)
    means = [client.train.tensors[0][:, 3].mean() for client in clients]
    assert means[3] > 1 and max(means[:3]) < 0  # apart, all are 0
    with pytest.raises(InputError, match="scaling is 'both': must be 'apart' or 'together'"):
        heart_disease(scaling="both")


def test_heart_disease_may_be_split_anew_with_every_seed(data):
    write_heart(data, patients(lambda age: 200 + age))
    by_seed, plain = (heart_disease(seed=7, split=split).clients[0].train.tensors[0] for split in ("seed", 7))
    assert by_seed.equal(plain)
    assert not by_seed.equal(heart_disease(seed=8, split="seed").clients[0].train.tensors[0])


def test_another_split_of_heart_disease_trains_on_other_patients_whatever_the_seed(data):
    write_heart(data, patients(lambda age: 200 + age))
    flambys, same, other = (
        heart_disease(**given).clients[0].train.tensors[0] for given in ({}, {"seed": 1, "split": 43}, {"split": 7})
    )
    assert flambys.equal(same) and flambys.shape == other.shape and not flambys.equal(other)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PATIENTS + "1,2,3\n", "line 5: 3 columns"),
        (PATIENTS.replace("286.0", "high"), "line 2: could not convert"),
        ("", "a table of patients"),
    ],
)
def test_a_broken_heart_file_is_named_with_its_line(data, text, said):
    write_heart(data, text)
    with pytest.raises(InputError, match=rf"processed\.cleveland\.data is damaged.*{said}"):
        heart_disease()


SUBJECTS = [
    ("IXI002-Guys-0828", "Guys", 0),
    ("IXI012-HH-1211", "HH", 1),
    ("IXI035-IOP-0873", "IOP", 2),
    ("IXI016-Guys-0697", "Guys", 0),
    ("IXI013-HH-1212", "HH", 1),
    ("IXI230-IOP-0869", "IOP", 2),
]


def nifti(array):
    return gzip.compress(nibabel.Nifti1Image(array, np.eye(4)).to_bytes())


def write_ixi(data, *, numbers, zipped, shape=(48, 60, 48)):
    place = data / "ixi"
    place.mkdir()
    random = np.random.default_rng(2)
    files = {}
    for subject, _, _ in SUBJECTS:
        image = random.normal(5, 3, shape).astype(np.float32)
        files[f"IXI_sample/{subject}/T1/{subject}_image.nii.gz"] = nifti(image)
        files[f"IXI_sample/{subject}/label/{subject}_label.nii.gz"] = nifti((image > 5).astype(np.uint8))
    if zipped:
        with zipfile.ZipFile(place / "7kd5wj7v7p-3.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"7kd5wj7v7p-3/{name}", content)
    else:
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
    with (place / "metadata_tiny.csv").open("w", newline="") as file:
        rows = [
            (int(s[3:6]) if numbers else s, n if numbers else c, "train" if i < 3 else "test")
            for i, (s, c, n) in enumerate(SUBJECTS)
        ]
        csv.writer(file).writerows([("Patient ID", "Manufacturer", "Split"), *rows])
    return place


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
def test_ixi_reads_folder_and_zip_names_and_numbers(data, zipped, numbers):
    write_ixi(data, numbers=numbers, zipped=zipped)
    found = read_ixi()
    assert list(found) == ["Guys", "HH", "IOP"]
    for train, test in found.values():
        for volumes, masks in (train, test):
            assert volumes.shape == (1, 1, 48, 60, 48)
            assert volumes.mean().abs() < 1e-4
            assert volumes.std() == pytest.approx(1, abs=1e-3)
            assert masks.unique().tolist() == [0, 1]
            assert ((volumes[:, 0] > 0) == (masks == 1)).double().mean() > 0.99


@pytest.mark.slow
def test_ixi_volumes_of_another_shape_are_resampled(data):
    write_ixi(data, numbers=True, zipped=False, shape=(44, 55, 44))
    (train, _), *_ = read_ixi().values()
    assert train[0].shape == (1, 1, 48, 60, 48)
    assert train[1].unique().tolist() == [0, 1]


@pytest.mark.slow
def test_a_broken_ixi_file_is_named(data):
    place = write_ixi(data, numbers=False, zipped=False)
    path = place / "IXI_sample" / "IXI012-HH-1211" / "T1" / "IXI012-HH-1211_image.nii.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"IXI012-HH-1211_image\.nii\.gz is damaged.*a NIfTI volume"):
        read_ixi()
    path.unlink()
    with pytest.raises(InputError, match="volume of subject IXI012-HH-1211"):
        read_ixi()
    (place / "metadata_tiny.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Patient ID"):
        read_ixi()
