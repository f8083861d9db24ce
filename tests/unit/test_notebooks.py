"""Notebooks run from top to bottom, and print what is stored with them, but for what other libraries round otherwise.

What they print and draw is stored anew by ``PYTHONPATH=. .venv/bin/python tests/unit/test_notebooks.py [NAME]``.
"""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def ran(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in order in one namespace: what is printed, and pictures."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    with mpl.rc_context({"backend": "agg"}):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                cells.append(cell | {"execution_count": number, "outputs": outputs("".join(cell["source"]), names)})
            else:
                cells.append(cell)
    return notebook | {"cells": cells}


def outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints and draws."""
    found: list[dict[str, Any]] = []
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(source, "a cell", "exec"), names)  # noqa: S102 -- the notebook is this repository's
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    for figure in map(plt.figure, plt.get_fignums()):
        picture = io.BytesIO()
        figure.savefig(picture, dpi=80, metadata={"Software": None})
        image = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        found.append({"data": image, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return found


def printed(notebook: dict[str, Any]) -> list[str]:
    """What each code cell printed."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(line for each in cell["outputs"] for line in each.get("text", ())) for cell in code]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_with_it(path: Path) -> None:
    stored = json.loads(path.read_text())
    for now, then in zip(printed(ran(stored)), printed(stored), strict=True):
        assert NUMBER.sub("#", now) == NUMBER.sub("#", then)
        assert list(map(float, NUMBER.findall(now))) == pytest.approx(
            list(map(float, NUMBER.findall(then))), rel=0.05, abs=0.02
        )


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["client", "ensemble"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_cells_of_a_notebook_were_run(path: Path) -> None:
    stored = json.loads(path.read_text())
    counts = [cell.get("execution_count") for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert all(printed(stored))


if __name__ == "__main__":
    for each in [path for path in NOTEBOOKS if path.stem in sys.argv[1:] or not sys.argv[1:]]:
        each.write_text(json.dumps(ran(json.loads(each.read_text())), indent=1, ensure_ascii=False) + "\n")
