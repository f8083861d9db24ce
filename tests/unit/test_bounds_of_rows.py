"""Bounds from public auxiliary rows: never wider than the study's own, and named by the rows' file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from parley.common.data.auxiliary import with_bounds_of
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.learner.cli.main import learner_app

STUDY = Study(
    name="s",
    features=(
        Feature(name="age", lower=0, upper=120, fill=5),
        Category(name="ward", values=("north", "south")),
        Feature(name="dose", lower=-1, upper=1),
    ),
    label=Label(name="ill", values=("no", "yes")),
)
ROWS = {"age": np.linspace(20, 70, 101), "dose": np.linspace(-5, 5, 101)}


def test_bounds_are_quantiles_within_the_declared_ones() -> None:
    fitted = with_bounds_of(STUDY, ROWS, 0.1, "0" * 64)
    age, ward, dose = fitted.features
    assert isinstance(age, Feature)
    assert isinstance(dose, Feature)
    assert (age.lower, age.upper, age.fill) == (25, 65, 25)
    assert ward == STUDY.features[1]
    assert (dose.lower, dose.upper) == (-1, 1), "never wider than declared"
    assert fitted.auxiliary == "0" * 64
    assert fitted.digest != STUDY.digest
    assert Study.model_validate_json(fitted.model_dump_json()) == fitted


def test_a_column_without_two_values_keeps_its_bounds() -> None:
    for column in (np.full(9, 30.0), np.full(9, np.nan)):
        assert with_bounds_of(STUDY, ROWS | {"age": column}, 0.0, "0" * 64).features == STUDY.features


@pytest.mark.parametrize("share", [-0.1, 0.5, float("nan")])
def test_a_share_must_leave_rows_within(share: float) -> None:
    with pytest.raises(InvalidInputError, match="share must be at least 0 and below"):
        with_bounds_of(STUDY, ROWS, share, "0" * 64)


def test_missing_columns_are_named() -> None:
    with pytest.raises(InvalidDataError, match="columns missing from the auxiliary rows: dose"):
        with_bounds_of(STUDY, {"age": ROWS["age"]}, 0.1, "0" * 64)


def test_the_command_prints_a_study_that_names_the_rows(tmp_path: Path) -> None:
    study, table = tmp_path / "study.json", tmp_path / "rows.csv"
    study.write_text(STUDY.model_dump_json())
    table.write_text("\n".join(["age,dose", *(f"{a},{d}" for a, d in zip(ROWS["age"], ROWS["dose"], strict=True))]))
    made = CliRunner().invoke(learner_app, ["bounds", str(study), str(table), "--share", "0.1"])
    fitted = Study.model_validate_json(made.stdout)
    assert fitted.auxiliary == hashlib.sha256(table.read_bytes()).hexdigest()
    assert fitted == with_bounds_of(STUDY, ROWS, 0.1, fitted.auxiliary or "")
    assert made.stdout == fitted.model_dump_json(indent=2) + "\n"
    table.write_text(table.read_text().replace(",", "^"))
    told = CliRunner().invoke(learner_app, ["bounds", str(study), str(table), "--csv", "separator=^"])
    again = Study.model_validate_json(told.stdout)
    assert again == with_bounds_of(STUDY, ROWS, 0.01, hashlib.sha256(table.read_bytes()).hexdigest())
