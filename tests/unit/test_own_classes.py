"""Averages of parties that lack classes: whom they are over, and that a mark for each class costs no privacy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.parameter_average import ParameterAverage
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import UNIT, Norm
from parley.common.learning.erm import TOLERANCE, minimise
from parley.common.learning.losses import Softmax, largest_minimiser
from parley.common.privacy.mechanisms.class_means import classes_had, largest_mark, longest_of_own, minimise_own
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import simulate
from tests.support.minimisers import longest

D = 4


def one_of_two(k: int) -> OwnFacts:
    """The facts of a run of two parties and k classes, as one sees them."""
    return FederationFacts.uniform(np.full(2, 5), epsilon=1.0, delta=1e-5, n_features=D, loss=Softmax(k)).of(0)


def of_own_classes(k: int, own: list[int], sign: float, length: float) -> Shard:
    """A party of 3,000 rows: nearly all of its first class and as long as can be, one that hardly is of each other."""
    X, classes = np.full((3000, D), 0.0), np.full(3000, own[0])
    X[:, 0] = sign * length
    X[1 : len(own)], classes[1 : len(own)] = 0.0, own[1:]
    X[1 : len(own), 1] = 2.0**-16
    return Shard(X, encode_classes(classes, k))


def answered(
    k: int, own: list[int], sign: float, regularization: float = 1e-3, calibration: str = "tight"
) -> tuple[IntArray, float, ParameterAverage]:
    """What such a party answers without noise, and how far the sum may move."""
    algorithm = build_algorithm("parameter_average", {"regularization": regularization, "calibration": calibration})
    assert isinstance(algorithm, ParameterAverage)
    alone, query = one_of_two(k), Query(1, "minimise", np.zeros(0))
    length = min(1.0, longest(Softmax(max(len(own), 2))) * math.sqrt(regularization))
    prepared = algorithm.prepare(of_own_classes(k, own, sign, length), alone)
    exact = algorithm.local(query, prepared, alone, NoNoise())
    return exact, float(np.max(algorithm.sensitivity(query, alone))) * UNIT, algorithm


@pytest.mark.parametrize(("regularization", "calibration"), [(1e-3, "tight"), (50.0, "paper")])
@pytest.mark.parametrize("k", [2, 3, 6])
def test_parties_of_all_classes_move_the_average_as_far_as_is_said(
    k: int, regularization: float, calibration: str
) -> None:
    """By the paper as far as a slope at 0 is steep."""
    one, most, _ = answered(k, list(range(k)), 1.0, regularization, calibration)
    other, _, _ = answered(k, list(range(k)), -1.0, regularization, calibration)
    ratio = float(np.linalg.norm((one - other).astype(np.float64))) / most
    print(f"{calibration}, {k} classes: {ratio:.4f} of the bound")
    steep = 1.0 if calibration == "tight" else math.sqrt((k - 1) / k / 2)
    assert 0.97 * steep < ratio <= 1


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3, 6])
def test_counting_the_classes_that_parties_have_costs_nothing(k: int) -> None:
    """However few each of a pair has, in common or not, both answers together move no further."""
    furthest, step = 0.0, 0
    for few in range(1, k + 1):
        for many in range(few, k + 1):
            for others in (list(range(few)), list(range(k - few, k))):
                one, most, algorithm = answered(k, others, -1.0)
                other, _, _ = answered(k, list(range(many)), 1.0)
                step = algorithm.class_step(one_of_two(k))
                assert set(one[-k:].tolist()) <= {0, step}
                assert (one[-k:] > 0).sum() == few
                furthest = max(furthest, float(np.linalg.norm((one - other).astype(np.float64))) / most)
    radii = [0.0, 0.0, *(largest_minimiser(Softmax(each), 1e-3) for each in range(2, k + 1))]
    size = step * algorithm.unit(one_of_two(k)) / UNIT
    beyond = [
        (radii[one] + radii[other]) ** 2 + (2 * k - one - other) * (1.01 * size) ** 2 > (2 * radii[k]) ** 2
        for one in range(k + 1)
        for other in range(k + 1)
        if one + other < 2 * k
    ]
    print(f"{k} classes: {furthest:.4f} of the bound; one counts {size / radii[k]:.3f} of the longest minimiser")
    assert 0.99 < furthest <= 1
    assert any(beyond), "with a step that is larger by a hundredth, the proof fails"


def test_an_average_is_over_those_who_have_the_class() -> None:
    """Ten parties know classes 0 and 1, two know 1 and 2: what is said of class 2 is divided by two, not by twelve."""
    classes = np.array([[0, 1]] * 10 + [[1, 2]] * 2)
    parties = Shard(np.eye(3)[classes], encode_classes(classes, 3))
    of = FederationFacts.uniform(np.full(12, 2), epsilon=1e4, delta=1e-5, n_features=3, loss=Softmax(3))
    tight, published = (
        simulate(ParameterAverage(1e-2, calibration), parties, of, NoNoise()).weights
        for calibration in ("tight", "paper")
    )
    fits = minimise(Softmax(3), parties, np.full(12, 2e-2))
    radius = largest_minimiser(Softmax(2), 1e-2)
    lengths = np.maximum(np.linalg.norm(fits, axis=(1, 2), keepdims=True), radius)
    assert tight == pytest.approx((fits * radius / lengths).sum(axis=0) / np.array([[10], [12], [2]]), rel=0.01)
    own = minimise(Softmax(2), Shard(np.eye(2), np.array([-1.0, 1.0])), 2e-2)
    assert published[0] == pytest.approx([*(own[0] * 10 / 12), 0.0], abs=1e-4)
    assert published[2] == pytest.approx([0.0, *(own[1] * 2 / 12)], abs=1e-4)


def test_counts_are_drawn_together_by_the_noise_of_those_who_answered() -> None:
    algorithm, models = ParameterAverage(1e-2), []
    for n_parties in (3, 12):
        of = FederationFacts.uniform(np.full(n_parties, 2), epsilon=50.0, delta=1e-5, n_features=3, loss=Softmax(3))
        program = algorithm.program(of)
        next(program)
        marks = np.array([3.0, 2.0, 1.0]) * algorithm.class_step(of) / UNIT
        with pytest.raises(StopIteration) as done:
            program.send(Reply(np.concatenate([np.ones(9), marks]), (0, 1, 2)))
        models.append(done.value.value.weights)
    assert (models[0] == models[1]).all()


def test_a_person_of_three_equal_rows_is_fitted_as_one_row() -> None:
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(2, 12, D)), encode_classes(rng.integers(0, 3, (2, 12)), 4)
    persons = Shard(np.repeat(X, 3, axis=1), np.repeat(y, 3, axis=1), begins=np.tile(np.arange(36) % 3 == 0, (2, 1)))
    once, thrice = (minimise_own(Softmax(4), shard, np.ones(2)) for shard in (Shard(X, y), persons))
    assert np.allclose(once, thrice, atol=1e-3)
    assert np.abs(once).max() > 0.1


def test_of_one_class_or_none_there_is_nothing_to_fit() -> None:
    """So a mark may be larger, where what differs is only whether there is a second class."""
    for regularization in (1e-3, 50.0):
        longest_two = largest_minimiser(Softmax(2), regularization)
        assert longest_of_own(2, regularization).tolist() == [0.0, 0.0, longest_two]
        assert longest_of_own(1, regularization).tolist() == [0.0, 0.0]
        assert largest_mark(2, regularization) == pytest.approx(longest_two), "of none and of two, 4 r^2 - r^2 over 2"


@pytest.mark.parametrize("norm", ["euclidean", "max"])
def test_dropped_rows_have_no_part_in_a_fit_of_own_classes(norm: Norm) -> None:
    """Their numbers are, in every class; a row that a study drops is zeros, and one of padding masked."""
    rng = np.random.default_rng(4)
    X, classes = rng.uniform(-1, 1, (2, 6, D)), np.array([[0, 2, 2, 0, 2, 0], [1, 2, 2, 1, 2, 2]])
    X[0, 5] = 0.0
    mask = np.ones((2, 6), np.bool_)
    mask[:, 4] = False
    X[:, 4], classes[0, 5], classes[:, 4] = 1.0, 4, [1, 4]
    parties = Shard(X, encode_classes(classes, 5), mask, norm)
    assert classes_had(parties, 5).tolist() == [[True, False, True, False, False], [False, True, True, False, False]]
    found = minimise_own(Softmax(5), parties, np.array([0.5, 2.0])).reshape(2, 5, D)
    for party, strength, own, rows in ((0, 0.5, [0, 2], [0, 1, 2, 3]), (1, 2.0, [1, 2], [0, 1, 2, 3, 5])):
        numbered = np.searchsorted(own, classes[party, rows])
        alone = Shard(X[party, rows], encode_classes(numbered, 2), norm=norm)
        fit = minimise(Softmax(2), alone, strength, tolerance=TOLERANCE)
        assert np.abs(found[party, own] - fit).max() < 1e-6
        assert not found[party, [each for each in range(5) if each not in own]].any()
