"""Draws explorer.png: the collaboration of a report, as a browser shows it. Arguments: report.html, the picture."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1100, "height": 760})
    page.goto(Path(sys.argv[1]).resolve().as_uri())
    page.add_style_tag(content="nav { display: none; } #collaboration { padding: 0 12px 8px; border: 0; margin: 0; }")
    page.locator("#slider").fill("9")
    page.locator("#slider").blur()
    page.locator("#collaboration").screenshot(path=sys.argv[2])
    browser.close()
