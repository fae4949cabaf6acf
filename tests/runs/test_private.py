"""Private parameters as an option: of training, comparing, files and commands; resumed, counted, told and refused."""

import json
from pathlib import Path

import pytest
import torch
import yaml

import allforone as afo
from allforone.errors import InputError
from allforone.reports import comparison_table
from allforone.runs import parse, prepare, read_comparison, resume
from allforone.runs.run import execute
from allforone.testing import small_problem, with_batch_norm

DIGITS = {"problem": {"name": "digits", "clients": 4}, "rounds": 4, "inner": 2}


def same(these, those):
    return all(torch.equal(these[name], tensor) for name, tensor in those.items())


def stop_after(number):
    def stop(record):
        if record.number == number:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    "told",
    [
        {"algorithm": "all-for-one", "private": ["2.*"], "optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9}},
        {"algorithm": "all-for-one-round", "private": ["2"], "optimizer": {"name": "Adam", "lr": 0.01}},
        {"algorithm": "fedavg", "private": ["2.*"], "alternate": 3, "scheduler": {"name": "StepLR", "step_size": 1}},
        {"algorithm": "ditto", "private": ["0.bias"], "participation": 0.6, "guard": True},
    ],
)
def test_a_resumed_run_is_that_of_a_run_never_interrupted_bit_for_bit(tmp_path, told):
    run = prepare(parse({**DIGITS, **told}))
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "run", on_round=stop_after(2))
    whole = execute(run)
    assert same(resume(tmp_path / "run").stacked, whole.stacked)


def test_another_private_part_is_another_run(tmp_path):
    told = {"algorithm": afo.FedAvg(), "rounds": 1, "out": tmp_path / "run"}
    afo.train(small_problem(), private="2.*", **told)
    for other in ({}, {"private": "0.*"}, {"private": "2.*", "alternate": 2}):
        with pytest.raises(InputError, match=r"another (private|alternate)"):
            afo.train(small_problem(), resume=True, **told, **other)


@pytest.mark.parametrize("algorithm", [afo.FedAvg(), afo.AllForOne(), afo.Ditto()])
def test_messages_stay_and_bytes_count_what_is_shared_alone(algorithm):
    model = with_batch_norm()
    size = {name: tensor.numel() * tensor.element_size() for name, tensor in model.state_dict().items()}
    trained = {name for name, _ in model.named_parameters()}
    sent = {}
    for private in ([], ["3.*"], ["batchnorm"]):
        result = afo.train(small_problem(lambda: model), algorithm=algorithm, private=private, rounds=1, inner=2)
        last = result.metrics.filter(result.metrics["round"] == 1)
        sent[tuple(private)] = last["messages"][0], last["bytes"][0]
    if not isinstance(algorithm, afo.AllForOne):  # whose partners depend on what is shared
        whole = sum(size.values())
        head = size["3.weight"] + size["3.bias"]
        norm = sum(amount for name, amount in size.items() if name.startswith("1."))
        messages = sent[()][0]
        assert sent == {
            (): (messages, messages * whole),
            ("3.*",): (messages, messages * (whole - head)),
            ("batchnorm",): (messages, messages * (whole - norm)),
        }
    else:
        gradient = sum(size[name] for name in trained if not name.startswith("3."))
        messages, bytes = sent[("3.*",)]
        assert messages * gradient <= bytes <= messages * (sum(size.values()) - size["3.weight"] - size["3.bias"])


def test_the_option_stands_in_files_with_the_name_of_an_algorithm_and_by_itself(tmp_path):
    ways = [
        {"algorithm": {"name": "fedavg", "private": "2.*", "alternate": 3}},
        {"algorithm": "fedavg", "private": "2.*", "alternate": 3},
        {"algorithm": {"name": "fedavg"}, "private": ["2.*"], "alternate": 3},
    ]
    configs = [parse({**DIGITS, **way}) for way in ways]
    assert configs[0] == configs[1] == configs[2]
    assert configs[0].private == ["2.*"] and configs[0].algorithm.options == {}
    execute(prepare(configs[0]), tmp_path / "run")
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert written["private"] == ["2.*"] and written["alternate"] == 3
    assert "private" not in prepare(parse({**DIGITS, "private": ""})).config.plain()
    for wrong in (3, [3], {"a": 1}, ["a", None]):
        with pytest.raises(InputError, match="private"):
            parse({**DIGITS, "private": wrong})


def test_run_has_the_option_and_tells_what_stayed_private(cli, tmp_path):
    told = ["--algorithm", "fedavg", "--private", "2.*", "--private", "0.bias", "--rounds", "1", "-p", "clients=4"]
    code, said, _ = cli("run", "digits", *told, "--out", tmp_path / "run")
    assert code == 0 and "Private, so never sent: 2.*, 0.bias." in " ".join(said.split())
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["private"] == ["2.*", "0.bias"]


