"""`allforone theory`, as the shell runs it."""

import pytest


@pytest.mark.slow
def test_figure_one_is_drawn_and_shows_both_readings(cli, tmp_path):
    code, out, err = cli(
        "theory", "sufficient-clusters", "--clients", 5, "--spreads", "0.1,1", "--out", tmp_path / "one.png"
    )
    assert code == 0, err
    assert "corrected: everybody" in out and "as printed" in out
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.pdf").read_bytes()[:4] == b"%PDF"


@pytest.mark.slow
def test_a_run_is_drawn_next_to_its_bound(cli, tmp_path):
    run = tmp_path / "run"
    assert cli("run", "synthetic", "-p", "noise=1", "-p", "clients=4", "--rounds", 6, "--out", run)[0] == 0
    code, out, err = cli("theory", "bound", run)
    assert code == 0, err
    assert "theorem 1" in out and "measured" in out
    assert (run / "bound.png").exists() and (run / "bound.pdf").exists()


def test_a_plan_of_known_constants_says_they_are_exact(cli):
    code, out, err = cli("theory", "plan", "synthetic", "-p", "clients=4", "-p", "noise=1", "--epsilon", "1,0.1")
    assert code == 0, err
    assert "They are exact" in out and "estimates" not in out
    assert "To reach an excess loss of 0.1" in out
    assert "2: any" in out  # the same optimum and the same matrices


@pytest.mark.slow
def test_a_plan_of_estimated_constants_says_so(cli):
    code, out, err = cli(
        "theory",
        "plan",
        "digits",
        "-p",
        "clients=3",
        "--rounds",
        3,
        "--points",
        4,
        "--epsilon",
        "1",
        "--criterion",
        "binary:0.2",
    )
    assert code == 0, err
    assert "These are estimates" in out and "what was not seen may be worse" in out
    assert "--schedule horizon:smoothness=" in out
    assert "partners seen on its path" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bound", "nowhere"], "no run there"),
        (["plan", "digitz"], "did you mean 'digits'?"),
        (["plan", "synthetic", "--epsilon", "none"], "give numbers above 0"),
        (["plan", "synthetic", "--epsilon", "-1"], "give numbers above 0"),
        (["plan", "synthetic", "--criterion", "ternary"], "give continuous, binary or binary:0.2"),
        (["plan", "synthetic", "--criterion", "binary:x"], "λ must be a number"),
        (["sufficient-clusters", "--spreads", "a"], "give numbers above 0"),
    ],
)
def test_a_mistake_gets_one_line(cli, arguments, said):
    code, _, err = cli("theory", *arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_run_without_known_constants_is_refused_with_what_to_do(cli, tmp_path):
    run = tmp_path / "run"
    assert cli("run", "digits", "-p", "clients=2", "--rounds", 1, "--out", run)[0] == 0
    code, _, err = cli("theory", "bound", run)
    assert code == 2
    assert "constants of digits are not known" in err and "allforone theory plan" in err
