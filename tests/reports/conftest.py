"""A real browser, and a comparison to look at with it."""

import os
import shutil

import polars
import pytest
import torch
from playwright.sync_api import sync_playwright

from allforone.problems.metrics import RESERVED
from allforone.reports import write_report
from allforone.runs import FinishedRun, compare, plan, read_comparison
from allforone.runs.history import schema

from ..recorded import recorded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
ALGORITHMS = ["all-for-one", "all-for-one-binary", "oracle", "local", "fedavg"]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine: `apt install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens an address; `page.troubles` lists errors of the console, and requests beyond `allowed`."""
    opened = []

    def opening(address, allowed=("file:", "data:", "blob:"), **options):
        page = browser.new_page(**{"viewport": {"width": 1000, "height": 900}, **options})
        opened.append(page)
        page.troubles = []
        page.on("console", lambda message: page.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on(
            "request",
            lambda request: page.troubles.append(request.url) if not request.url.startswith(allowed) else None,
        )
        page.goto(address)
        page.wait_for_selector("#costs tbody tr")
        return page

    yield opening
    for page in opened:
        page.close()


@pytest.fixture(scope="package")
def comparison(tmp_path_factory):
    """The folder of five algorithms and two seeds on digits, six clients in two clusters."""
    out = tmp_path_factory.mktemp("reports") / "out"
    base = {"problem": {"name": "digits", "clients": 6}, "rounds": 5, "inner": 2}
    compare(plan(base, ALGORITHMS, [1, 2], out), out, workers=1)
    return out


@pytest.fixture(scope="package")
def report(comparison):
    return write_report(read_comparison(comparison), comparison / "report.html")


@pytest.fixture(scope="session")
def invented_run():
    """A run of any size, made of random numbers, which `columns` may replace (name → one value for each client), and
    of tables, which `change` may write into."""

    def make(algorithm, seed=1, *, clients=4, rounds=3, tables=(), metrics=None, columns=None, change=None, **options):
        random = torch.Generator().manual_seed(seed)
        readings = {"accuracy": {"percent": True}} if metrics is None else metrics
        known = {"weight_sum": 1, "collaborators": 1, "step_scale": 1, "present": 1} | dict.fromkeys(
            ("refused", "messages", "bytes"), 0
        )
        names = [*RESERVED, *readings]
        frames = []
        for number in range(rounds + 1):
            drawn = {name: torch.rand(clients, generator=random).tolist() for name in ("loss", *readings)}
            drawn |= {name: [value] * clients for name, value in known.items()}
            drawn |= {"round": [number] * clients, "client": [*range(clients)], "samples": [16 * number] * clients}
            drawn |= {"seconds": [0.1 * number] * clients} | (columns or {})
            frames.append(polars.DataFrame({name: drawn.get(name, [None] * clients) for name in names}, schema(names)))
        numbers = {name: torch.rand(rounds, clients, clients, generator=random) for name in ("weights", *tables)}
        numbers |= {"rounds": torch.arange(1, rounds + 1), "present": torch.ones(rounds, clients, dtype=torch.bool)}
        if change:
            change(numbers)
        told = [{"name": None, "size": 10, "cluster": c % 2} for c in range(clients)]
        config = {"algorithm": {"name": algorithm, **options}, "rounds": rounds, "seed": seed, "metrics": readings}
        return FinishedRun(algorithm, seed, polars.concat(frames), recorded(numbers), config, [10] * clients, told)

    return make
