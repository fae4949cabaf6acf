"""Cifar10 and Ixi as the paper's authors had them, on small files written here."""

import pytest
import torch
from torch import nn

from allforone.problems import cifar10, ixi
from allforone.problems.ixi import _files, _volume

from .test_formats import SUBJECTS, cifar_batches, write_cifar, write_ixi


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLFORONE_DATA", str(tmp_path))
    return tmp_path


def test_cifar10_as_published_moves_every_image_once_and_deals_the_first_labels_to_odd_clients(data):
    batches = cifar_batches()
    write_cifar(data, "cifar-10-batches-bin", batches)
    original = {image.tobytes() for pixels, _ in batches.values() for image in pixels}
    problem = cifar10(clients=4, as_published=True)
    assert [client.cluster for client in problem.clients] == [1, 0, 1, 0]
    assert set(problem.clients[1].train.tensors[1].tolist()) == {0, 1, 2, 3, 4}
    for part in [part for client in problem.clients for part in (client.train, client.test)]:
        assert part.augment is None
        kept = [image.numpy().tobytes() in original for image in part.tensors[0]]
        assert sum(kept) < len(kept) / 4  # one in 81 is neither moved nor mirrored
    pools = [layer for layer in problem.initial_model(0).modules() if isinstance(layer, nn.AvgPool2d | nn.MaxPool2d)]
    assert [type(layer) for layer in pools] == [nn.AvgPool2d] * 2
    again = cifar10(clients=4, as_published=True)
    assert [c.fingerprint for c in again.clients] == [c.fingerprint for c in problem.clients]


def test_ixi_as_published_is_resized_by_area_and_its_last_hospital_not_judged(data):
    write_ixi(data, numbers=True, zipped=False, shape=(12, 15, 36))
    problem = ixi(as_published=True)
    assert [client.test is None for client in problem.clients] == [False, False, True]
    assert (problem.settings.inner, problem.settings.private) == (19, ("statistics",))
    masks = problem.clients[0].train.tensors[1]
    mask = _volume(f"{SUBJECTS[0][0]}_label.nii.gz", _files(data / "ixi")).to(torch.uint8)
    along = mask.repeat_interleave(4, 0).repeat_interleave(4, 1)
    met = [along[..., range(3 * i // 4, -(-3 * (i + 1) // 4))] for i in range(48)]  # of 36 voxels by each of 48
    assert masks[0].equal(torch.stack([voxels.amin(2) for voxels in met], 2))
