"""Jain & Thakurta's figures on made-up rows: what is drawn is built, noise is mirrored, and claims can fail."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import ks_2samp

from parley.common.arrays import FloatArray
from parley.common.data.sparse import SparseShard
from parley.common.encoding.fixed_point import Norm
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.noise import SeededNoise
from scripts.figures import jain, jain_data, jain_simplex
from scripts.figures.curves import Curve
from scripts.figures.jain_runs import (
    EVERY,
    METHODS,
    NONE,
    SOLVED_EXACTLY,
    Beside,
    Mirrored,
    Setting,
    accuracies,
    excess,
    orthant,
)

FIGURES = {figure.name: figure for figure in jain.FIGURES}


def made_up(data: str, norm: Norm, columns: int = 0) -> SparseShard:
    """Rows about two corners, in place of a set's."""
    rng = np.random.default_rng(len(data))
    y = np.where(rng.random(300) < 0.5, 1.0, -1.0)
    X = y[:, None] * [0.5, 0.3, 0.0] + rng.normal(0, 0.2, (300, 3))
    rows = csr_array(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1))
    wide = csr_array((rows.data, rows.indices, rows.indptr), shape=(300, max(columns, 3)))
    return SparseShard(wide, y, norm=norm)


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jain_data, "every_row", made_up)


def test_every_method_that_takes_the_loss_is_measured_and_can_be_repeated() -> None:
    found = accuracies(asdict(Setting(regularization=0.05)), [0.2, 100.0], 0)
    assert set(found) == set(METHODS)
    assert found == accuracies(asdict(Setting(regularization=0.05)), [0.2, 100.0], 0)
    assert found != accuracies(asdict(Setting(regularization=0.05)), [0.2, 100.0], 1)
    assert all((each[1] or 0) > 0.9 for each in found.values())
    hinge = accuracies(asdict(Setting(loss="hinge", regularization=0.05)), [1.0], 0)
    assert set(hinge) == {NONE, "output, L2-Laplace", "output, Gaussian (paper)", "output, Gaussian (tight)"}


def test_a_split_has_seven_tenths_to_train_on_and_shares_no_row() -> None:
    train, test = jain_data.split("cod-rna", 3, columns=5)
    assert (train.shape, test.shape) == ((210, 5), (90, 5))
    assert not {row.tobytes() for row in train.X} & {row.tobytes() for row in test.X}


def test_a_noise_and_its_mirror_image_add_up_to_nothing() -> None:
    one, other = (Mirrored([1, 2], sign) for sign in (1, -1))
    for law, scale in (("gaussian", 2.0), ("l2_laplace", 2.0), ("discrete_gaussian", 9.0)):
        first, second = (getattr(noise, law)(scale, (4,)) for noise in (one, other))
        assert (first == -second).all()
        assert np.abs(first).max() > 0
    assert (Mirrored([1, 2], 1).gaussian(2.0, (4,)) == SeededNoise([1, 2]).gaussian(2.0, (4,))).all()


def test_noise_beside_columns_that_are_not_drawn_is_what_it_is_with_them() -> None:
    whole = SeededNoise([1, 2]).l2_laplace(3.0, (4_000, 100))[:, :4]
    part = Beside([3, 4], 96).l2_laplace(3.0, (4_000, 4))
    assert ks_2samp(whole.ravel(), part.ravel()).pvalue > 0.01
    assert ks_2samp(np.linalg.norm(whole, axis=1), np.linalg.norm(part, axis=1)).pvalue > 0.01
    assert ks_2samp(whole.ravel(), Beside([3, 4], 60).l2_laplace(3.0, (4_000, 4)).ravel()).pvalue < 1e-6
    assert (Beside([1, 2], 0).l2_laplace(3.0, (4,)) == SeededNoise([1, 2]).l2_laplace(3.0, (4,))).all()
    assert (Beside([1, 2], 96).gaussian(3.0, (4,)) == SeededNoise([1, 2]).gaussian(3.0, (4,))).all()


def test_mechanisms_know_columns_that_are_not_stored() -> None:
    few, many = (jain_data.split("cod-rna", 0, columns=columns)[0] for columns in (3, 2_000))
    for name, method in METHODS.items():
        told = method.site(Setting(unstored=1_997, regularization=0.05), few, 1.0)
        assert told == method.site(Setting(regularization=0.05), many, 1.0), name