def test_compare_has_it_for_all_or_for_one(cli, tmp_path):
    short = ["--rounds", "1", "--seeds", "1", "-p", "clients=4", "--workers", "1"]
    algorithms = "fedavg,fedavg:private=2.*,fedavg:private=2.*:alternate=2"
    assert cli("compare", "digits", "--algorithms", algorithms, *short, "--out", tmp_path / "one")[0] == 0
    comparison = read_comparison(tmp_path / "one")
    found = {run.algorithm: (run.config.get("private"), run.config.get("alternate")) for run in comparison.runs}
    assert found == dict(zip(algorithms.split(","), [(None, None), (["2.*"], None), (["2.*"], 2)], strict=True))
    assert "Private" not in comparison_table(comparison).caption
    told = ["--private", "2.*", "--alternate", "2"]
    assert cli("compare", "digits", "--algorithms", "local,ditto", *told, *short, "--out", tmp_path / "all")[0] == 0
    assert {tuple(run.config["private"]) for run in read_comparison(tmp_path / "all").runs} == {("2.*",)}
    assert json.loads((tmp_path / "all" / "summary.json").read_text())["algorithms"].keys() == {"local", "ditto"}


def test_compare_in_python_has_it_for_all_or_for_one():
    subject = small_problem()
    found = afo.compare(subject, ["fedavg", "fedavg:private=2.*"], seeds=[31], rounds=2)
    alone = afo.compare(subject, [afo.FedAvg()], seeds=[31], rounds=2, private=["2.*"])
    ours, plain, all_of_it = (
        found.results["fedavg:private=2.*", 31],
        found.results["fedavg", 31],
        alone.results["fedavg", 31],
    )
    assert same(ours.stacked, all_of_it.stacked) and not same(ours.stacked, plain.stacked)
    assert not torch.equal(ours.stacked["2.weight"][0], ours.stacked["2.weight"][1])
    assert torch.equal(ours.stacked["0.weight"][0], ours.stacked["0.weight"][1])


def test_what_does_not_go_together_with_it_is_refused_in_one_line(cli):
    subject, told = small_problem(), {"rounds": 1, "private": "2.*"}
    for more, said in (
        ({"private": "head.*"}, r"nothing in the model is called 'head\.\*'; it has 0\.weight, 0\.bias, 2\.weight"),
        ({"private": None, "alternate": 3}, "alternate: it is for private parameters"),
        ({"alternate": 0}, "alternate: expected"),
    ):
        with pytest.raises(InputError, match=said):
            afo.train(subject, **{**told, **more})
    with pytest.raises(InputError, match="leave attack out"):
        prepare(parse({**DIGITS, "private": "2.*", "attack": "flip:1"}))
    with pytest.raises(InputError, match="join: a newcomer starts from another's model"):
        afo.train(subject, **told).join(subject.clients[0])
    code, _, said = cli("run", "digits", "--private", "head.*", "--rounds", "1")
    assert code == 2 and "head.*" in said and "2.weight" in said and len(said.strip().splitlines()) == 1
    assert not Path("out/digits-all-for-one-127").exists()


def test_on_machines_it_is_refused_since_models_are_at_the_server():
    from allforone.machines.flare.submit import settings_of_run

    with pytest.raises(InputError, match="private: models are at the server"):
        settings_of_run(parse({**DIGITS, "private": "2.*"}), "run", None, {})  # refused before anything else is read


def test_one_goes_on_from_models_with_their_private_parts():
    subject = small_problem()
    told = {"algorithm": afo.FedAvg(), "private": "2.*", "lr": 0.1}
    first = afo.train(subject, rounds=2, **told)
    more = afo.train(models=first, rounds=2)
    assert more.config.private == ["2.*"]
    whole = afo.train(subject, rounds=4, **told)
    assert same(more.stacked, whole.stacked)


def test_an_optimizer_from_python_groups_the_parameters_of_the_whole_model():
    def grouped(parameters):
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.0}, {"params": others}], lr=0.1)

    told = {"algorithm": afo.FedAvg(), "optimizer": grouped, "rounds": 2}
    result = afo.train(small_problem(), private="2.*", **told)
    begun = small_problem().initial_model(result.config.seed).state_dict()
    moved = {name: not torch.equal(tensor[0], begun[name]) for name, tensor in result.stacked.items()}
    assert moved == {"0.weight": False, "0.bias": True, "2.weight": True, "2.bias": True}


@pytest.mark.parametrize("fleet", [pytest.param("compiled", marks=pytest.mark.slow), "loop"])
def test_a_private_head_is_trained_on_every_fleet_of_this_process_alike(fleet):
    plain = afo.train(small_problem(), private="2.*", rounds=2, inner=2)
    found = afo.train(small_problem(), private="2.*", rounds=2, inner=2, fleet=fleet)
    for name, tensor in plain.stacked.items():
        torch.testing.assert_close(found.stacked[name], tensor, rtol=1e-4, atol=1e-6)
