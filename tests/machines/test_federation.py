"""One server and four sites as real processes with mutual TLS: what they compute, and what befalls them."""

import json
import shutil
import time

import polars
import pytest

pytest.importorskip("nvflare", reason="needs the extra allforone[flare]")

from allforone.machines.flare import policies
from allforone.machines.flare.link import Link, write_job
from allforone.machines.flare.provision import Federation as Parties
from allforone.machines.flare.provision import Kit, provision
from allforone.runs import Given, execute, parse, prepare

from .federation import PATIENCE, SITES, Federation, end

pytestmark = [pytest.mark.machines, pytest.mark.slow, pytest.mark.xdist_group("machines")]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        yield made.together()
    finally:
        made.end()


@pytest.fixture(autouse=True)
def _moods_end_with_the_test(request):
    yield
    if "federation" in request.fixturenames:
        for mood in request.getfixturevalue("federation").work.glob("*.mood"):
            mood.unlink()


def metrics(folder):
    return polars.read_csv(folder / "metrics.csv").drop("seconds")


def in_this_process(federation, name, algorithm, **more):
    """The same run with the plain loop, and with the table of who was present in the other."""
    seen = metrics(federation.work / "out" / name)
    inner = 3
    table = {
        (number - 1) * inner: rounds.sort("client")["present"].cast(bool).to_list()
        for (number,), rounds in seen.group_by("round")
    }
    problem = f"{federation.work / 'data.py'}:problem"
    config = parse({"problem": problem, "algorithm": algorithm, "fleet": "loop", **more})
    out = federation.work / "out" / f"{name}-in-process"
    execute(prepare(config, Given(participation=lambda step: table[step])), out)
    return out


def check_equal(federation, name, algorithm, **more):
    here, there = in_this_process(federation, name, algorithm, **more), federation.work / "out" / name
    assert (here / "models.safetensors").read_bytes() == (there / "models.safetensors").read_bytes()
    assert (here / "weights.rounds").read_bytes() == (there / "weights.rounds").read_bytes()
    ours, theirs = (table.drop("refused").sort("round", "client") for table in (metrics(here), metrics(there)))
    met = (ours["round"] > 0) | (theirs["present"] == 1)  # in one process everybody is there before the first round
    assert ours.filter(met).equals(theirs.filter(met))


def presence(folder, site):
    """Whether a site was there, round by round."""
    rows = metrics(folder).filter(polars.col("client") == SITES.index(site)).sort("round")
    return rows["present"].cast(bool).to_list()[1:]


@pytest.mark.parametrize("algorithm", ["all-for-one", "all-for-one-round"])
def test_a_run_on_machines_equals_one_in_a_process_bit_for_bit(federation, algorithm):
    done = federation.command(*federation.run(algorithm, f"--algorithm={algorithm}"))
    assert done.returncode == 0, done.stdout
    assert all(all(presence(federation.work / "out" / algorithm, site)) for site in SITES)
    check_equal(federation, algorithm, algorithm)


def test_sites_whose_code_dies_and_whose_machine_dies_are_absent_and_come_back(federation):
    name, rounds = "killed", 200
    slow_down(federation, "geneva")
    run = federation.begin(*federation.run(name, "--least-sites=2", f"--rounds={rounds}"))
    try:
        federation.until(lambda: federation.round_of(name) >= 3, of="third round")
        federation.process_of("basel", "flare.child").kill()
        federation.process_of("bern", "client_train").kill()  # `join` starts it again
        for site in ("basel", "bern"):
            federation.until(lambda site=site: not federation.is_there(name, site), of=f"round without {site}")
        for site in ("basel", "bern"):
            federation.until(lambda site=site: federation.is_there(name, site), of=f"round with {site} again")
        (federation.work / "geneva.mood").unlink()
        out, _ = run.communicate(timeout=PATIENCE)
    finally:
        end(run)
    assert run.returncode == 0, out
    folder = federation.work / "out" / name
    for site in ("basel", "bern"):
        assert not all(presence(folder, site)) and presence(folder, site)[-1], f"{site} was absent, and is back"
    assert all(presence(folder, "geneva"))
    check_equal(federation, name, "all-for-one", rounds=rounds)


