import pytest
import torch
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.problems.cifar10 import lenet
from allforone.problems.data import draw
from allforone.problems.images import crop_and_flip, deal
from allforone.problems.ixi import UNet, dice_loss
from allforone.problems.mnist import network


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_models_have_the_papers_numbers_of_parameters():
    assert parameters(network()) == 21_840
    assert parameters(lenet()) == 62_006
    assert parameters(UNet()) == 246_156
    assert parameters(nn.Linear(13, 1)) == 14


def test_the_unet_classifies_every_voxel():
    assert UNet().eval()(torch.randn(1, 1, 48, 60, 48)).shape == (1, 2, 48, 60, 48)


def test_dice_is_zero_for_a_perfect_answer_and_one_for_a_wrong_one():
    target = torch.randint(0, 2, (2, 4, 4, 4), dtype=torch.uint8)
    sure = 100.0 * torch.stack([1 - 2.0 * target, 2.0 * target - 1], 1)
    assert dice_loss(sure, target) < 1e-6
    assert dice_loss(-sure, target) > 1 - 1e-6


def test_augmentation_is_a_function_of_its_seed_and_only_moves_and_mirrors():
    images = torch.arange(2 * 3 * 32 * 32).reshape(2, 3, 32, 32)

    def augmented(seed):
        return crop_and_flip(images, torch.Generator().manual_seed(seed))

    assert augmented(1).equal(augmented(1))
    assert not augmented(1).equal(augmented(2))
    seen = set()
    for seed in range(60):
        moved = augmented(seed)[0]
        candidates = {}
        padded = nn.functional.pad(images[0], [4] * 4)
        for y in range(9):
            for x in range(9):
                window = padded[:, y : y + 32, x : x + 32]
                candidates[(y, x, False)], candidates[(y, x, True)] = window, window.flip(2)
        matches = [key for key, window in candidates.items() if window.equal(moved)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert {mirrored for *_, mirrored in seen} == {True, False}
    assert len({y for y, *_ in seen}) > 5


def test_training_batches_are_augmented_by_their_name_and_test_data_never():
    images = torch.randint(0, 256, (20, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(20) % 2
    (client,) = deal(
        images,
        labels,
        clients=1,
        split="iid",
        seed=0,
        test_share=0.5,
        augment=crop_and_flip,
        transform=lambda x: x.float(),
    )
    name = {"seed": 1, "client": 0, "purpose": "update"}
    first, again = (draw(client.train, 10, step=0, **name)[0] for _ in range(2))
    assert first.equal(again)
    plain = client.train.take(torch.arange(10))[0]
    assert {tuple(x.flatten().tolist()) for x in first} != {tuple(x.flatten().tolist()) for x in plain}
    tested, _ = client.test.take(torch.arange(10))
    assert tested.equal(client.test.tensors[0].float())


def test_poor_clients_train_on_fewer_samples_but_are_judged_on_as_many():
    rich, poor = afo.digits(), afo.digits(samples_per_client=10)
    assert {len(client.train) for client in poor.clients} == {10}
    assert [len(c.test) for c in poor.clients] == [len(c.test) for c in rich.clients]


def test_options_of_a_split_go_to_it_and_to_no_other():
    def labels(**options):
        return [set(client.train.tensors[1].tolist()) for client in afo.digits(**options).clients]

    assert labels(split="cluster", clusters=5)[:2] == [{0, 1}, {2, 3}]
    assert labels(split="dirichlet") == labels(split="dirichlet", concentration=0.5)
    assert labels(split="dirichlet") != labels(split="dirichlet", concentration=0.1, least=20)
    with pytest.raises(InputError, match="clusters is an option of split=cluster, not of split=iid: leave it out"):
        afo.digits(split="iid", clusters=5)
    with pytest.raises(InputError, match="least is an option of split=dirichlet, not of split=shards"):
        afo.digits(split="shards", least=5)
