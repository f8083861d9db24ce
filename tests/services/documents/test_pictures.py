"""The pictures of the documents, made of services that run; PARLEY_PICTURES=docs/pictures makes them again."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from selenium.webdriver.support.ui import Select

from scripts.demonstrations.hospitals import Hospitals
from tests.support.browser import Site, Visitor, chromium
from tests.support.nightly import nightly

KEPT = Path(__file__).parents[3] / "docs" / "pictures"
pytestmark = [pytest.mark.slow, *([] if "PARLEY_PICTURES" in os.environ else [nightly])]


@pytest.fixture
def visitor(hospitals: Hospitals, tmp_path: Path) -> Iterator[Visitor]:
    with chromium() as browser:
        folder = Path(os.environ.get("PARLEY_PICTURES") or tmp_path).resolve()
        yield Visitor(browser, Site(hospitals.url, FastAPI()), folder)


def snap(visitor: Visitor, name: str, height: int) -> None:
    """Take a picture as the documents have it: small, and one that they show."""
    visitor.look(1000, "light", height)
    picture = visitor.pictures / f"{name}.png"
    visitor.browser.save_screenshot(str(picture))
    assert picture.stat().st_size < 150_000
    assert (KEPT / picture.name).exists()


def test_the_page_from_forecast_to_model(visitor: Visitor, hospitals: Hospitals) -> None:
    visitor.look(1000, "light", 2000)
    visitor.sign_in("#new/biopsies", hospitals.token)
    visitor.until_it_says("Expected excess loss")
    snap(visitor, "page-forecast", 800)
    visitor.find("#submit").click()
    visitor.until_it_says("completed", seconds=60)
    visitor.until_it_says("What it learnt", seconds=60)
    place = visitor.browser.execute_script("return location.hash")
    visitor.find("#evaluation-epsilon").clear()
    visitor.find("#evaluation-epsilon").send_keys("3")
    visitor.find("#evaluate button").click()
    visitor.until_it_says("Commonest class alone", seconds=60)
    visitor.go(place.removeprefix("#"))
    visitor.until_it_says("At any threshold", seconds=60)
    Select(visitor.find("#rule")).select_by_value("balanced")
    visitor.find("#rules button").click()
    visitor.until_it_says("the rule balanced")
    snap(visitor, "page-model", 1000)


def test_the_terminal(visitor: Visitor, hospitals: Hospitals) -> None:
    line = ["forecast", "biopsies", "--epsilon", "3", "--delta", "1e-5"]
    environment = os.environ | {"PARLEY_URL": hospitals.url, "PARLEY_TOKEN": hospitals.token, "COLUMNS": "112"}
    tool = str(Path(sys.executable).parent / "parley-learner")
    stdout = subprocess.run([tool, *line], check=True, env=environment, capture_output=True, text=True).stdout
    page = visitor.pictures / "terminal.html"
    screen = html.escape(f"$ parley-learner {' '.join(line)}\n{stdout}")
    page.write_text(f"<meta charset=utf-8><pre style='font: 14px/1.3 monospace; margin: 1.5rem'>{screen}</pre>")
    visitor.browser.get(page.as_uri())
    page.unlink()
    snap(visitor, "terminal-forecast", 740)