def test_a_slow_site_is_left_out_until_it_is_fast_again(federation):
    name, rounds = "slow", 200
    slow_down(federation, "geneva")
    (federation.work / "zurich.mood").write_text("slow")  # also while it says who it is, before the first round
    run = federation.begin(*federation.run(name, "--least-sites=2", "deadline=10", f"--rounds={rounds}"))
    try:
        federation.until(lambda: federation.round_of(name) >= 2, of="second round")
        (federation.work / "zurich.mood").unlink()
        federation.until(lambda: federation.is_there(name, "zurich"), of="round with zurich")
        (federation.work / "geneva.mood").unlink()
        out, _ = run.communicate(timeout=PATIENCE)
    finally:
        end(run)
    assert run.returncode == 0, out
    there = presence(federation.work / "out" / name, "zurich")
    assert not there[0] and there[-1]
    check_equal(federation, name, "all-for-one", rounds=rounds)


def slow_down(federation, site):
    """A second and a half for each round, or a run would be over before anything can befall it."""
    (federation.work / f"{site}.mood").write_text("steady")


def test_a_lying_site_is_named_and_refused(federation):
    (federation.work / "basel.mood").write_text("lying")
    done = federation.command(*federation.run("lied"))
    assert done.returncode == 0, done.stdout
    assert "site basel sent what is no gradient" in done.stdout
    refused = metrics(federation.work / "out" / "lied").filter(polars.col("round") == 6).sort("client")["refused"]
    assert refused.to_list()[1] > 0 and sum(refused.to_list()) == refused.to_list()[1]


def test_a_server_that_is_killed_goes_on_and_resume_brings_the_result_home(federation):
    name, rounds = "server-killed", 60
    slow_down(federation, "geneva")
    run = federation.begin(*federation.run(name, f"--rounds={rounds}"))
    try:
        federation.until(lambda: federation.round_of(name) >= 3, of="third round")
    finally:
        end(run)  # nobody follows it any more
    federation.kill("server")
    time.sleep(2)
    at = federation.round_of(name)
    assert 3 <= at < rounds
    (federation.work / "geneva.mood").unlink()
    federation.start("server")
    done = federation.command("resume", f"out/{name}")
    assert done.returncode == 0, done.stdout
    check_equal(federation, name, "all-for-one", rounds=rounds)


def link(federation):
    kit = Kit.open(federation.kits / "coordinator", "coordinator")
    return Link(kit.path, kit.name)


def submitted(federation, folder):
    """What becomes of a job that is made by hand."""
    with link(federation) as line:
        try:
            job = line._call(lambda session: session.submit_job(str(folder)))
        except Exception as error:
            return str(error)
        federation.until(lambda: line._call(lambda s: s.get_job_meta(job))["status"].startswith("FINISHED"), of="end")
        return json.dumps(line._call(lambda session: session.get_job_meta(job)))


def settings_for_a_job():
    return {"run": "foreign", "config": {"seed": 1}, "sites": SITES, "least_sites": 4, "deadline": 5, "token": "mine"}


def test_a_job_with_code_of_its_own_is_refused(federation, tmp_path):
    folder = write_job(tmp_path, "foreign-code", settings_for_a_job(), len(SITES))
    (folder / "app" / "custom").mkdir()
    (folder / "app" / "custom" / "mine.py").write_text("print('I am in')")
    told = submitted(federation, folder)
    assert "BYOC" in told
    assert not (federation.runs / "foreign.json").exists()


def test_a_job_that_names_a_class_off_the_list_is_refused(federation, tmp_path):
    folder = write_job(tmp_path, "foreign-class", settings_for_a_job(), len(SITES))
    config = folder / "app" / "config" / "config_fed_client.json"
    theirs = "nvflare.app_common.np.np_trainer.NPTrainer"
    config.write_text(config.read_text().replace(policies.EXECUTOR, theirs))
    told = submitted(federation, folder)
    assert "FINISHED:COMPLETED" not in told and "FINISHED" in told
    logs = "".join((federation.kits / site / "flare.log").read_text(errors="replace") for site in SITES)
    assert f"{theirs}' at config path" in logs and "is not in allow_list" in logs


def test_a_site_with_a_certificate_of_another_federation_is_refused(federation, tmp_path):
    port = Kit.open(federation.kits / "geneva", "site").federation.port
    provision(Parties(name="heart", port=port, sites=SITES), tmp_path / "forged")
    forged = Federation.__new__(Federation)
    forged.work, forged.kits, forged.processes = federation.work, federation.kits, {}
    shutil.copytree(tmp_path / "forged" / "geneva", federation.kits / "forged")
    (federation.work / "forged.py").write_text((federation.work / "geneva.py").read_text())
    forged.start("forged")
    try:
        log = federation.kits / "forged" / "flare.log"
        forged.until(lambda: log.exists() and "SSL_ERROR" in log.read_text(errors="replace").upper(), of="refusal")
        assert "connected" not in forged.said("forged").replace("not connected", "")
    finally:
        forged.end()
