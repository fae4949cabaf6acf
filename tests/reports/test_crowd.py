"""Reports of very many clients: clusters in the place of pairs."""

from base64 import b64decode

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allforone.algorithms import Info
from allforone.reports import page_data, write_report
from allforone.reports.clusters import MOST_BLOCKS, Blocks, clusters_by_round, find_clusters, mean_weights
from allforone.reports.crowd import MOST_PARTNERS, crowd_frames
from allforone.reports.figures import draw_weights
from allforone.runs import Comparison
from allforone.runs.tables import CROWD, InMemory, Snapshot

TOLD = ("similarity", "bias", "noise", "trust")


def clustered(n, clusters, seed, noise=0.02):
    """Weights within clusters c, c, …, and a little of everything, or nothing, elsewhere."""
    random = torch.Generator().manual_seed(seed)
    label = torch.arange(n) % clusters
    near = torch.rand(n, n, generator=random).double()
    far = noise * torch.rand(n, n, generator=random).double()
    weights = torch.where(label[:, None] == label, near, far).fill_diagonal_(1)
    return weights / weights.sum(1, keepdim=True)


def snapshot(weights, present=None, number=1):
    everyone = torch.ones(len(weights), dtype=torch.bool)
    return Snapshot.of(number, Info(weights.double()), everyone if present is None else present)


