"""Tallies: what they count, exactly, and how far one example can move them; edges where scores are; the noise's law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from parley.common.algorithms.evaluate import Evaluate, largest_score
from parley.common.arrays import FloatArray
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import MAX_EXAMPLES, UNIT, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.evaluation import (
    CLASS_EDGES,
    ClassCells,
    Errors,
    ScoreCells,
    ScoreSteps,
    Tally,
    spread_edges,
    tally,
)
from parley.common.learning.losses import Logistic, Softmax, Squared
from parley.common.learning.noise_law import SummedLaplace
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply

FEATURE = (Feature(name="x", lower=-1, upper=1),)
REAL = Study(name="r", features=FEATURE, label=RealLabel(name="y", lower=0, upper=10), hold_out=0.5)
BINARY = Study(name="b", features=FEATURE, label=Label(name="y", values=("a", "b")), hold_out=0.5)
EDGES = np.array([-1.0, -0.25, 0.0, 0.5])


def examples(rng: np.random.Generator, y: FloatArray, d: int = 3) -> Shard:
    X = rng.normal(size=(*y.shape, d))
    return Shard(X / np.linalg.norm(X, axis=-1, keepdims=True), y)


def test_scores_are_counted_in_even_steps_of_all_labels() -> None:
    rng = np.random.default_rng(1)
    shard, weights = examples(rng, rng.choice([-1.0, 1.0], 500)), np.array([[2.0, -1.0, 0.5]])
    steps = ScoreSteps(16, 2.0)
    found = to_reals(tally(steps, shard, weights))
    scores = np.clip(shard.scores(weights)[..., 0], -2, 2)
    assert found.tolist() == np.histogram(scores, np.linspace(-2, 2, 17))[0].tolist()
    assert (steps.width, steps.moves, found.sum()) == (16, (1.0, 1.0), 500)


def test_two_classes_are_counted_by_label_and_bin() -> None:
    rng = np.random.default_rng(1)
    shard = examples(rng, rng.choice([-1.0, 1.0], 500))
    weights = np.array([[2.0, -1.0, 0.5]])
    found = to_reals(tally(ScoreCells(EDGES), shard, weights)).reshape(2, 5)
    scores = shard.scores(weights)[..., 0]
    for label, sign in enumerate((-1, 1)):
        due, _ = np.histogram(scores[shard.y == sign], [-math.inf, *EDGES, math.inf])
        assert np.array_equal(found[label], due)


def test_a_score_at_an_edge_is_in_the_bin_below_as_0_predicts_the_negative_class() -> None:
    shard = Shard(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0]))
    found = to_reals(tally(ScoreCells(np.zeros(1)), shard, np.array([[0.0, 2.0**-16]])))
    assert found.tolist() == [0, 0, 1, 1]


def test_edges_that_do_not_ascend_leave_each_examples_bin_its_own() -> None:
    """NumPy's search among such edges depends on the values that it searched for before."""
    rng, weights = np.random.default_rng(9), np.array([[1.0, 0.0, 0.0]])
    shard, kind = examples(rng, rng.choice([-1.0, 1.0], 200)), ScoreCells(rng.uniform(-1, 1, 40))
    alone = sum(tally(kind, shard.view(slice(i, i + 1)), weights) for i in range(200))
    assert np.array_equal(tally(kind, shard, weights), alone)


def test_classes_are_counted_by_truth_and_prediction_and_by_their_probability() -> None:
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 4, 300)
    shard = examples(rng, encode_classes(classes, 4))
    weights, kind = 9 * rng.normal(size=(4, 3)), ClassCells(4)
    found = to_reals(tally(kind, shard, weights))
    due = np.zeros((4, 4))
    scores = shard.scores(weights)
    np.add.at(due, (classes, scores.argmax(axis=-1)), 1)
    assert np.array_equal(found[:16].reshape(4, 4), due)
    p = softmax(scores, axis=-1)
    ends = [-math.inf, *CLASS_EDGES, math.inf]
    for label, counts in enumerate(found[16:].reshape(4, 2, -1) / kind.weight):
        log_odds = np.log(p[:, label] / (1 - p[:, label]))
        for is_true in (False, True):
            assert np.array_equal(counts[int(is_true)], np.histogram(log_odds[(classes == label) == is_true], ends)[0])


