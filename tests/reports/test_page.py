"""The page, in a real browser."""

import json

import polars
import pytest
from playwright.sync_api import expect
from sklearn.metrics import adjusted_rand_score
from torch.nn import functional

import allforone as afo
from allforone.reports import write_report
from allforone.reports.page import fill
from allforone.runs import Comparison, Folder

pytestmark = pytest.mark.slow

ORDER = "arrangement(current()).order"
PIXELS = """() => {
  const canvas = document.querySelector("#matrix canvas"), spot = canvas.getBoundingClientRect(), found = [];
  const pen = canvas.getContext("2d"), zoom = canvas.width / spot.width, n = clientCount();
  const centre = (r, c) => {  // of the cell, by asking where the pointer would have to be
    for (let y = 2; y < spot.height; y += 2) for (let x = 2; x < spot.width; x += 2) {
      const cell = canvas.cell({clientX: spot.left + x, clientY: spot.top + y});
      if (cell && cell[0] === r && cell[1] === c) return [x + 8, y + 8];
    }
  };
  for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) {
    const [x, y] = centre(r, c), [red, green, blue] = pen.getImageData(x * zoom, y * zoom, 1, 1).data;
    found.push(`rgb(${red} ${green} ${blue})`);
  }
  return found;
}"""


def expected_colours(page, weights, top):
    order = page.evaluate(ORDER)
    shares = [(float(weights[i, k]) / top) ** 0.5 for i in order for k in order]
    return page.evaluate("shares => shares.map(ramp)", shares)


def nearly(one, other):
    def numbers(colour):
        return [int(part) for part in colour[4:-1].split()]

    return all(
        abs(a - b) <= 2 for x, y in zip(one, other, strict=True) for a, b in zip(numbers(x), numbers(y), strict=True)
    )


def test_it_opens_without_error_or_network_and_shows_table_curves_and_costs(open_page, report):
    page = open_page(report.as_uri())
    assert page.troubles == []
    assert page.locator("#table tbody tr").count() == 5
    assert page.locator("#table td.best").count() == 2
    assert page.locator("#curves .curve").count() == 5
    assert page.locator("#curves .band").count() == 5
    page.select_option("#axis", "samples")
    page.select_option("#quantity", "loss")
    page.check("input[name=scale][value=log]")
    assert "test loss by gradient samples" in page.locator("#curves svg").get_attribute("aria-label")
    page.locator("#legend button").first.click()
    assert page.locator("#curves .curve").count() == 4
    assert page.locator("#costs tbody tr").count() == 5
    assert page.troubles == []


def test_the_browser_itself_forbids_the_page_any_connection(open_page, report):
    page = open_page(report.as_uri())
    blocked = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"
    assert any("Content Security Policy" in trouble for trouble in page.troubles)


def test_the_slider_moves_the_heat_map_through_the_rounds(open_page, report, comparison):
    page = open_page(report.as_uri())
    recorded = Folder.open(comparison / "runs" / "all-for-one" / "1").tables().dense()
    for at in range(5):
        page.locator("#slider").fill(str(at))
        page.evaluate("chosen.client = -1; showFrame(); chosen.client = 0")  # without the frame around a row
        assert nearly(page.evaluate(PIXELS), expected_colours(page, recorded[at], float(recorded.max())))
        assert page.locator("#round").inner_text() == f"round {at + 1} of 5"
    assert page.troubles == []


def test_play_walks_to_the_last_round_and_other_algorithms_and_seeds_can_be_chosen(open_page, report):
    page = open_page(report.as_uri())
    page.locator("#slider").fill("0")
    page.click("#play")
    expect(page.locator("#round")).to_have_text("round 5 of 5")
    page.select_option("#seed", "2")
    assert page.evaluate("current().seed") == 2
    page.select_option("#algorithm", "local")
    assert page.locator("#slider").is_disabled()
    alone = [float(i == k) for i in range(6) for k in range(6)]
    assert page.evaluate("Array.from(slice(current().weights, 0))") == alone
    assert "6 clusters" in page.locator("#agreement-title").inner_text()
    assert page.troubles == []


