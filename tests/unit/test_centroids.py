"""Centroids of classes: what a record moves of the sums, their noise, and what becomes of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms import settle
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Softmax
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.events import FLOATS, GaussianEvent, L2LaplaceEvent, ParallelEvent, SequentialEvent
from parley.common.privacy.mechanisms.class_means import Centroids, centroids, class_sums
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import SeededNoise
from parley.common.privacy.proofs import Additive, PostProcessing
from parley.common.protocol.facts import FederationFacts
from parley.learner.estimators import PrivateClassifier
from tests.support.noises import ScaledNoise

K, D, N = 7, 4, 200
TERMS = SiteTerms(Softmax(K), N, D, 0.1, 1.0, 0.0, "l2_laplace")
GAUSSIAN = {"law": "gaussian", "delta": 1e-5}


def rows(seed: int = 0, n: int = N, scale: float = 1.0) -> Shard:
    """Rows of K classes."""
    rng = np.random.default_rng(seed)
    return Shard(rng.normal(scale=scale, size=(n, D)), encode_classes(rng.integers(K, size=n), K))


def site_of(**changes: Any) -> Centroids:  # noqa: ANN401 -- fields
    site = centroids(replace(TERMS, **changes))
    assert isinstance(site, Centroids)
    return site


def test_the_sums_are_those_of_each_class() -> None:
    shard = rows()
    padded = Shard(shard.X, shard.y, np.arange(N) < N // 2)
    classes = np.rint((shard.y + 1) / 2 * (K - 1))
    expected = [padded.X[: N // 2][classes[: N // 2] == one].sum(axis=0) for one in range(K)]
    assert np.array_equal(to_reals(class_sums(padded, K)), expected)


def test_a_neighbour_moves_the_norms_of_sums_by_at_most_2_and_may_move_them_so_far() -> None:
    shard, rng, most = rows(n=9, scale=9.0), np.random.default_rng(3), 0.0
    for _ in range(2000):
        X, y = shard.X.copy(), shard.y.copy()
        X[0] = rng.choice([-1e9, -1.0, 0.0, 1.0, 1e9, np.nan], size=D) if rng.random() < 0.5 else -X[0]
        y[0] = encode_classes(rng.integers(K, size=1), K)[0] if rng.random() < 0.5 else y[0]
        moved = to_reals(class_sums(Shard(X, y), K) - class_sums(shard, K))
        most = max(most, float(np.linalg.norm(moved, axis=-1).sum()))
    assert 1.9 < most <= 2.0


def noise_of(site: Centroids, times: int, factor: float = 1.0) -> FloatArray:
    """The noise (times, K, D) on the sums of as many sites."""
    nothing = np.zeros((times, K, D), dtype=np.int64)
    return to_reals(Centroids.noisy_sums([site] * times, nothing, ScaledNoise(SeededNoise(5), factor)))


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (0.5, False)])
def test_the_noise_is_pure_epsilons_in_the_sum_of_norms(factor: float, *, holds: bool) -> None:
    """Of density exp(-(epsilon / 2) sum |b_k|): each |b_k| is Gamma of shape d, and no two are of one draw."""
    lengths = np.linalg.norm(noise_of(site_of(), 300, factor), axis=-1)
    fit = stats.kstest(lengths.ravel() * TERMS.epsilon / 2, stats.gamma(D).cdf).pvalue
    assert (fit > 1e-6) == holds


def test_gaussian_noise_is_that_of_a_move_of_2() -> None:
    site = site_of(**GAUSSIAN)
    assert site.event == GaussianEvent(2 / site.scale)
    assert epsilon_after([site.event], 1e-5) == pytest.approx(1.0, rel=1e-6)
    assert noise_of(site, 300).std() == pytest.approx(site.scale, rel=0.05)
    assert site_of(**GAUSSIAN, calibration="jain_thakurta").scale > site.scale


MOVES = ((2.0,), (1.0, 1.0))


def test_a_pure_release_costs_its_epsilon_and_says_what_is_drawn_in_floating_point() -> None:
    one_class, of_two = L2LaplaceEvent(1.0, D), L2LaplaceEvent(0.5, D)
    assert site_of().event == ParallelEvent((one_class, SequentialEvent((of_two, of_two))))
    assert epsilon_after([site_of().event], 0.0) == 1.0
    assert one_class.assumptions == (FLOATS,)
    published = site_of(calibration="jain_thakurta")
    assert (epsilon_after([published.event], 0.0), published.scale) == (0.5, 0.25)
    proof = Centroids.proof([published])
    assert isinstance(proof, PostProcessing)
    assert proof.of == Additive(L2LaplaceEvent(0.5, D), MOVES)


@pytest.mark.parametrize(("terms", "law"), [({}, L2LaplaceEvent(1.0, D)), (GAUSSIAN, None)], ids=["pure", "gaussian"])
def test_its_proof_is_that_of_the_noisy_sums_and_the_weights_are_a_function_of_these(
    terms: dict[str, Any], law: L2LaplaceEvent | None
) -> None:
    """With Gaussian noise the event is its law; pure noise is drawn for each class, in as many numbers as a row has."""
    sites = [site_of(**terms), site_of(**terms | {"epsilon": 3.0, "regularization": 0.5})]
    sums = Centroids.prepare(sites, Shard.stack([rows(), rows(1)]))
    proof = Centroids.proof(sites)
    assert isinstance(proof, PostProcessing)
    assert (proof.of, proof.places_only) == (Additive(law, MOVES if law else ()), False)
    noisy = proof.release(sums, SeededNoise(1))
    assert np.array_equal(noisy, Centroids.noisy_sums(sites, sums, SeededNoise(1)))
    assert np.array_equal(proof.function(noisy), Centroids.answer(sites, sums, SeededNoise(1)))
    assert sites[0].output_sensitivity == 2.0


@pytest.mark.parametrize(("strength", "epsilon", "longest"), [(0.1, 1e6, 10.0), (1e-6, 1e6, 20.0), (1e-6, 1.0, 15.24)])
def test_cosines_are_no_longer_than_lambda_and_the_noise_say(strength: float, epsilon: float, longest: float) -> None:
    """At epsilon 1 noise is 2 sqrt(D (D + 1)) = 8.94 long, and a class's sum of N / K = 28.6 rows at most so long."""
    assert site_of(regularization=strength, epsilon=epsilon).length == pytest.approx(longest, rel=1e-3)