def test_so_many_rows_are_trained_on_as_are_said() -> None:
    few, all_of_them = (accuracies(asdict(Setting(rows=rows)), [1.0], 0) for rows in (5, 210))
    assert few != all_of_them == accuracies(asdict(Setting()), [1.0], 0)


def test_of_an_exact_solver_an_objective_has_its_tilt_alone() -> None:
    shard, _ = jain_data.split("cod-rna", 0)
    setting = Setting(regularization=0.05, unstored=10**4)
    whole, bare = (EVERY[name].site(setting, shard, 1.0) for name in ("objective, L2-Laplace", SOLVED_EXACTLY))
    assert isinstance(bare, ObjectivePerturbation)
    assert replace(bare, blur=0.0) == replace(whole, blur=0.0)  # type: ignore[type-var]
    assert bare.blur_deviation < 1e-12 < whole.blur_deviation


def test_excess_is_above_zero_and_below_its_bound() -> None:
    for name, result in excess(asdict(Setting(regularization=0.1)), 1.0, 30).items():
        assert 0 < np.mean(result["excess"]) < result["bound"], name


def test_the_orthant_moves_a_score_by_the_root_of_the_columns() -> None:
    few, many = (orthant(columns, 0.01, 0) for columns in (100, 10_000))
    assert few["free"] == pytest.approx(many["free"], rel=0.3)
    assert many["in the orthant"] == pytest.approx(10 * few["in the orthant"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jain_fig1b", "jain_excess", "jain_orthant"])
def test_a_figure_is_written_drawn_and_judged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FIGURES[name]
    monkeypatch.setattr("scripts.figures.jain_runs._DRAWS", 20)
    results = {label: point.compute() for label, point in figure.quick.points.items() if _is_small(label)}
    full = {label: results[min(results, key=lambda at: _apart(at, label))] for label in figure.quick.points}
    verdicts = figure.redraw(full, tmp_path)
    assert all(verdict.claim and verdict.evidence for verdict in verdicts)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) > len(verdicts)


def _is_small(label: object) -> bool:
    """Points of many columns stand for those of few: what is tested is not how they are measured."""
    place = label[0] if isinstance(label, tuple) else label
    return not isinstance(place, int) or place <= 100


def _apart(one: object, other: object) -> float:
    """How far two labels are from each other; those of different panels very far."""
    first, second = (each if isinstance(each, tuple) else (each, 0) for each in (one, other))
    far = [1e9 * (a != b) if isinstance(a, str) else abs(a - b) for a, b in zip(first, second, strict=True)]
    return float(sum(far))


def of(name: str, *means: float, columns: tuple[int, ...] = jain.COLUMNS) -> Curve:
    """A line over the columns."""
    return Curve("rows", name, {x: np.full(3, mean) for x, mean in zip(columns, means, strict=True)}, None)


def test_claims_can_fail() -> None:
    columns, names = jain.COLUMNS + jain.MORE_COLUMNS, tuple(EVERY)
    flat, falling = (0.9,) * 8, (0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5)
    good = [of(name, *(flat if name in jain.GAUSSIAN else falling), columns=columns) for name in names]
    bad = [of(name, *(falling if name in jain.GAUSSIAN else flat), columns=columns) for name in names]
    assert all(verdict.holds for verdict in jain.judge_columns(good))
    assert not any(verdict.holds for verdict in jain.judge_columns(bad) if "worst" not in verdict.evidence)
    assert jain.slope(of("x", *(3.0 * x**0.5 for x in jain.COLUMNS))) == pytest.approx(0.5)


def test_claims_of_samples_can_fail() -> None:
    def judged(grown: float, bound: float) -> list[bool]:
        runs: dict[float, FloatArray] = {p: np.full(3, math.log(2 * p) ** grown) for p in jain.COLUMNS}
        curve = Curve("", "samples (tight)", runs, dict.fromkeys(jain.COLUMNS, bound))
        return [verdict.holds for verdict in jain_simplex.judge_over_p([curve])]

    assert judged(0.9, 100.0) == [True, True, True]
    assert judged(1.5, 9.0) == [False, False, False]
    for power, holds in ((-0.2, False), (-0.4, True)):
        runs: dict[float, FloatArray] = {n: np.full(3, n**power) for n in jain_simplex.SIZES}
        by_size = Curve("", "samples (tight)", runs, dict.fromkeys(runs, 1.0))
        assert [verdict.holds for verdict in jain_simplex.judge_over_n([by_size])] == [holds, True]