def test_clicking_a_client_shows_its_panel(open_page, report):
    page = open_page(report.as_uri())
    page.locator('#graph [data-client="3"]').click()
    assert page.locator("#client-title").inner_text() == "Client 3"
    assert page.locator("#client-curve .curve").count() == 3  # All-for-one, Local, FedAvg
    assert page.locator("#partners tbody tr").count() == 5
    box = page.locator("#matrix canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    last = page.evaluate(f"{ORDER}.at(-1)")
    assert page.locator("#client-title").inner_text() == f"Client {last}"
    page.locator('#partners tr[data-partner="0"]').click()
    assert page.locator("#why-title").inner_text().startswith("Why is client 0 ")
    assert "client 0" in page.locator("#why-text").inner_text().lower()
    assert page.troubles == []


def test_everything_can_be_reached_and_used_by_keyboard(open_page, report):
    page = open_page(report.as_uri())
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.parentElement.id"))
    assert {"quantity", "axis", "curves", "algorithm", "play", "slider", "matrix", "client-choice", "strip"} <= {*seen}
    page.focus("#slider")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator("#round").inner_text() == "round 2 of 5"
    page.focus("#matrix canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    cell = page.evaluate("document.querySelector('#matrix canvas').cursor")
    page.keyboard.press("Enter")
    assert page.evaluate("chosen.client") == page.evaluate(f"{ORDER}[{cell[0]}]")
    assert "listens to" in page.locator("#readout").inner_text()
    page.locator("#graph .node.chosen").focus()
    before = page.evaluate("chosen.client")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("chosen.client") != before
    page.focus("#curves svg")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tip").is_visible()
    assert page.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(open_page, report, scheme):
    page = open_page(report.as_uri(), viewport={"width": 390, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.troubles == []


def test_printed_it_is_light_and_has_no_controls(open_page, report):
    page = open_page(report.as_uri(), color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)" != dark
    assert not page.locator("#play").is_visible()
    assert page.evaluate("ramp(0)") == page.evaluate(
        "RAMPS.light[0].match(/\\w\\w/g).map(x => parseInt(x, 16)).join(' ').replace(/^/, 'rgb(') + ')'"
    )


def test_found_clusters_are_scored_as_scikit_learn_does(open_page, report):
    page = open_page(report.as_uri())
    for one, other in (
        ([0, 0, 1, 1, 2], [0, 1, 1, 1, 2]),
        ([0, 1, 0, 1], [0, 0, 1, 1]),
        ([0, 0, 0], [0, 1, 2]),
        ([0, 0, 1, 1], [1, 1, 0, 0]),
    ):
        score = page.evaluate("([a, b]) => adjustedRand(a, b)", [one, other])
        assert score == pytest.approx(adjusted_rand_score(one, other))


def test_gains_over_local_are_those_of_the_metrics_seed_by_seed(open_page, report, comparison):
    page = open_page(report.as_uri())
    shown = page.evaluate("gains('fedavg', data.quantities.find(q => q.name === 'accuracy'))")

    def final(name, seed):
        metrics = Folder.open(comparison / "runs" / name / str(seed)).metrics()
        return metrics.filter(polars.col("round") == 5).sort("client")["accuracy"].to_list()

    for line in shown:
        for entry in line["seeds"]:
            fedavg, local = (final(name, entry["seed"])[line["client"]] for name in ("fedavg", "local"))
            assert entry["gain"] == pytest.approx(fedavg - local, abs=1e-6)
    assert len(shown) == 6 and all(len(line["seeds"]) == 2 for line in shown)


def test_messages_of_a_run_from_python_count_its_inner_updates(open_page, tmp_path):
    result = afo.train(afo.digits(clients=3), algorithm=afo.Oracle(), rounds=2, inner=5)
    pairs = int((result.weights[0] != 0).sum()) - 3
    assert pairs > 0
    page = open_page(result.report(tmp_path / "report.html").as_uri())
    assert page.evaluate("data.costs.oracle.messages") == 2 * 5 * pairs * 2


def test_liars_are_named_and_their_own_models_not_judged(open_page, cli, tmp_path):
    options = ("-p", "clients=4", "--rounds", 2, "--seeds", "1,2", "--algorithms", "all-for-one,local")
    assert cli("compare", "digits", *options, "--attack", "flip:1", "--out", tmp_path / "out")[0] == 0
    page = open_page((tmp_path / "out" / "report.html").as_uri())
    (liar,) = page.evaluate("current().liars")
    page.evaluate("liar => choose(liar, null)", liar)
    assert "it lies" in page.locator("#client-lead").inner_text()
    page.evaluate("liar => choose((liar + 1) % 4, liar)", liar)
    assert "(lies)" in page.locator("#partners tr.chosen").inner_text()
    judged = page.evaluate("gains('all-for-one', quantity()).map(g => [g.client, g.seeds.map(s => s.seed)])")
    lying = page.evaluate("framesOf('all-for-one').map(f => [f.seed, f.liars])")
    for client, seeds in judged:
        assert seeds == [seed for seed, liars in lying if client not in liars]
    assert page.troubles == []


def test_a_run_from_python_and_one_client_alone_have_a_page_too(open_page, tmp_path):
    clients = afo.digits(clients=3).clients
    for members in (clients, clients[:1]):
        result = afo.train(afo.digits().model, members, loss=functional.cross_entropy, rounds=2)
        page = open_page(result.report(tmp_path / f"{len(members)}.html").as_uri())
        assert page.troubles == []
        assert page.locator("#table tbody tr").count() == 1


def test_twenty_clients_hundred_rounds_eight_algorithms_three_seeds_stay_below_eight_megabytes(invented_run, tmp_path):
    paper = dict.fromkeys(("all-for-one-binary", "all-for-one-continuous"), ("similarity",))
    others = dict.fromkeys(("oracle", "local", "fedavg", "cobo", "ifca"), ())
    runs = [
        invented_run(name, seed, clients=20, rounds=100, tables=tables)
        for name, tables in {"all-for-one": ("similarity", "bias", "noise", "trust"), **paper, **others}.items()
        for seed in (1, 2, 3)
    ]
    path = write_report(Comparison("large", runs, [c % 2 for c in range(20)]), tmp_path / "report.html")
    assert path.stat().st_size < 8e6
    data = path.read_text().split('id="data">')[1].split("</script>")[0]
    assert len(json.loads(data)["frames"]["all-for-one"]) == 3


def test_text_from_the_user_cannot_break_out_of_the_page(cli, tmp_path, open_page):
    name = "x<script>alert(1)<"
    (tmp_path / f"{name}.py").write_text("""
import torch, torch.nn.functional as F
import allforone as afo
data = (torch.randn(8, 3), torch.randn(8, 1))
clients = [afo.Client(data, data, name="<img src=x onerror=alert(1)>/*SCRIPTS*/") for _ in range(2)]
problem = afo.Problem(torch.nn.Linear(3, 1), F.mse_loss, clients=clients)
""")
    code, _, err = cli("run", f"{tmp_path / (name + '.py')}:problem", "--rounds", 1, "--out", tmp_path / "run")
    assert code == 0, err
    written = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)<" not in written and "<img" not in written
    page = open_page((tmp_path / "run" / "report.html").as_uri())
    assert page.locator("img").count() == 0
    assert page.troubles == []


def test_a_part_of_the_page_is_not_searched_for_further_places():
    assert fill("a/*ONE*/b/*TWO*/c/*other*/", {"ONE": "/*TWO*/", "TWO": "2"}) == "a/*TWO*/b2c/*other*/"


def test_what_the_guard_found_is_told_in_the_clients_panel(open_page, invented_run, tmp_path):
    run = invented_run("all-for-one", 1)
    guard = {"gain": -0.25, "gain_margin": 0.1, "alone": 1}
    run = run._replace(
        metrics=run.metrics.with_columns(
            **{name: polars.lit(value).cast(run.metrics[name].dtype) for name, value in guard.items()}
        )
    )
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())
    said = page.locator("#client-lead").inner_text()
    assert "raised its loss on new data by 29 % (95 %: −42 % to −16 % lower)" in said
    assert "so the guard gave it its local model" in said
