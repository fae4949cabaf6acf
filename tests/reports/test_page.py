"""The page, in a real browser."""

import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ALGORITHMS = "all-for-one-binary,all-for-one-continuous,oracle,local,fedavg"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]

needs_browser = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="no Chromium on this machine: `apt install chromium`")


@pytest.fixture
def report(cli, tmp_path):
    options = ("-p", "clients=4", "--rounds", 4, "--seeds", "1,2", "--algorithms", ALGORITHMS)
    code, _, err = cli("compare", "digits", *options, "--out", tmp_path / "out")
    assert code == 0, err
    return tmp_path / "out" / "report.html"


@pytest.fixture
def page(report):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.troubles = []
        page.on("console", lambda message: page.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("request", lambda request: page.troubles.append(request.url)
                if not request.url.startswith(("file:", "data:", "blob:")) else None)
        page.goto(report.as_uri())
        page.wait_for_selector("#matrix .main-svg")
        yield page
        browser.close()


def matrix(page):
    return page.evaluate("document.getElementById('matrix').data[0].z.map(row => row.map(v => v * v))")


@needs_browser
def test_it_opens_without_error_or_network_and_shows_table_and_curves(page):
    assert page.troubles == []
    assert page.locator("#table tbody tr").count() == 5
    assert page.locator("#table td.best").count() == 2
    assert page.locator("#curves .scatterlayer .trace").count() == 10  # five lines, five shades
    page.select_option("#axis", "samples")
    page.select_option("#quantity", "loss")
    assert "loss" in page.locator("#curves .ytitle").text_content()
    assert page.troubles == []


@needs_browser
def test_the_slider_moves_the_heat_map_through_the_rounds(page):
    frames = page.evaluate("data.weights['all-for-one-binary'].weights")
    order = page.evaluate("data.order")
    for at in range(len(frames)):
        page.locator("#slider").fill(str(at))
        shown = matrix(page)
        for i, row in enumerate(order):
            assert shown[i] == pytest.approx([frames[at][row][k] for k in order])
        assert page.locator("#round").inner_text() == f"{at + 1} of 4"
    assert page.troubles == []


@needs_browser
def test_play_walks_to_the_last_round_and_other_algorithms_can_be_chosen(page):
    page.click("#play")
    page.wait_for_function("document.getElementById('round').textContent === '4 of 4'")
    page.select_option("#algorithm", "local")
    assert page.locator("#slider").is_disabled()
    assert matrix(page) == [[float(i == k) for k in range(4)] for i in range(4)]
    assert page.troubles == []


@needs_browser
def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_text_from_the_user_cannot_break_out_of_the_page(cli, tmp_path):
    name = "x<script>alert(1)<"
    (tmp_path / f"{name}.py").write_text("""
import torch, torch.nn.functional as F
import allforone as afo
data = (torch.randn(8, 3), torch.randn(8, 1))
problem = afo.Problem([afo.Client(data, data)], torch.nn.Linear(3, 1), F.mse_loss)
""")
    code, _, err = cli("run", f"{tmp_path / (name + '.py')}:problem", "--rounds", 1, "--out", tmp_path / "run")
    assert code == 0, err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)<" not in page
