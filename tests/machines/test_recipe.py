"""The example of a federation, and its containers: what they mount and start is what the commands take."""

import inspect
import re
from pathlib import Path

import pytest
import yaml

from allforone.cli import machines
from allforone.cli.run import run
from allforone.machines.flare.own import load_checked, of_site
from allforone.machines.flare.provision import read_federation

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "federation"
COMPOSED = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
SITES = read_federation(EXAMPLE / "federation.yaml").sites


def test_there_is_a_container_for_the_server_for_each_site_and_for_who_starts_a_run():
    assert sorted(COMPOSED) == sorted(["server", *SITES, "coordinator"])
    assert [party for party, service in COMPOSED.items() if "profiles" in service] == ["coordinator"]


@pytest.mark.parametrize("party", COMPOSED)
def test_a_container_starts_a_command_with_the_options_that_it_has(party):
    command, *arguments = COMPOSED[party]["command"]
    assert command == {"server": "serve", "coordinator": "run"}.get(party, "join")
    takes = inspect.signature(run if command == "run" else getattr(machines, command)).parameters
    given = {argument.removeprefix("--") for argument in arguments if argument.startswith("--")}
    needed = {name for name, taken in takes.items() if taken.default is taken.empty} - {"kit", "problem"}
    assert needed <= given <= set(takes)


@pytest.mark.parametrize("party", COMPOSED)
def test_a_container_is_given_its_own_kit_and_every_file_that_its_command_names(party):
    mounted = dict(volume.split(":")[:2] for volume in COMPOSED[party]["volumes"])
    assert [source for source in mounted if source.startswith("./kits/")] == [f"./kits/{party}"]
    inside = {Path(target).name for target in mounted.values()}
    named = {argument.split(":")[0] for argument in COMPOSED[party]["command"] if ".py:" in argument}
    assert named | {"kit"} <= inside
    assert ("patients.csv" in inside) == (party in SITES)


def test_no_container_publishes_a_port_or_runs_as_root():
    assert not any("ports" in service for service in COMPOSED.values())
    lines = (EXAMPLE / "Dockerfile").read_text().splitlines()
    assert lines.index("USER party") < next(n for n, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    assert re.search(r"allforone\[flare\]", "\n".join(lines))


def test_the_sites_example_loads_patients_from_the_file_beside_it(tmp_path):
    for name in ("my_site.py", "task.py"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())
    (tmp_path / "patients.csv").write_text("\n".join(",".join(["0.5"] * 13 + [str(n % 2)]) for n in range(9)))
    own = of_site(tmp_path, f"{tmp_path}/task.py:task", f"{tmp_path}/my_site.py:client", None)
    task, client = load_checked(own)
    assert client.size == 6 and len(client.test) == 3 and task.name == "heart disease"
