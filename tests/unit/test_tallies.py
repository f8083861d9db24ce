"""Tallies: what they count, exactly, and how far one example can move them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import expit

from parley.common.algorithms.evaluate import Evaluate
from parley.common.arrays import FloatArray
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import MAX_EXAMPLES, UNIT, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.evaluation import Cells, Errors, Tally, tally
from parley.common.learning.losses import Logistic, Softmax, Squared
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query

FEATURE = (Feature(name="x", lower=-1, upper=1),)
REAL = Study(name="r", features=FEATURE, label=RealLabel(name="y", lower=0, upper=10), hold_out=0.5)
BINARY = Study(name="b", features=FEATURE, label=Label(name="y", values=("a", "b")), hold_out=0.5)


def examples(rng: np.random.Generator, y: FloatArray, d: int = 3) -> Shard:
    X = rng.normal(size=(*y.shape, d))
    return Shard(X / np.linalg.norm(X, axis=-1, keepdims=True), y)


def test_two_classes_are_counted_by_label_and_bin() -> None:
    rng = np.random.default_rng(1)
    shard = examples(rng, rng.choice([-1.0, 1.0], 500))
    weights = np.array([[2.0, -1.0, 0.5]])
    found = to_reals(tally(Cells(2, 10), shard, weights))
    groups, cells = found[:4], found[4:].reshape(2, 10)
    probability = expit(shard.scores(weights)[..., 0])
    for label, sign in enumerate((-1, 1)):
        due, _ = np.histogram(probability[shard.y == sign], np.linspace(0, 1, 11))
        assert np.array_equal(cells[label], due)
    assert np.array_equal(groups.reshape(2, 2), cells.reshape(2, 2, 5).sum(axis=-1))
    assert (groups[0] + groups[3]) / 500 == accuracy(Model(weights[0]), shard)
    assert found.sum() == 1000


@pytest.mark.parametrize("bins", [0, 2, 20])
def test_a_flawless_tally_is_that_of_a_model_without_error(bins: int) -> None:
    y = np.repeat([-1.0, 1.0], 3)
    weights = np.array([[99.0, 0.0]]) if bins else np.array([[-99.0, 0.0], [99.0, 0.0]])
    cells = Cells(2, bins)
    found = to_reals(tally(cells, Shard(np.column_stack([y, 0 * y]), y if bins else np.repeat([0.0, 1.0], 3)), weights))
    assert np.array_equal(cells.flawless(6), found)


def test_a_flawless_tally_of_real_labels_has_no_error() -> None:
    y = np.linspace(-1, 1, 20001)
    found = to_reals(tally(Errors(2.0), Shard(y[:, None], y), np.array([[1.0]])))
    assert Errors(2.0).flawless(20001) == pytest.approx(found, rel=1e-3, abs=1e-3)


def test_a_score_at_an_edge_is_in_the_bin_below_as_0_predicts_the_negative_class() -> None:
    shard = Shard(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0]))
    found = to_reals(tally(Cells(2, 2), shard, np.array([[0.0, 2.0**-16]])))
    assert found.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_classes_are_counted_by_truth_and_prediction() -> None:
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 4, 300)
    shard = examples(rng, encode_classes(classes, 4))
    weights = rng.normal(size=(4, 3))
    found = to_reals(tally(Cells(4), shard, weights))
    due = np.zeros((4, 4))
    np.add.at(due, (classes, shard.scores(weights).argmax(axis=-1)), 1)
    assert np.array_equal(found[2:].reshape(4, 4), due)
    assert found[:2].tolist() == [300 - due.trace(), due.trace()]


def test_errors_are_those_of_predictions_within_the_bounds() -> None:
    rng = np.random.default_rng(3)
    shard = examples(rng, rng.uniform(-1, 1, 400))
    weights = np.array([[3.0, 0.0, 0.0]])
    error = np.clip(shard.scores(weights)[..., 0], -1, 1) - shard.y
    assert np.abs(error).max() > 1
    for largest in (2.0, 1.0, 0.3):
        found = to_reals(tally(Errors(largest), shard, weights))
        counted = np.minimum(np.abs(error), largest) ** 2
        labels = [400, shard.y.sum(), (shard.y**2).sum()]
        assert found == pytest.approx([*(label / 2 for label in labels), counted.sum() / largest**2], abs=1e-6)


@pytest.mark.parametrize("what", [Cells(2, 20), Cells(3), Errors(2.0)], ids=str)
def test_rows_of_zeros_and_padding_do_not_count_and_stacks_count_apart(what: Tally) -> None:
    rng = np.random.default_rng(4)
    parts = [examples(rng, rng.choice([-1.0, 0.0, 1.0], n)) for n in (5, 9)]
    weights = rng.normal(size=(3 if what == Cells(3) else 1, 3))
    alone = [tally(what, part, weights) for part in parts]
    stacked = tally(what, Shard.stack(parts), weights)
    assert np.array_equal(stacked, np.stack(alone))
    dropped = Shard(np.concatenate([parts[0].X, np.zeros((3, 3))]), np.concatenate([parts[0].y, np.ones(3)]))
    assert np.array_equal(tally(what, dropped, weights), alone[0])
    one_by_one = sum(tally(what, parts[0].view(slice(i, i + 1)), weights) for i in range(5))
    assert np.array_equal(one_by_one, alone[0]), "blocks add up"


@pytest.mark.parametrize("largest", [2.0, 1.0, 0.01])
def test_no_replaced_label_or_error_moves_the_sums_past_the_square_root_of_2(largest: float) -> None:
    """Every pair of labels and errors of a fine grid, dropped rows too, in integers; and one pair attains it."""
    errors = Errors(largest)
    y, score = (part.ravel() for part in np.meshgrid(np.linspace(-1, 1, 33), np.linspace(-1.5, 1.5, 25)))
    each = errors.add_up(score[:, None, None], y[:, None], np.ones((len(y), 1), dtype=np.bool_))
    reals: FloatArray = np.concatenate([each, np.zeros((1, 4), dtype=np.int64)]).astype(np.float64)
    squares: FloatArray = ((reals[:, None, :] - reals[None, :, :]) ** 2).sum(axis=-1) / UNIT**2
    first, second = divmod(int(squares.argmax()), len(reals))
    moved = map(int, (reals[first] - reals[second]).tolist())
    bound = (Fraction(errors.sensitivity) * UNIT) ** 2
    assert sum(move**2 for move in moved) <= bound
    assert squares.max() == pytest.approx(2)


def test_a_replaced_example_moves_counts_by_2() -> None:
    one, other = (Shard(np.array([[x, 0.0]]), np.array([y])) for x, y in ((1.0, 1.0), (-1.0, -1.0)))
    for what in (Cells(2, 20), Cells(2, 2)):
        moved = to_reals(tally(what, one, np.ones((1, 2))) - tally(what, other, np.ones((1, 2))))
        assert math.hypot(*moved.tolist()) == 2.0 == what.sensitivity


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, 65_537.0])
def test_weights_that_are_no_numbers_are_refused(bad: float) -> None:
    shard = Shard(np.array([[1.0, 0.0]]), np.array([1.0]))
    with pytest.raises(InvalidInputError, match="weights"):
        tally(Cells(2, 2), shard, np.array([[bad, 0.0]]))


def test_more_examples_than_a_sum_holds_are_refused() -> None:
    class Many(Shard):
        @property
        def y(self) -> FloatArray:
            return np.broadcast_to(0.0, (MAX_EXAMPLES + 1,))

    with pytest.raises(InvalidInputError, match=f"holds {MAX_EXAMPLES} examples, not {MAX_EXAMPLES + 1}"):
        tally(Errors(2.0), object.__new__(Many), np.zeros((1, 1)))


def facts(study: Study | None, loss: Logistic | Softmax | Squared, shape: tuple[int, int] = (1, 2)) -> FederationFacts:
    terms = {"epsilon": 1.0, "delta": 1e-5, "n_features": 2, "study": study, "public_shape": shape}
    return FederationFacts.uniform(np.array([50, 60]), loss=loss, **terms)  # type: ignore[arg-type]


def test_what_is_counted_follows_from_the_study() -> None:
    algorithm = Evaluate()
    assert algorithm.tally(facts(REAL, Squared())) == Errors(2.0)
    assert algorithm.tally(facts(BINARY, Squared())) == algorithm.tally(facts(None, Logistic())) == Cells(2, 20)
    assert algorithm.tally(facts(None, Softmax(4))) == Cells(4)
    assert [q.answer for q in algorithm.questions(facts(None, Softmax(4), (4, 2)))] == [18]
    assert Evaluate(bins=6, largest_error=1.0).tally(facts(REAL, Squared())) == Errors(1.0)


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (4, 2)])
def test_public_rows_that_are_no_model_of_the_study_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be a model's weights, \(1, 2\), not "):
        Evaluate().questions(facts(None, Logistic(), shape))


def test_a_party_adds_nothing_to_the_exact_sums_but_noise() -> None:
    own = facts(BINARY, Logistic()).of(0)
    shard = Shard(np.eye(2), np.array([1.0, -1.0]))
    query = Query(1, "evaluate", np.array([[1.0, -1.0]]))
    answer = Evaluate(bins=2).local(query, shard, own, NoNoise())
    assert to_reals(answer).tolist() == [1, 0, 0, 1, 1, 0, 0, 1]


def test_the_deviation_of_a_sum_is_that_of_its_parts() -> None:
    plain = facts(BINARY, Logistic())
    alone = float(Evaluate().sigma(plain.of(0)))
    assert Evaluate().deviation(plain, (0, 1)) == pytest.approx(math.sqrt(2) * alone)
    assert Evaluate().deviation(plain, (1,)) == pytest.approx(alone)
    terms = {"epsilon": 1.0, "delta": 1e-5, "n_features": 2, "colluders": 1, "secure_sum": True}
    summed = FederationFacts.uniform(np.array([5, 5, 5]), loss=Logistic(), **terms)  # type: ignore[arg-type]
    assert Evaluate().deviation(summed, (0, 1, 2)) == pytest.approx(math.sqrt(3 / 2) * alone)