def test_errors_are_those_of_predictions_within_the_bounds() -> None:
    rng = np.random.default_rng(3)
    shard = examples(rng, rng.uniform(-1, 1, 400))
    weights = np.array([[3.0, 0.0, 0.0]])
    error = np.clip(shard.scores(weights)[..., 0], -1, 1) - shard.y
    assert np.abs(error).max() > 1
    for largest in (2.0, 1.0, 0.3):
        found = to_reals(tally(Errors(largest), shard, weights))
        counted = np.minimum(np.abs(error), largest) / largest
        due = [200, shard.y.sum() / 2, (shard.y**2).sum() / 2, (counted**2).sum(), counted.sum() / 2]
        assert found == pytest.approx(due, abs=1e-6)


@pytest.mark.parametrize("what", [ScoreSteps(8, 2.0), ScoreCells(EDGES), ClassCells(3), Errors(2.0)], ids=str)
def test_rows_of_zeros_and_padding_do_not_count_and_stacks_count_apart(what: Tally) -> None:
    rng = np.random.default_rng(4)
    parts = [examples(rng, rng.choice([-1.0, 0.0, 1.0], n)) for n in (5, 9)]
    weights = rng.normal(size=(3 if isinstance(what, ClassCells) else 1, 3))
    alone = [tally(what, part, weights) for part in parts]
    stacked = tally(what, Shard.stack(parts), weights)
    assert np.array_equal(stacked, np.stack(alone))
    dropped = Shard(np.concatenate([parts[0].X, np.zeros((3, 3))]), np.concatenate([parts[0].y, np.ones(3)]))
    assert np.array_equal(tally(what, dropped, weights), alone[0])
    one_by_one = sum(tally(what, parts[0].view(slice(i, i + 1)), weights) for i in range(5))
    assert np.array_equal(one_by_one, alone[0]), "blocks add up"


@pytest.mark.parametrize("largest", [2.0, 1.0, 0.01])
def test_no_replaced_label_or_error_moves_the_sums_past_21_eighths_nor_a_dropped_row_past_3(largest: float) -> None:
    """Every pair of labels and errors of a fine grid, in integers; a pair attains each."""
    errors = Errors(largest)
    y, score = (part.ravel() for part in np.meshgrid(np.linspace(-1, 1, 33), np.linspace(-1.5, 1.5, 49)))
    each = errors.add_up(score[:, None, None], y[:, None], np.ones((len(y), 1)))
    most = max(int(np.abs(each - one).sum(axis=-1).max()) for one in each)
    assert most <= (Fraction(21, 8) + Fraction(1, 2**29)) * UNIT
    assert most / UNIT == pytest.approx(21 / 8, abs=1e-3)
    none = errors.add_up(np.ones((1, 1, 1)), np.ones((1, 1)), np.zeros((1, 1)))
    dropped = int(np.abs(each - none).sum(axis=-1).max())
    assert max(most, dropped) == dropped == sum(errors.moves) * UNIT


@pytest.mark.parametrize("k", [3, 4, 9])
def test_no_replaced_example_moves_counts_of_classes_past_their_sensitivity(k: int) -> None:
    rng, kind = np.random.default_rng(5), ClassCells(k)
    y = np.repeat(encode_classes(np.arange(k), k), 40)
    scores = 8 * rng.normal(size=(len(y), 1, k))
    sums = kind.add_up(scores, y[:, None], np.ones((len(y), 1)))
    most = max(int(np.abs(sums - one).sum(axis=-1).max()) for one in sums)
    assert most == sum(kind.moves) * UNIT, "and one pair attains it"
    assert sum(kind.moves) <= 3


def test_a_replaced_example_moves_counts_of_scores_by_2() -> None:
    one, other = (Shard(np.array([[x, 0.0]]), np.array([y])) for x, y in ((1.0, 1.0), (-1.0, -1.0)))
    for what in (ScoreSteps(8, 1.0), ScoreCells(EDGES)):
        moved = to_reals(tally(what, one, np.ones((1, 2))) - tally(what, other, np.ones((1, 2))))
        assert sorted(np.abs(moved))[-2:] == [*what.moves]
        assert np.abs(moved).sum() == 2


