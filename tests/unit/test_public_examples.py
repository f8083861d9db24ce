"""Public examples that a run is measured on: rows that the study drops are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.learner.execution.round_report import PublicExamples

STUDY = Study(
    name="loans",
    missing="drop",
    features=(Feature(name="age", lower=0, upper=100),),
    label=Label(name="repaid", values=("no", "yes")),
)


def table(folder: Path, *rows: str) -> Path:
    """A table of ages and labels."""
    path = folder / "rows.csv"
    path.write_text("\n".join(["age,repaid", *rows]))
    return path


def test_rows_that_a_study_drops_are_left_out(tmp_path: Path) -> None:
    whole = ["20,no", "80,yes", "30,no", "40,no"]
    dropped = [",no"] * 9 + ["50,"]
    few = PublicExamples.read(table(tmp_path, *whole), STUDY)
    many = PublicExamples.read(table(tmp_path, *dropped, *whole), STUDY)
    assert many.majority == few.majority == 0.75
    assert many.measure(np.array([1.0, 0.0])) == few.measure(np.array([1.0, 0.0]))


def test_a_file_of_none_but_dropped_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="no row to measure on"):
        PublicExamples.read(table(tmp_path, ",no", ",yes"), STUDY)
