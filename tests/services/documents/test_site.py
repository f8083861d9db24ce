"""The documents build as a site, without a warning, that loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.glob("**/*.html"))
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*src=[\"']?(?:https?:)?//|<link[^>]*href=[\"']?(?:https?:)?//"
    )
    assert not [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))]
    print(f"{len(pages)} pages")


def test_the_reference_is_made_of_the_code(site: Path) -> None:
    def text(page: str) -> str:
        return re.sub(r"<[^>]+>", "", (site / "reference" / page).read_text(encoding="utf-8"))

    assert "--save-keys" in text("parley-learner.html")
    assert "minimum_contributors" in text("settings-party.html")
    assert "PUT /v1/runs/{run}/rounds/{round}" in text("api-party.html")
    assert "urn:parley:problem:budget-exhausted" in text("problems.html")
    assert "predict_proba" in text("python.html")


def test_examples_of_code_are_no_quotations(site: Path) -> None:
    reference = {page.name: page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")}
    assert not [name for name, text in reference.items() if "<blockquote>" in text]
    assert '<span class="gp">&gt;&gt;&gt; </span>' in reference["python.html"]