@pytest.mark.parametrize(
    "what", [ScoreSteps(8, 2.0), ScoreCells(EDGES), ClassCells(3), Errors(2.0), Errors(0.3)], ids=str
)
def test_a_person_exchanged_moves_a_tally_as_an_example_does(what: Tally) -> None:
    """Of up to 40 rows, alike or not, and of zeros: dropped ones."""
    rng, furthest = np.random.default_rng(7), 0
    weights = rng.normal(size=(3 if isinstance(what, ClassCells) else 1, 3))
    n, rows = 2000, 40
    n_rows = rng.choice([1, 2, 7, 40], n)
    mask = np.arange(rows) < n_rows[:, None]
    X = rng.normal(size=(n, rows, 3)) * rng.choice([0.0, 1.0, 1.0], (n, 1, 1))
    X *= rng.choice([0.0, 1.0, 1.0, 1.0], (n, rows, 1))
    y = rng.choice([-1.0, 0.0, 1.0], (n, rows)) if not isinstance(what, Errors) else rng.uniform(-1.2, 1.2, (n, rows))
    for alike in (X, y):
        alike[: n // 2] = alike[: n // 2, :1]
    y[~(np.abs(y) <= 1)] = 1.0
    shard = Shard(X, y, mask, begins=~mask | (np.arange(rows) == 0))
    sums = tally(what, shard, weights)
    for shift in (1, 2, 3):
        furthest = max(furthest, int(np.abs(sums - np.roll(sums, shift, axis=0)).sum(axis=-1).max()))
    assert 0.7 * sum(what.moves) * UNIT < furthest <= sum(what.moves) * UNIT


def test_the_deviation_of_a_share_of_persons_is_no_less_than_what_it_varies_by() -> None:
    """Rows of a person are alike, or not: of 400 persons of 1 to 9 rows, each half the time right."""
    rng, n = np.random.default_rng(8), 400
    for alike in (0.0, 0.5, 1.0):
        shares = []
        for _ in range(600):
            n_rows = rng.integers(1, 10, n)
            of_person = np.repeat(rng.random(n) < 0.5, n_rows)
            right = np.where(rng.random(len(of_person)) < alike, of_person, rng.random(len(of_person)) < 0.5)
            shares.append(float(np.repeat(1 / n_rows, n_rows) @ right) / n)
        assert float(np.std(shares)) < 1.1 * math.sqrt(0.25 / n)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, 65_537.0])
def test_weights_that_are_no_numbers_are_refused(bad: float) -> None:
    shard = Shard(np.array([[1.0, 0.0]]), np.array([1.0]))
    with pytest.raises(InvalidInputError, match="weights"):
        tally(ScoreCells(EDGES), shard, np.array([[bad, 0.0]]))


def test_more_examples_than_a_sum_holds_are_refused() -> None:
    class Many(Shard):
        weighing = None

        @property
        def y(self) -> FloatArray:
            return np.broadcast_to(0.0, (MAX_EXAMPLES + 1,))

    with pytest.raises(InvalidInputError, match=f"holds {MAX_EXAMPLES} examples, not {MAX_EXAMPLES + 1}"):
        tally(Errors(2.0), object.__new__(Many), np.zeros((1, 1)))


@pytest.mark.parametrize(("middle", "spread"), [(0.0, 2.0), (0.0, 0.15), (-2.5, 0.3), (3.0, 0.6)])
def test_edges_lie_about_the_middle_of_scores_as_wide_as_they_spread(middle: float, spread: float) -> None:
    rng, steps = np.random.default_rng(6), ScoreSteps(128, 5.0)
    scores = np.clip(rng.normal(middle, spread, 4000), -5, 5)
    counts = np.histogram(scores, np.linspace(-5, 5, 129))[0] + rng.laplace(0, 8, 128)
    edges = spread_edges(counts, steps, 8 * math.sqrt(2), 4000, 15)
    assert (np.diff(edges) > 0).all()
    assert edges[7] == pytest.approx(middle, abs=0.3 * spread)
    assert 1.5 * spread < edges[-1] - middle < 6 * spread


