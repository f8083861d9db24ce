"""One class against the rest: K models of objective perturbation, whose Gaussian tilts compose."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from parley.common.algorithms import settle
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Logistic, Softmax
from parley.common.privacy.calibration import gaussian_mu, gaussian_sigma, tilted_mu
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent
from parley.common.privacy.mechanisms.objective import _longest, objective
from parley.common.privacy.mechanisms.one_against_rest import OneAgainstRest, one_against_rest
from parley.common.privacy.mechanisms.site import SiteTerms, left_by_solver
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.learner.estimators import PrivateClassifier

K, D, N = 3, 4, 200
TERMS = SiteTerms(Softmax(K), N, D, 0.05, 1.0, 0.0, "l2_laplace")
GAUSSIAN: dict[str, Any] = {"law": "gaussian", "delta": 1e-6}
EACH = replace(TERMS, loss=Logistic(), epsilon=TERMS.epsilon / K)


def rows() -> tuple[Shard, IntArray]:
    """Rows of K classes, and which of them."""
    rng = np.random.default_rng(0)
    classes = rng.integers(K, size=N)
    return Shard(rng.normal(size=(N, D)), encode_classes(classes, K)), classes


def of_several(**changes: Any) -> OneAgainstRest:  # noqa: ANN401 -- fields
    site = one_against_rest(replace(TERMS, **changes))
    assert isinstance(site, OneAgainstRest)
    return site


def test_each_class_is_told_from_all_others_by_noise_of_a_kth_of_the_budget() -> None:
    shard, classes = rows()
    site, noise, each = of_several(), SeededNoise(1), objective(EACH)
    answer = site.answer([site], site.prepare([site], shard), SeededNoise(1))
    single = [each.answer([each], Shard(shard.X, np.where(classes == k, 1.0, -1.0)), noise) for k in range(K)]
    assert np.array_equal(answer, np.concatenate(single))
    assert site.deviation == each.deviation
    assert site.blur_deviation == each.blur_deviation
    assert np.isfinite(to_reals(answer)).all()


def test_sparse_rows_are_answered_alike() -> None:
    shard, _ = rows()
    site = of_several()
    dense, sparse = (site.answer([site], each, SeededNoise(1)) for each in (shard, SparseShard.of(shard)))
    assert np.array_equal(dense, sparse)


def test_a_stack_is_answered_as_its_sites() -> None:
    shard, _ = rows()
    site = of_several(epsilon=1e6)
    stacked = site.answer([site, site], Shard.stack([shard, shard]), SeededNoise(1))
    assert stacked.shape == (2, K * D)
    assert to_reals(stacked[1]) == pytest.approx(to_reals(site.answer([site], shard, SeededNoise(2))), abs=1e-2)


@pytest.mark.parametrize(("law", "delta"), [("l2_laplace", 0.0), ("gaussian", 1e-6)])
def test_the_costs_of_all_classes_are_charged(law: str, delta: float) -> None:
    event = of_several(law=law, delta=delta).event
    assert (event.epsilon, event.delta) == (1.0, delta)
    short = of_several(law="gaussian", delta=1e-6, calibration="jain_thakurta")
    assert short.event.epsilon == pytest.approx(K * short.of_class.epsilon)
    assert short.event.epsilon > 1.0


def test_its_tilts_are_minus_the_gradients_of_each_classs_risk() -> None:
    """At each answer, by the definition of the logistic loss; rows that were dropped count for nothing."""
    (shard, classes), site = rows(), of_several()
    mask = np.arange(N) % 7 > 0
    answers = np.random.default_rng(4).normal(size=(5, K * D))
    tilts = site.tilts_of(Shard(shard.X, shard.y, mask), answers)
    assert tilts.shape == (5, K, D)
    for run, model in enumerate(answers.reshape(5, K, D)):
        for one, weights in enumerate(model):
            sign = np.where(classes == one, 1.0, -1.0)
            slopes = mask * -sign / (1 + np.exp(sign * (shard.X @ weights)))
            due = -(site.of_class.strength * weights + slopes @ shard.X)
            assert tilts[run, one] == pytest.approx(due)


def test_its_proof_is_that_of_a_tilt_for_each_class_by_a_kth_of_the_budget() -> None:
    """A record moves a gradient by 2, and a determinant by 1 + 1 / (4 Lambda); a hundredth hides the solver's error."""
    site, other = of_several(), of_several(epsilon=2.0)
    proof = OneAgainstRest.proof([site, other])
    assert proof.noise_of == site.tilts_of
    assert proof.reach == 2.0
    assert proof.law == L2LaplaceEvent(2.0 * site.of_class.tilt, D)
    determinant = math.log(1 + 0.25 / site.of_class.strength)
    assert proof.spent == pytest.approx((determinant + 0.01 / K, 0.0), rel=1e-12)
    assert proof.law.epsilon + proof.spent[0] == pytest.approx(1 / K)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)])
