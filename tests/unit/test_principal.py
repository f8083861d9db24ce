"""A projection fitted to public rows: principal components, a radius, and what is said of both."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from typer.testing import CliRunner

from parley.common.arrays import FloatArray
from parley.common.data.auxiliary import with_projection_of
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.loading import shard_of
from parley.common.data.study import Projection, Study, numbers_of
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.learner.cli.main import learner_app

N = 200
STUDY = Study(
    name="s",
    features=(
        *(Feature(name=f"x{i}", lower=-2, upper=2) for i in range(5)),
        Category(name="ward", values=("north", "south")),
    ),
    label=Label(name="ill", values=("no", "yes")),
    intercept=False,
)


def rows(n: int = N, seed: int = 1) -> dict[str, Any]:
    """Numbers that lie near a plane, and a category."""
    rng = np.random.default_rng(seed)
    X = np.clip(
        rng.standard_normal((n, 2)) @ rng.uniform(-1, 1, (2, 5)) / 2 + 0.05 * rng.standard_normal((n, 5)), -2, 2
    )
    return {f"x{i}": X[:, i] for i in range(5)} | {"ward": rng.choice(["north", "south"], n)}


def columns_of(table: dict[str, Any]) -> FloatArray:
    """The study's columns before they are divided."""
    one_hot = [table["ward"] == "north", table["ward"] == "south"]
    return np.column_stack([*(table[f"x{i}"] / 2 for i in range(5)), *one_hot])


def test_components_are_the_principal_ones() -> None:
    table = rows()
    made = with_projection_of(STUDY, table, 3, auxiliary="0" * 64)
    known = PCA(3).fit(columns_of(table))
    projection = made.study.projection
    assert projection is not None
    components = numbers_of(projection.components).reshape(3, 7)
    assert np.abs(np.abs(components @ known.components_.T) - np.eye(3)).max() < 1e-3
    assert (np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1) > 0).all()
    assert np.abs(numbers_of(projection.mean) - known.mean_).max() < 2.0**-14
    assert made.explained == pytest.approx(known.explained_variance_ratio_.sum(), abs=1e-4)
    assert (made.n_rows, projection.auxiliary, made.study.row_norm) == (N, "0" * 64, "largest")
    assert Study.model_validate_json(made.study.model_dump_json()) == made.study


def test_the_radius_holds_the_part_of_the_rows_that_was_asked_for() -> None:
    table = rows()
    labelled = table | {"ill": np.repeat("no", N)}
    for quantile, beyond in ((1.0, 0.0), (0.9, 0.1)):
        made = with_projection_of(STUDY, table, 3, quantile)
        norms = np.linalg.norm(shard_of(made.study, labelled).X, axis=1)
        assert made.beyond == beyond
        assert norms.max() == pytest.approx(1, abs=1e-4)
        assert (norms > 1 - 1e-4).mean() == pytest.approx(beyond, abs=0.006)


@pytest.mark.parametrize(
    ("n_components", "n_rows", "words"),
    [
        (7, N, "there may be 1 to 6 components, not 7: the 200 rows of 7 columns differ in 6 directions"),
        (8, N, "there may be 1 to 6 components, not 8"),
        (4, 4, "there may be 1 to 3 components, not 4: the 4 rows of 7 columns differ in 3 directions"),
        (0, N, "there may be 1 to 6 components, not 0"),
        (1, 1, "there may be 1 to 0 components, not 1: the 1 rows of 7 columns differ in 0 directions"),
    ],
)
def test_more_components_than_directions_are_refused(n_components: int, n_rows: int, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        with_projection_of(STUDY, rows(n_rows), n_components)


@pytest.mark.parametrize("quantile", [0.0, 1.1, -1.0, math.nan])
def test_a_radius_must_hold_rows(quantile: float) -> None:
    with pytest.raises(InvalidInputError, match="quantile must be above 0 and at most 1"):
        with_projection_of(STUDY, rows(), 2, quantile)


def test_a_radius_is_not_zero() -> None:
    table = {name: np.repeat(column[:1], N) for name, column in rows().items()}
    table["x0"] = np.where(np.arange(N) < 2, [-1.0, 1.0] * (N // 2), 0.0)
    with pytest.raises(InvalidInputError, match="quantile of the rows' norms is 0"):
        with_projection_of(STUDY, table, 1, 0.5)


def test_rows_that_do_not_fit_the_study_are_refused() -> None:
    table = rows()
    with pytest.raises(InvalidDataError, match="columns missing from the public rows: x0, ward"):
        with_projection_of(STUDY, {f"x{i}": table[f"x{i}"] for i in range(1, 5)}, 2)
    with pytest.raises(InvalidInputError, match="record 3: feature 'x1' is missing"):
        with_projection_of(STUDY, table | {"x1": np.where(np.arange(N) == 3, np.nan, 0.5)}, 2)
    with pytest.raises(InvalidInputError, match="record 0: feature 'ward' is not one of its values"):
        with_projection_of(STUDY, table | {"ward": np.repeat("west", N)}, 2)
    with pytest.raises(InvalidDataError, match="there are no public rows"):
        with_projection_of(STUDY, rows(0), 2)


def test_a_study_that_is_mapped_already_is_refused() -> None:
    once = with_projection_of(STUDY, rows(), 2).study
    kernel = Study(**dict(STUDY) | {"random_features": {"n": 10, "seed": 1, "gamma": 1.0}})
    for study in (once, kernel):
        with pytest.raises(InvalidInputError, match="has a projection or random features already"):
            with_projection_of(study, rows(), 2)


def test_the_command_writes_a_study_and_says_that_the_rows_must_be_public(tmp_path: Path) -> None:
    study, table, output = (tmp_path / name for name in ("study.json", "rows.csv", "narrow.json"))
    study.write_text(STUDY.model_dump_json())
    cells = zip(*(column.tolist() for column in rows().values()), strict=True)
    table.write_text("\n".join([",".join(STUDY.feature_names), *(",".join(map(str, row)) for row in cells)]))
    order = ["project", str(table), "--study", str(study), "--components", "3", "--radius-quantile", "0.95"]
    printed = CliRunner().invoke(learner_app, order)
    made = Study.model_validate_json(printed.stdout)
    assert isinstance(made.projection, Projection)
    assert made.projection.auxiliary == hashlib.sha256(table.read_bytes()).hexdigest()
    assert "3 of 7 dimensions hold 9" in printed.stderr
    assert "of 200 public rows; 5.0% of them lie beyond the radius" in printed.stderr
    assert "The rows must be public" in printed.stderr
    written = CliRunner().invoke(learner_app, [*order, "--output", str(output)])
    assert (written.exit_code, written.stdout) == (0, "")
    assert Study.model_validate_json(output.read_bytes()) == made
    assert printed.stdout == output.read_text() == made.model_dump_json(indent=2) + "\n"
    found = with_projection_of(STUDY, rows(), 3, 0.95, made.projection.auxiliary)
    told = (
        f"3 of 7 dimensions hold {found.explained:.1%} of the variance of 200 public rows; 5.0% of them lie beyond "
        f"the radius {made.projection.radius:.4g}. The rows must be public: a projection of private rows would reveal "
        "them in part, and no guarantee counts it.\n"
    )
    assert (printed.stderr, written.stderr) == (told, told)
    table.write_text(table.read_text().replace(",", "^"))
    other = CliRunner().invoke(learner_app, [*order[:4], "--components", "2", "--csv", "separator=^"])
    narrow = Study.model_validate_json(other.stdout)
    assert narrow == with_projection_of(STUDY, rows(), 2, 1.0, hashlib.sha256(table.read_bytes()).hexdigest()).study