def test_edges_spread_over_a_third_of_what_is_possible_where_noise_hides_scores() -> None:
    rng, steps = np.random.default_rng(7), ScoreSteps(8, 6.0)
    counts = np.histogram(np.full(30, 4.0), np.linspace(-6, 6, 9))[0] + rng.laplace(0, 1000, 8)
    edges = spread_edges(counts, steps, 1000 * math.sqrt(2), 30_000, 4)
    assert edges == pytest.approx(-edges[::-1])
    assert 0 < edges[-1] <= 6


def law_of(scales: Sequence[float], shape: float = 1.0) -> SummedLaplace:
    return SummedLaplace.of(scales, shape)


@pytest.mark.parametrize(
    "law", [law_of([2.0]), law_of([2.0, 2.0, 0.5]), law_of([3.0], 1.5), law_of([1.0] * 12)], ids=str
)
def test_a_noise_laws_deviation_draws_and_density_agree(law: SummedLaplace) -> None:
    drawn = law.draws(20)
    assert drawn.std() == pytest.approx(law.deviation, rel=0.05)
    assert np.array_equal(drawn, law.draws(20)), "the same for the same law"
    x = np.linspace(-30 * law.deviation, 30 * law.deviation, 200_001)
    density = np.exp(law.log_density(x))
    density /= np.trapezoid(density, x)
    assert np.trapezoid(density * x**2, x) == pytest.approx(law.deviation**2, rel=0.02)
    for within in (0.5, 1.0, 2.0):
        inside = np.abs(x) <= within * law.deviation
        share = float((np.abs(drawn) <= within * law.deviation).mean())
        assert np.trapezoid(density[inside], x[inside]) == pytest.approx(share, abs=0.015)


def test_the_density_of_two_laplace_numbers_is_the_known_one() -> None:
    """That of a sum of two of scale 1 is (1 + |x|) exp(-|x|) / 4."""
    x = np.linspace(-5, 5, 41)
    found = law_of([1.0, 1.0]).log_density(x)
    due = np.log1p(np.abs(x)) - np.abs(x)
    assert found - found[20] == pytest.approx(due - due[20], abs=2e-3)


def test_shares_add_up_to_laplace_noise_and_a_factor_widens_it() -> None:
    whole = law_of([2.0], 1 / 4 * 4)
    assert whole == law_of([2.0])
    assert whole.times(3.0).deviation == pytest.approx(3 * math.sqrt(2) * 2)
    assert stats.kstest(whole.draws(1)[:, 0], stats.laplace(0, 2).cdf).pvalue > 1e-6
    assert law_of([1.0, 1.0]) == law_of([1.0], 2.0)


def facts(study: Study | None, loss: Logistic | Softmax | Squared, shape: tuple[int, int] = (1, 2)) -> FederationFacts:
    terms = {"epsilon": 1.0, "delta": 0.0, "n_features": 2, "study": study, "public_shape": shape}
    return FederationFacts.uniform(np.array([5000, 6000]), loss=loss, **terms)  # type: ignore[arg-type]


def test_what_is_counted_follows_from_the_study() -> None:
    algorithm = Evaluate(largest_error=1.0)
    assert algorithm.fixed_tally(facts(REAL, Squared())) == Errors(1.0)
    assert algorithm.fixed_tally(facts(None, Softmax(4))) == ClassCells(4)
    assert [q.answer for q in algorithm.questions(facts(REAL, Squared()))] == [5]
    assert [q.answer for q in algorithm.questions(facts(None, Softmax(4), (4, 2)))] == [ClassCells(4).width]
    for two in (facts(BINARY, Squared()), facts(None, Logistic())):
        first, second = algorithm.questions(two)
        assert (first.step, first.answer) == ("scores", algorithm.n_steps(two))
        assert (second.step, second.answer) == ("evaluate", 2 * (algorithm.n_edges(two) + 1))
        assert algorithm.part(1, two) + algorithm.part(2, two) == 1.0


