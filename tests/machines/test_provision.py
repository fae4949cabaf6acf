"""Kits, read as FLARE and a careful person would."""

import json
import ssl

import pytest

pytest.importorskip("nvflare", reason="needs the extra allforone[flare]")

from allforone.errors import InputError
from allforone.machines.flare import policies
from allforone.machines.flare.provision import Federation, Kit, provision, read_federation

ROLES = ("project_admin", "org_admin", "lead", "member")


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    out = tmp_path_factory.mktemp("provisioned") / "kits"
    provision(Federation(name="heart", port=18002, sites=["geneva", "basel"]), out)
    return out


def policy(kit, name):
    return json.loads((kit / "local" / name).read_text())


def test_everybody_has_a_kit_and_nothing_else_is_left(kits):
    assert sorted(path.name for path in kits.iterdir()) == ["basel", "coordinator", "geneva", "server"]
    assert Kit.open(kits / "geneva", "site").federation.sites == ["geneva", "basel"]


@pytest.mark.parametrize("party", ["server", "geneva", "basel"])
@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_bring_code_or_run_shell_commands(kits, party, role):
    rights = policy(kits / party, "authorization.json")["permissions"][role]
    assert rights["byoc"] == rights["shell_commands"] == "none"


@pytest.mark.parametrize("role", ROLES)
def test_nobody_may_operate_a_site_or_download_from_it(kits, role):
    rights = policy(kits / "geneva", "authorization.json")["permissions"][role]
    assert rights["operate"] == rights["download_job"] == "none"


def test_a_site_allows_our_one_class_and_sends_no_logs(kits):
    resources = policy(kits / "geneva", "resources.json")
    assert resources["class_allow_list"] == ["allforone.machines.flare.relay.Relay"]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert not any("log" in part["path"].lower() for part in resources["components"])


def test_the_server_allows_our_one_class_and_takes_no_logs():
    resources = policies.server_resources("/somewhere")
    assert resources["class_allow_list"] == ["allforone.machines.flare.controller.Coordinator"]
    assert not any("log_" in part["path"].lower() for part in resources["components"])


def test_the_classes_on_the_lists_exist():
    from importlib import import_module

    for path in (policies.EXECUTOR, policies.CONTROLLER):
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(import_module(module), name), type)


def test_both_sides_must_show_a_certificate_of_this_federation(kits):
    client = json.loads((kits / "geneva" / "startup" / "fed_client.json").read_text())
    server = json.loads((kits / "server" / "startup" / "fed_server.json").read_text())
    assert client["client"]["connection_security"] == "mtls"
    assert server["servers"][0]["connection_security"] == "mtls"
    context = ssl.create_default_context(cafile=str(kits / "geneva" / "startup" / "rootCA.pem"))
    context.load_cert_chain(kits / "geneva" / "startup" / "client.crt", kits / "geneva" / "startup" / "client.key")


def test_no_kit_holds_the_key_that_signed_them(kits):
    keys = sorted(str(path.relative_to(kits)) for path in kits.rglob("*.key"))
    assert keys == [
        "basel/startup/client.key",
        "coordinator/startup/client.key",
        "geneva/startup/client.key",
        "server/keeper/startup/client.key",
        "server/startup/server.key",
    ]
    assert not list(kits.rglob("cert.json"))


def test_nobody_else_can_read_a_kit(kits):
    assert {path.stat().st_mode & 0o777 for path in kits.iterdir()} == {0o700}


def test_a_kit_is_for_one_command(kits):
    with pytest.raises(InputError, match=r"kit of the server .* it is for `allforone serve`"):
        Kit.open(kits / "server", "site")
    with pytest.raises(InputError, match="no kit there"):
        Kit.open(kits, "site")


def test_kits_are_not_overwritten(kits):
    with pytest.raises(InputError, match="nothing was overwritten"):
        provision(Federation(name="heart", sites=["geneva"]), kits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: heart\n", "'sites' is missing"),
        ("name: heart\nsites: []\n", "sites"),
        ("name: heart\nsites: [a, A]\n", "'A' is there twice"),
        ("name: heart\nsites: [server]\n", "'server' is there twice, or is the name of another party"),
        ("name: heart\nsites: ['a b']\n", "'a b' has others"),
        pytest.param(f"name: heart\nsites: [{'a' * 5000}]\n", "at most 40 letters", id="a name of 5000 letters"),
        pytest.param(f"name: heart\nsites: {[*map(str, range(10_001))]}\n", "at most 10000 items", id="10001 sites"),
        ("name: heart\nsites: [a]\nport: 99999\n", "port"),
        ("name: heart\nsites: [a]\nprot: 8002\n", "unknown key 'prot'; did you mean 'port'"),
        ("name: 'he/art'\nsites: [a]\n", "name"),
        ("- a\n", "expected keys and values"),
        (": :\n", "not YAML"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_says_why(tmp_path, text, said):
    path = tmp_path / "federation.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_federation(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_the_command_says_whose_kit_is_whose(tmp_path, cli):
    (tmp_path / "federation.yaml").write_text("name: heart\nport: 18002\nsites: [geneva]\n")
    code, out, _ = cli("provision", tmp_path / "federation.yaml", "--out", tmp_path / "kits")
    assert code == 0
    assert "allforone join" in out and "allforone serve" in out and "flare:kit=" in out


@pytest.mark.parametrize("command", ["join", "serve"])
def test_without_flare_a_command_says_what_to_install(kits, cli, monkeypatch, command):
    from allforone.machines.flare import provision as provision_module

    monkeypatch.setattr(provision_module, "find_spec", lambda name: None)
    options = ("--task", "task.py:task", *(("--client", "my_site.py:client") if command == "join" else ()))
    code, _, err = cli(command, kits / "geneva", *options)
    assert code == 2 and "pip install 'allforone[flare]'" in err


def test_join_checks_the_data_and_says_what_leaves_without_connecting(kits, cli, tmp_path, monkeypatch):
    from pathlib import Path

    example = Path(__file__).parent.parent.parent / "examples" / "federation"
    monkeypatch.chdir(tmp_path)
    for name in ("my_site.py", "task.py"):
        (tmp_path / name).write_text((example / name).read_text())
    patients = [",".join(["0.5"] * 13 + [str(number % 2)]) for number in range(9)]
    (tmp_path / "patients.csv").write_text("\n".join(patients))
    arguments = ("join", kits / "geneva", "--client", "my_site.py:client", "--task", "task.py:task", "--check")
    code, out, _ = cli(*arguments)
    assert code == 0 and "6 samples to train on" in out and "gradients or displacements" in out and "audit.jsonl" in out
    (tmp_path / "patients.csv").write_text("\n".join([*patients, ",".join(["nan"] * 14)]))
    code, _, err = cli(*arguments)
    assert code == 2 and len(err.splitlines()) == 1
