"""The site of documents and API reference, as `make docs` builds it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import allforone

pytest.importorskip("mkdocs", reason="the site needs: pip install 'allforone[docs]'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_every_public_name_is_in_the_api_reference(site):
    table = (site / "api/index.html").read_text()
    for name in allforone.__all__:
        link = re.search(rf'href="([\w.]*)#([\w.]+)"[^>]*><code>{name}</code>', table)
        assert link, f"{name} is not in the table of public names"
        page, anchor = link.groups()
        assert f'id="{anchor}"' in (site / "api" / (page or "index.html")).read_text(), name


def test_pages_ask_nothing_of_the_network(site):
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+', page.read_text()), page


def test_examples_of_docstrings_are_shown_as_code(site):
    for page in (site / "api").glob("*.html"):
        assert "<blockquote>" not in page.read_text(), f"{page.name}: >>> was read as a quotation"
