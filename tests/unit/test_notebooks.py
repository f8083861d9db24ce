"""Notebooks run from top to bottom, and print what is stored with them, but for what other libraries round otherwise.

What they print and draw is stored again by ``.venv/bin/python -m tests.unit.test_notebooks [NAME]``.
"""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def executed(notebook: NotebookNode) -> NotebookNode:
    """The notebook with all outputs of its cells, run in order by Jupyter.

    Its kernel is asked over sockets in a folder: ports that it chose could be another test's before it listens there.
    """
    found = {"metadata": {"path": str(ROOT)}}
    with TemporaryDirectory() as folder:
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        told: NotebookNode = NotebookClient(deepcopy(notebook), timeout=120, resources=found, config=sockets).execute()
    return told


def ran(notebook: NotebookNode) -> NotebookNode:
    """The notebook with what its cells print, and pictures."""
    told = executed(notebook)
    told.metadata = deepcopy(notebook.metadata)  # without what widgets drew
    for cell in told.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") == "stdout" or _is_picture(each)]
    return told


def _is_picture(output: NotebookNode) -> bool:
    return "image/png" in output.get("data", {})


def printed(notebook: NotebookNode) -> list[str]:
    """What each code cell printed."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(each.get("text", "") for each in cell.outputs) for cell in code]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_with_it(path: Path) -> None:
    stored = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    for now, then in zip(printed(ran(stored)), printed(stored), strict=True):
        assert NUMBER.sub("#", now) == NUMBER.sub("#", then)
        assert list(map(float, NUMBER.findall(now))) == pytest.approx(
            list(map(float, NUMBER.findall(then))), rel=0.05, abs=0.02
        )


BAR = """
from parley.learner.client.progress import RunBar
from parley.learner.runs.states import RunEvent
with RunBar() as bar:
    bar.show(RunEvent(1, "state", '{"state": "running", "rounds": 9}'))
"""


@pytest.mark.slow
def test_a_notebook_draws_a_bar_of_progress() -> None:
    notebook = new_notebook(cells=[new_code_cell(BAR)])  # type: ignore[no-untyped-call]
    told = executed(notebook)
    shown = [output.data for output in told.cells[0].outputs if output.output_type == "display_data"]
    assert any("application/vnd.jupyter.widget-view+json" in each for each in shown)
    assert not [output for output in told.cells[0].outputs if output.output_type == "error"]


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["client", "ensemble"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_cells_of_a_notebook_were_run(path: Path) -> None:
    stored = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert all(printed(stored))


if __name__ == "__main__":
    for each in [path for path in NOTEBOOKS if path.stem in sys.argv[1:] or not sys.argv[1:]]:
        nbformat.write(ran(nbformat.read(each, 4)), each)  # type: ignore[no-untyped-call]