def crowd(invented_run, n, rounds=3, clusters=8, partners=40, names=None):
    """A run whose clients listen to some of their own cluster."""
    tables, random = InMemory(), torch.Generator().manual_seed(3)
    own = torch.arange(n)
    for number in range(1, rounds + 1):
        others = (own[:, None] + clusters * torch.randint(1, n // clusters, (n, partners), generator=random)) % n
        pairs = torch.cat([own[:, None] * n + own[:, None], own[:, None] * n + others], 1).flatten().unique()
        of_each = torch.bincount(pairs // n, minlength=n)[pairs // n]
        values = {name: torch.rand(len(pairs), generator=random) for name in TOLD}
        shot = Snapshot(number, own % 50 != number, pairs.int(), {"weights": 1 / of_each, **values})
        tables.append(shot)
    run = invented_run("all-for-one", clients=n, rounds=rounds, change=lambda dense: dense["weights"].zero_())
    told = [{"name": names and f"{names}{i}", "size": 10, "cluster": i % clusters} for i in range(n)]
    return run._replace(tables=tables, clients=told)


def test_clusters_are_found_in_weights():
    def found(weights):
        return find_clusters(mean_weights([snapshot(torch.tensor(weights))])).tolist()

    assert found([[0.4 if i % 3 == k % 3 else 0.01 for k in range(9)] for i in range(9)]) == [i % 3 for i in range(9)]
    assert found([[1 / 6] * 6] * 6) == [0] * 6
    assert found([[float(i == k) for k in range(4)] for i in range(4)]) == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_page_shows_the_clusters_that_python_found(open_page, invented_run, tmp_path):
    run = invented_run("all-for-one", clients=6, rounds=3)
    page = open_page(write_report(Comparison("p", [run], None), tmp_path / "report.html").as_uri())
    shown = page.evaluate("partitions(data.frames['all-for-one'][0])")
    assert shown == clusters_by_round(run.tables, range(3)).tolist()


def test_clusters_of_a_crowd_are_found():
    found = find_clusters(mean_weights([snapshot(clustered(CROWD + 50, 5, 1))]))
    assert found.tolist() == [i % 5 for i in range(CROWD + 50)]


def test_the_mean_of_weights_is_over_rounds_in_which_both_were_there():
    weights = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    there, gone = torch.tensor([True, True]), torch.tensor([True, False])
    alone = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    mean = mean_weights([snapshot(weights, there), snapshot(alone, gone)]).toarray()
    assert mean.tolist() == [[0.75, 0.5], [0, 1]]


@given(st.integers(1, 2**32 - 1), st.integers(2, 12))
def test_all_weights_are_in_some_block(seed, n):
    random = torch.Generator().manual_seed(seed)
    present = torch.rand(n, generator=random) < 0.7
    weights = torch.rand(n, n, generator=random) * present[:, None] * present
    blocks = Blocks.of(torch.randint(4, (n,), generator=random).tolist())
    there = np.bincount(blocks.labels, present.numpy().astype(float))
    given_away = np.nansum(blocks.weights(snapshot(weights, present)) * there[:, None])
    assert given_away == pytest.approx(float(weights.double().sum()), rel=1e-5)
    assert sum(blocks.sizes) == n


def test_of_very_many_clusters_the_largest_are_shown_and_the_others_put_together():
    clusters = [0] * 5 + [7] * 3 + [*range(100, 300)]
    blocks = Blocks.of(clusters)
    assert blocks.rest and blocks.sizes == [5, 3, 200]
    assert len(Blocks.of([c // 2 for c in range(200)]).sizes) == MOST_BLOCKS
    assert not Blocks.of([*range(MOST_BLOCKS)]).rest


def test_of_each_client_the_strongest_partners_are_kept_itself_first(invented_run):
    run = crowd(invented_run, CROWD + 50, rounds=1, clusters=2, partners=45)
    shot = run.tables[0]
    shot.values["weights"] = torch.rand(len(shot.pairs), generator=torch.Generator().manual_seed(1))
    found = [np.arange(CROWD + 50) % 2]
    frames, slots = crowd_frames([shot], found, run.tables.names, None), 1 + MOST_PARTNERS
    assert frames["partners"]["shape"] == (1, CROWD + 50, slots) and "similarity" not in frames
    kept = np.frombuffer(b64decode(frames["partners"]["numbers"]), "<u2").reshape(-1, slots)
    for client in (0, 5, CROWD + 49):
        row = shot.of_client(client)
        others = row["partners"] != client
        strongest = row["partners"][others][row["weights"][others].argsort(descending=True)]
        expected = [client, *strongest.tolist()][:slots]
        assert kept[client].tolist() == expected + [65535] * (slots - len(expected))


def test_blocks_of_a_crowd_are_the_clusters_of_the_round_that_is_shown(invented_run):
    n = CROWD + 50
    run = crowd(invented_run, n, rounds=2, clusters=4)
    found = np.stack([np.arange(n) % 2, np.arange(n) % 4])
    blocks = crowd_frames(list(run.tables), found, run.tables.names, (np.arange(n) % 5).tolist())["blocks"]
    assert [len(block["sizes"]) for block in blocks["found"]] == [2, 4]
    assert [len(block["sizes"]) for block in blocks["truth"]] == [5, 5]
    for block, labels in zip(blocks["found"], found, strict=True):
        assert (np.frombuffer(b64decode(block["labels"]["numbers"]), "<u2") == labels).all()
        assert block["weights"]["shape"] == (len(block["sizes"]),) * 2


@pytest.mark.slow
def test_a_crowd_is_shown_by_clusters_and_every_client_can_be_found(open_page, invented_run, tmp_path):
    n = CROWD + 50
    run = crowd(invented_run, n, partners=20, names="site-")
    page = open_page(write_report(Comparison("p", [run], run_truth(run)), tmp_path / "report.html").as_uri())
    assert page.evaluate("document.querySelector('#matrix canvas').options.rows") == 8
    assert page.locator("#graph .node").count() == 8
    assert "8 clusters; adjusted Rand index 1.00" in page.locator("#agreement-title").inner_text()
    assert page.locator("#members button").count() == n // 8
    page.locator('#graph [data-client="3"]').click()
    assert page.locator("#members-title").inner_text() == "Cluster 3: 25 clients"
    page.locator('#members [data-member="11"]').click()
    assert page.locator("#client-title").inner_text() == "Site-11"
    for typed in ("SITE-42", "42"):
        page.fill("#client-search", typed)
        page.keyboard.press("Enter")
        assert page.locator("#client-title").inner_text() == "Site-42"
    page.fill("#client-search", "nobody")
    page.keyboard.press("Enter")
    assert page.locator("#client-title").inner_text() == "Site-42"
    assert page.locator("#client-search").get_attribute("aria-invalid") == "true"
    row = run.tables[-1].of_client(42)
    shown = page.evaluate("partnersAt(current(), 2, 42).map(k => [k, pairAt(current(), 'weights', 2, 42, k)])")
    assert dict(shown) == pytest.approx(
        {int(k): float(w) for k, w in zip(row["partners"], row["weights"], strict=True) if k != 42}, rel=1e-3
    )
    assert page.locator("#partners tbody tr").count() == len(shown)
    assert page.evaluate("why(current(), 2, 42, 43)[0]") == "not recorded"
    assert page.locator("#exchange text.strong").count() >= 2
    page.select_option("#order", "truth")
    page.locator("#slider").fill("0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000
    assert page.troubles == []


def run_truth(run):
    return [client["cluster"] for client in run.clients]


@pytest.mark.slow
def test_the_page_of_two_thousand_clients_stays_below_fifteen_megabytes_and_opens(open_page, invented_run, tmp_path):
    run = crowd(invented_run, 2000, rounds=20, partners=63)
    local, here = InMemory(), torch.ones(2000, dtype=torch.bool)
    local.append(Snapshot.of(1, Info(torch.eye(2000, dtype=torch.float64)), here))
    config = {**run.config, "algorithm": {"name": "local"}}
    alone = run._replace(algorithm="local", config=config, tables=local)
    path = write_report(Comparison("p", [run, alone], run_truth(run)), tmp_path / "report.html")
    assert path.stat().st_size < 15e6
    page = open_page(path.as_uri())
    page.evaluate("choose(1999, null)")
    assert page.locator("#client-title").inner_text() == "Client 1999"
    assert page.evaluate("partnersEver(current(), 1999).includes(chosen.partner)")
    page.evaluate("showMembers(current(), 5)")
    page.select_option("#algorithm", "local")
    assert page.locator("#members-title").inner_text() == "The smaller clusters: 2\u202f000 clients"
    assert page.troubles == []


@pytest.mark.slow
def test_figures_of_a_crowd_have_cells_for_clusters(invented_run, tmp_path):
    run = crowd(invented_run, CROWD + 50)
    paths = draw_weights(Comparison("p", [run], None), tmp_path)
    assert [path.name for path in paths] == ["weights.png", "weights.pdf"]


def test_of_very_many_clients_fewer_rounds_of_their_own_curves_are_told(invented_run, monkeypatch):
    runs = [invented_run("local", clients=10, rounds=20)]
    assert page_data.page_data(Comparison("p", runs, None))["progress"]["local"]["told"] == list(range(21))
    monkeypatch.setattr(page_data, "MOST_CURVE_BYTES", 1500)
    progress = page_data.page_data(Comparison("p", runs, None))["progress"]["local"]
    assert progress["told"] == [0, 4, 8, 12, 16, 20]
    assert progress["of"]["loss"]["each"]["mean"]["shape"] == (6, 10)
    assert len(progress["round"]) == 21