@pytest.mark.parametrize("k", [3, 10])
def test_gaussian_tilts_are_covered_by_what_the_budget_allows(epsilon: float, delta: float, k: int) -> None:
    """All of it is used, 5/6 at least for the noise; the ridge is raised no more than that needs."""
    raised = 0
    for regularization in (1e-4, 1e-2, 100.0):
        given = GAUSSIAN | {"loss": Softmax(k), "epsilon": epsilon, "delta": delta, "regularization": regularization}
        site = of_several(**given)
        ridge, tilt = site.of_class.strength, site.of_class.tilt
        allowed = gaussian_mu(0.99 * epsilon, 0.99 * delta)
        whole = math.sqrt(k) * tilted_mu(2 / tilt, math.log(1 + 0.25 / ridge))
        assert whole == pytest.approx(allowed, rel=1e-6)
        assert whole <= allowed * (1 + 1e-9)
        assert 2 / tilt * math.sqrt(k) >= 5 / 6 * allowed * (1 - 1e-9)
        if ridge > site.terms.strength * (1 + 1e-9):
            raised += 1
            assert 2 / tilt * math.sqrt(k) == pytest.approx(5 / 6 * allowed)
        else:
            assert ridge == site.terms.strength
        assert tilt < of_several(**given, calibration="paper").of_class.tilt
    assert 0 < raised < 3


def test_gaussian_blurs_hide_the_errors_of_all_solvers_together() -> None:
    site = of_several(**GAUSSIAN)
    one = objective(replace(TERMS, **GAUSSIAN, loss=Logistic()))
    left = left_by_solver(
        site.of_class.terms, site.of_class.strength, *_longest(site.of_class.terms, site.of_class.tilt)
    )
    apart = math.sqrt(K) * (2 * left / site.of_class.strength + math.sqrt(D) * 2.0**-32)
    assert site.blur_deviation == pytest.approx(gaussian_sigma(0.01, 1e-8, apart))
    assert site.blur_deviation > one.blur_deviation


def test_the_proof_of_gaussian_tilts_composes_them() -> None:
    site = of_several(**GAUSSIAN)
    proof = OneAgainstRest.proof([site])
    assert proof.law == GaussianEvent(2 / site.of_class.tilt)
    assert proof.spent == (math.log1p(0.25 / site.of_class.strength), 0.0)
    assert proof.besides == (0.01, 1e-8)
    assert OneAgainstRest.proof([of_several(**GAUSSIAN, calibration="jain_thakurta")]).besides is None
    assert OneAgainstRest.proof([of_several()]).besides is None


def test_at_one_budget_five_classes_have_half_the_noise_of_a_fifth_each() -> None:
    given = GAUSSIAN | {"n_examples": 5000, "regularization": 0.01}
    each = objective(replace(TERMS, **given | {"loss": Logistic(), "epsilon": 0.2, "delta": 2e-7}))
    together = of_several(**given, loss=Softmax(5))
    print(f"tilts of {each.tilt:.3g} before, of {together.of_class.tilt:.3g} now")
    assert together.of_class.tilt < 0.5 * each.tilt
    assert together.of_class.strength == each.strength


def test_of_two_classes_it_is_objective_perturbation() -> None:
    assert one_against_rest(EACH) == objective(EACH)
    with pytest.raises(InvalidInputError, match="'huber', not 'hinge'"):
        one_against_rest(replace(TERMS, loss=Hinge()))


@pytest.mark.parametrize(
    ("n_classes", "delta", "n", "mechanism"),
    [
        (3, 0.0, 50_000, "one_against_rest"),
        (5, 0.0, 50_000, "one_against_rest"),
        (5, 0.0, 500, "centroids"),
        (6, 0.0, 500_000, "output"),
        (3, 1e-6, 50_000, "output"),
    ],
)
def test_it_is_chosen_for_few_classes_and_many_rows_without_a_delta(
    n_classes: int, delta: float, n: int, mechanism: str
) -> None:
    facts = FederationFacts.uniform(
        np.array([n, n]), epsilon=1.0, delta=delta, n_features=D, loss=Softmax(n_classes), secure_sum=False
    )
    for name in ("release", "average"):
        assert settle(name, {}, facts)[1]["mechanism"].value == mechanism
    assert settle("average", {}, replace(facts, secure_sum=True))[1]["mechanism"].value == "output"


def test_a_first_fit_of_three_classes_learns_more_than_noise_on_a_softmax_leaves() -> None:
    rng = np.random.default_rng(1)
    centres = rng.uniform(-6, 6, size=(3, 10))
    y = rng.integers(3, size=1000)
    X = centres[y] + rng.normal(scale=5, size=(1000, 10))

    def right(mechanism: Literal["auto", "output"]) -> float:
        models = (PrivateClassifier(bounds=(-15, 15), mechanism=mechanism, random_state=i) for i in range(5))
        return float(np.mean([model.fit(X, y).score(X, y) for model in models]))

    assert right("auto") > right("output") + 0.05