def test_no_weights_are_longer_than_lambda_says() -> None:
    site = site_of(regularization=0.5, epsilon=1e6)
    answer = to_reals(site.answer([site], class_sums(rows(), K), SeededNoise(1))).reshape(K, D)
    assert np.linalg.norm(answer, axis=1).max() == pytest.approx(2.0, abs=1e-5)
    tight, loose = (
        to_reals(each.answer([each], class_sums(rows(), K), SeededNoise(1)))
        for each in (site, site_of(regularization=1e-6, epsilon=1e6))
    )
    assert tight / np.abs(tight).max() == pytest.approx(loose / np.abs(loose).max(), abs=1e-5)


def test_no_weights_by_means_are_longer_either() -> None:
    """Rows with a direction in common are fitted by the means across it, whose length is not bounded before."""
    shard = rows()
    sums = class_sums(Shard(0.2 * shard.X + np.eye(D)[0], shard.y), K)
    tight, loose = (
        to_reals(site.answer([site], sums, SeededNoise(1))).reshape(K, D)
        for site in (site_of(regularization=strength, epsilon=1e6) for strength in (0.5, 0.05))
    )
    assert 2.1 < np.linalg.norm(loose, axis=1).max() < 20
    assert np.linalg.norm(tight, axis=1).max() == pytest.approx(2.0, abs=1e-5)
    assert tight / np.abs(tight).max() == pytest.approx(loose / np.abs(loose).max(), abs=1e-5)


@pytest.mark.parametrize("terms", [{}, GAUSSIAN], ids=["pure", "gaussian"])
def test_sparse_rows_and_stacks_are_answered_alike(terms: dict[str, Any]) -> None:
    site, other = site_of(**terms), site_of(**terms | {"epsilon": 3.0, "regularization": 0.5})
    one, sparse = (
        site.answer([site], site.prepare([site], each), SeededNoise(1)) for each in (rows(), SparseShard.of(rows()))
    )
    assert np.array_equal(one, sparse)
    both = Centroids.prepare([site, other], Shard.stack([rows(), rows(1)]))
    assert np.array_equal(both, [class_sums(rows(), K), class_sums(rows(1), K)])
    assert both.dtype == np.int64
    weights = Centroids.read([site, other], both)
    assert np.array_equal(
        weights, [Centroids.read([each], sums) for each, sums in zip([site, other], both, strict=True)]
    )
    assert Centroids.answer([site, other], both, SeededNoise(1)).shape == (2, K * D)


def test_of_two_classes_it_is_output_perturbation_and_other_noise_is_refused() -> None:
    assert centroids(replace(TERMS, loss=Logistic())) == output(replace(TERMS, loss=Logistic()))
    for changes in ({"calibration": "thesis"}, {"law": "gaussian"}, {"n_examples": 0}):
        with pytest.raises(InvalidInputError):
            centroids(replace(TERMS, **changes))
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        site_of(epsilon=1e-6).check_noise()


@pytest.mark.parametrize(
    ("n", "delta", "mechanism"),
    [(300, 0.0, "centroids"), (10**6, 0.0, "output"), (300, 1e-5, "centroids"), (10**6, 1e-5, "output")],
)
def test_it_is_chosen_of_many_classes_where_noise_leaves_little_of_a_softmax(
    n: int, delta: float, mechanism: str
) -> None:
    sizes = np.array([n, n])
    facts = FederationFacts.uniform(sizes, epsilon=1.0, delta=delta, n_features=D, loss=Softmax(K), secure_sum=False)
    for name in ("release", "average"):
        algorithm, choices = settle(name, {}, facts)
        assert choices["mechanism"].value == mechanism
        assert algorithm.cautions(facts) == ()
        assert settle(name, {"mechanism": "centroids", "regularization": 1e-9}, facts)[0].cautions(facts) == ()


def test_a_first_fit_of_eight_classes_learns_more_than_noise_on_a_softmax_leaves() -> None:
    rng = np.random.default_rng(1)
    centres = rng.uniform(-6, 6, size=(8, 10))
    y = rng.integers(8, size=1000)
    X = centres[y] + rng.normal(scale=3, size=(1000, 10))

    def right(mechanism: Literal["auto", "output"]) -> float:
        models = (PrivateClassifier(bounds=(-15, 15), mechanism=mechanism, random_state=i) for i in range(3))
        return float(np.mean([model.fit(X, y).score(X, y) for model in models]))

    assert right("auto") > right("output") + 0.3