def test_two_classes_are_asked_for_scores_and_then_between_edges_one_of_them_0() -> None:
    two = replace(facts(BINARY, Logistic()), public=np.array([[3.0, -1.0]]))
    algorithm = Evaluate()
    program = algorithm.program(two)
    first = next(program)
    assert np.array_equal(first.message, two.public_rows)
    counts = np.zeros(algorithm.n_steps(two))
    counts[: len(counts) // 4] = 11_000 / (len(counts) // 4)
    second = program.send(Reply(counts, (0, 1)))
    algorithm.questions(two)[1].check(second)
    cells = algorithm.tally(second, two.of(0))
    assert isinstance(cells, ScoreCells)
    assert 0.0 in cells.edges
    assert (np.diff(cells.edges) >= 0).all()
    with pytest.raises(StopIteration) as end:
        program.send(Reply(np.arange(2.0 * (len(cells.edges) + 1)), (0, 1)))
    assert np.array_equal(end.value.value.made_of["edges"], cells.edges)


@pytest.mark.parametrize("weight", [0.0, 1e-310, 1.0, 3e4, 46340.95])
def test_edges_between_the_scores_of_large_weights_are_asked_about_and_read_as_they_are(weight: float) -> None:
    two = replace(facts(BINARY, Logistic()), public=np.full((1, 2), weight))
    algorithm = Evaluate()
    program = algorithm.program(two)
    next(program)
    counts = np.zeros(algorithm.n_steps(two))
    counts[[0, -1]] = 5500
    second = program.send(Reply(counts, (0, 1)))
    algorithm.questions(two)[1].check(second)
    cells = algorithm.tally(second, two.of(0))
    with pytest.raises(StopIteration) as end:
        program.send(Reply(np.zeros(cells.width), (0, 1)))
    assert isinstance(cells, ScoreCells)
    assert np.array_equal(end.value.value.made_of["edges"], cells.edges)
    assert 0.0 in cells.edges
    assert (np.diff(cells.edges) > 1e-9).all()


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (4, 2)])
def test_public_rows_that_are_no_model_of_the_study_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be a model's weights, \(1, 2\), not "):
        Evaluate().questions(facts(None, Logistic(), shape))


def test_a_score_is_no_larger_than_the_norm_of_rows_allows() -> None:
    two = facts(None, Logistic())
    assert largest_score(np.array([[3.0, -4.0]]), two) == 5.0
    assert largest_score(np.zeros((1, 2)), two) == 1.0


def test_a_party_adds_nothing_to_the_exact_sums_but_noise() -> None:
    own, algorithm = facts(BINARY, Logistic()).of(0), Evaluate()
    shard = Shard(np.eye(2), np.array([1.0, -1.0]))
    edges = np.sort(np.append(np.linspace(-2, 2, algorithm.n_edges(own) - 1), 0.0))
    below = np.zeros((math.ceil(len(edges) / 2), 2))
    below.ravel()[: len(edges)] = edges
    query = Query(2, "evaluate", np.concatenate([[[1.0, -1.0]], below]))
    answer = to_reals(algorithm.local(query, shard, own, NoNoise())).reshape(2, -1)
    places = np.searchsorted(edges, [1.0, -1.0])
    assert (answer[1, places[0]], answer[0, places[1]], answer.sum()) == (1, 1, 2)


def test_the_noise_of_a_sum_is_that_of_its_parts() -> None:
    plain = facts(BINARY, Logistic())
    scale = float(np.max(Evaluate().scale(2, plain.of(0))))
    assert scale == pytest.approx(2 / Evaluate().part(2, plain))
    assert Evaluate().noise_law(2, plain, (0, 1)).deviation == pytest.approx(2 * scale)
    assert Evaluate().noise_law(2, plain, (1,)) == SummedLaplace.of([scale])
    terms = {"epsilon": 1.0, "delta": 0.0, "n_features": 2, "colluders": 1, "secure_sum": True}
    summed = FederationFacts.uniform(np.array([5, 5, 5]), loss=Logistic(), **terms)  # type: ignore[arg-type]
    law = Evaluate().noise_law(2, summed, (0, 1, 2))
    assert law.deviation == pytest.approx(math.sqrt(3 / 2) * math.sqrt(2) * scale)
