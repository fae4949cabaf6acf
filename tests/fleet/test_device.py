"""On a device: the same numbers as on the CPU, nothing left behind there, and no device that is not there."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import allforone as afo
from allforone.errors import InputError
from allforone.fleet import find_device, row_by_row
from allforone.runs import checkpoint

from .pretended import MixedError, There, pretended_device

ALGORITHMS = {
    "all-for-one": afo.AllForOne(),
    "corrected": afo.AllForOne(correct=True),
    "one exchange": afo.AllForOne(exchange="round", momentum=0.5),
    "by similarity": afo.BySimilarity(estimator=afo.FreshSamples(8)),
    "ditto": afo.Ditto(),
    "fedavg": afo.FedAvg(proximal=0.1, finetune=2),
    "cobo": afo.CoBo(),
    "wga-bc": afo.WgaBc(),
    "apfl": afo.Apfl(),
    "ifca": afo.Ifca(),
    "fedamp": afo.FedAMP(),
    "heurfedamp": afo.FedAMP(cosine=True),
    "fedfomo": afo.FedFomo(),
    "fedala": afo.FedALA(),
    "pfedgraph": afo.PFedGraph(),
    "cfl": afo.CFL(small=1.1, gap=0.0),
    "pfedme": afo.PFedMe(),
}


def small():
    return nn.Linear(5, 3)


def normed():
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.1), nn.Linear(6, 3))


def convolving():
    return nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))


def clients(count=4, size=24):
    random = torch.Generator().manual_seed(3)
    x = torch.randn(count, size, 5, generator=random)
    y = (x[..., 0] > 0).long() + (torch.arange(count) % 2)[:, None]
    return [afo.Client((x[k], y[k]), (x[k], y[k])) for k in range(count)]


def trained(device=None, model=small, **settings):
    torch.manual_seed(0)
    told = {"rounds": 2, "inner": 2, "batch_size": 6, "seed": 5, "loss": F.cross_entropy, **settings}
    return afo.train(model(), clients(3), device=device, progress=False, **told)


def same(a, b):
    assert a.metrics.drop("seconds").equals(b.metrics.drop("seconds"))
    return all(torch.equal(a.stacked[name], b.stacked[name]) for name in a.stacked)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_on_a_device_every_algorithm_gives_the_numbers_of_the_cpu(algorithm, monkeypatch):
    here = trained(algorithm=algorithm, participation=0.7)
    with pretended_device(monkeypatch) as device:
        there = trained(device, algorithm=algorithm, participation=0.7)
    assert same(here, there)


@pytest.mark.parametrize("name", ["all-for-one", "one exchange", "by similarity", "ditto", "cobo", "apfl", "ifca"])
def test_on_a_device_private_parts_give_the_numbers_of_the_cpu(name, monkeypatch):
    told = {"model": normed, "private": ["batchnorm", "3.bias"], "participation": 0.7, "inner": 1}
    told["algorithm"] = ALGORITHMS[name]
    here = trained(**told)
    with pretended_device(monkeypatch) as device:
        there = trained(device, **told)
    assert same(here, there)


#: The loop passes all models one by one, so that one with buffers and chance is any other, too.
@pytest.mark.parametrize(("fleet", "model"), [("stacked", normed), ("stacked", convolving), ("loop", normed)])
def test_on_a_device_every_fleet_gives_the_numbers_of_the_cpu(fleet, model, monkeypatch):
    told = {"fleet": fleet, "guard": True, "optimizer": torch.optim.Adam, "clip": 0.5, "inner": 1}
    here = trained(model=model, **told)
    with pretended_device(monkeypatch) as device:
        there = trained(device, model=model, **told)
    assert same(here, there)


def test_rows_are_updated_one_by_one_on_a_device_as_on_the_cpu(monkeypatch):
    monkeypatch.setattr(row_by_row, "MANY_NUMBERS", 0)
    told = {"model": normed, "optimizer": torch.optim.Adam, "algorithm": afo.Local()}
    here = trained(**told)
    with pretended_device(monkeypatch) as device:
        assert same(here, trained(device, **told))


def test_streams_go_on_alone_on_a_device_as_on_the_cpu(monkeypatch):
    here = afo.train(afo.synthetic(clients=4, dimension=3), rounds=3)
    with pretended_device(monkeypatch) as device:
        there = afo.train(afo.synthetic(clients=4, dimension=3), rounds=3, device=device)
    assert same(here, there)


def test_models_are_computed_on_the_device_and_given_back_on_the_cpu(monkeypatch):
    seen = set()

    def loss(output, target):
        seen.add((type(output), type(target)))
        return F.cross_entropy(output, target)

    with pretended_device(monkeypatch) as device:
        result = trained(device, loss=loss, metrics={"first": lambda output, target: output.numpy()[0, 0]})
        assert (There, There) in seen
        assert not any(isinstance(tensor, There) for tensor in result.stacked.values())
        assert type(next(result.models[0].parameters())) is nn.Parameter


def test_a_loss_with_weights_follows_to_the_device(monkeypatch):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    here = trained(loss=loss)
    with pretended_device(monkeypatch) as device:
        assert same(here, trained(device, loss=loss))


def test_a_run_on_a_device_goes_on_from_a_checkpoint_that_holds_cpu_tensors(monkeypatch, tmp_path):
    told = {"optimizer": torch.optim.Adam, "algorithm": afo.Ditto(), "participation": 0.6}
    with pretended_device(monkeypatch) as device:
        whole = trained(device, rounds=4, **told)
        trained(device, rounds=2, out=tmp_path / "run", **told)
        for path in (tmp_path / "run").glob("*.safetensors"):
            assert not any(isinstance(tensor, There) for tensor in checkpoint.read_tensors(path).values())
        resumed = trained(device, rounds=4, out=tmp_path / "run", resume=True, **told)
    assert same(whole, resumed)


def test_the_pretended_device_notices_where_devices_mix(monkeypatch):
    with pretended_device(monkeypatch) as device, pytest.raises(MixedError):
        torch.zeros(2, device=device) + torch.zeros(2)


def test_a_device_that_is_not_there_is_refused_in_one_line_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match=r"^device cuda is not there: this machine and its torch .* have .*cpu$"):
        trained("cuda", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=r"^device is 'gpu': give cuda, cuda:1, mps, cpu or auto$"):
        trained("gpu")


def test_auto_is_the_fastest_device_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match=r"cuda:2 is not there.*2 of cuda"):
        find_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")


def test_the_cpu_by_its_name_is_no_setting_of_its_own():
    assert "device" not in trained("cpu", rounds=1).config.plain()


def test_liars_and_clients_elsewhere_have_no_device(monkeypatch):
    from allforone.runs import Given, parse, prepare

    told = {"problem": "digits", "attack": "flip:1", "device": "meta"}
    with pretended_device(monkeypatch):
        with pytest.raises(InputError, match="liars are tried on the CPU"):
            prepare(parse(told), Given()).assemble()
        with pytest.raises(InputError, match="device is for clients in this process; those of fleet ray are not"):
            prepare(parse({**told, "attack": None, "fleet": "ray"}), Given()).check()
