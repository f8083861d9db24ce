"""One class against the rest: K models of objective perturbation, which cost K times what one does."""

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
from parley.common.privacy.events import L2LaplaceEvent
from parley.common.privacy.mechanisms.objective import objective
from parley.common.privacy.mechanisms.one_against_rest import OneAgainstRest, one_against_rest
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.learner.estimators import PrivateClassifier

K, D, N = 3, 4, 200
TERMS = SiteTerms(Softmax(K), N, D, 0.05, 1.0, 0.0, "l2_laplace")
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
