"""Excess risk stays below what Jain & Thakurta's theorems, with our constants, say of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.privacy.mechanisms.objective import objective
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.site import Law, SiteTerms
from parley.common.privacy.noise import SeededNoise
from scripts.figures.risk_bounds import best_release_bound, release_bound, rise

MECHANISMS = {"output": output, "objective": objective}


def terms_of(loss: Loss, n: int, d: int, law: Law = "gaussian", regularization: float = 0.05) -> SiteTerms:
    return SiteTerms(loss, n, d, regularization, 1.0, 1e-5, law)


def separable(n: int, d: int, truth: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Shard:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Shard(X, np.where(X @ truth + 0.05 * rng.standard_normal(n) > 0, 1.0, -1.0))


@pytest.mark.parametrize("law", ["gaussian", "l2_laplace"])
@pytest.mark.parametrize(
    ("mechanism", "loss"),
    [
        ("output", Logistic()),
        ("output", Huber()),
        ("output", Hinge()),
        ("objective", Logistic()),
        ("objective", Huber()),
    ],
)
def test_measured_excess_is_below_the_bound(mechanism: str, loss: Loss, law: Law) -> None:
    n, d = 400, 12
    truth = np.eye(d)[0] * 2
    shard, one = separable(n, d, truth), MECHANISMS[mechanism](terms_of(loss, n, d, law))
    bound = release_bound(one, float(np.linalg.norm(truth)))
    prepared = type(one).prepare([one], shard)
    base = fitness(loss, Model(truth), shard, 0.0)
    measured = []
    for seed in range(40):
        weights = to_reals(type(one).answer([one], prepared, SeededNoise(seed)))
        measured.append(fitness(loss, Model(weights), shard, 0.0) - base)
    assert np.mean(measured) + 4 * np.std(measured) / math.sqrt(40) < bound.excess
    assert np.mean(measured) > -bound.excess


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_gaussian_bounds_know_no_dimension_and_pure_ones_do(mechanism: str) -> None:
    def best(d: int, law: Law) -> float:
        return best_release_bound(MECHANISMS[mechanism], terms_of(Huber(), 10**5, d, law), 1.0).excess

    assert best(500, "gaussian") == pytest.approx(best(10, "gaussian"), rel=0.05)
    assert best(500, "l2_laplace") > 2 * best(10, "l2_laplace")


def test_the_best_regularization_is_no_worse_than_any_other() -> None:
    terms = terms_of(Logistic(), 10_000, 20)
    best = best_release_bound(output, terms, 2.0)
    for regularization in np.geomspace(1e-4, 10, 30):
        other = release_bound(output(terms_of(Logistic(), 10_000, 20, regularization=float(regularization))), 2.0)
        assert best.excess <= other.excess * (1 + 1e-6)


def test_more_examples_bound_the_excess_by_their_root_or_better() -> None:
    few, many = (best_release_bound(output, terms_of(Huber(), n, 20), 1.0).excess for n in (10**4, 10**6))
    assert many < few / 10


def test_a_loss_rises_by_its_slope_or_its_curvature() -> None:
    assert rise(Logistic(), 0.1) == pytest.approx(0.25 / 2 * 0.01)
    assert rise(Logistic(), 100.0) == 100.0
    assert rise(Hinge(), 0.1) == 0.1
    assert [rise(loss, 0.0) for loss in (Logistic(), Hinge(), Squared())] == [0, 0, 0]


def test_a_mechanism_that_cannot_be_set_has_no_bound() -> None:
    with pytest.raises(InvalidInputError, match="'hinge'"):
        best_release_bound(objective, terms_of(Hinge(), 100, 3), 1.0)
