"""How far a party moves what an ensemble makes of it: never past the bound, and by some pair of shards as far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.ensemble import Ensemble, Voters
from parley.common.algorithms.parameter_average import ParameterAverage
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import UNIT
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.classifiers import LocalClassifier
from parley.common.learning.erm import minimise
from parley.common.learning.losses import (
    Hinge,
    Huber,
    Logistic,
    Loss,
    Softmax,
    Squared,
    largest_minimiser,
    loss_at_zero,
)
from parley.common.privacy.events import GaussianEvent, LaplaceEvent, NoEvent, NonPrivateEvent, SequentialEvent
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.pricing import guarantees, price
from parley.common.runs.specification import PublicRows
from parley.party.policy import review, rules_of
from tests.support.cluster import Cluster
from tests.support.minimisers import longest
from tests.support.nightly import repeats
from tests.support.rounds import run_spec

D, N, PAIRS = 4, 12, 504
KINDS: list[LocalClassifier] = [
    TypeAdapter[LocalClassifier](LocalClassifier).validate_python(given)
    for given in (
        {"kind": "logistic"}, {"kind": "svm"}, {"kind": "tree"}, {"kind": "forest", "n_trees": 3},
        {"kind": "knn", "n_neighbours": 3}, {"kind": "bayes"},
    )
]  # fmt: skip
LOSSES: list[Loss] = [Logistic(), Huber(0.5), Softmax(2), Softmax(6)]
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=repr)
ENSEMBLES = pytest.mark.parametrize("name", ["ensemble_vote", "ensemble_soft"])


def classes_of(loss: Loss) -> int:
    return max(2, loss.outputs)


def on_sphere(rng: np.random.Generator, *shape: int) -> FloatArray:
    X = rng.normal(size=shape)
    return np.asarray(X / np.linalg.norm(X, axis=-1, keepdims=True))


def facts(loss: Loss, m: int, rows: FloatArray, **terms: Any) -> FederationFacts:  # noqa: ANN401 -- fields
    budgets = {"epsilon": 1.0, "delta": 1e-5} | {key: terms.pop(key) for key in ("epsilon", "delta") if key in terms}
    given = {"public": rows, "public_shape": rows.shape, "n_features": rows.shape[1]} | budgets | terms
    return FederationFacts.uniform(np.full(m, 5), loss=loss, **given)


def ensemble(name: str, **parameters: object) -> Ensemble:
    built = build_algorithm(name, parameters)
    assert isinstance(built, Ensemble)
    return built


# ── one party's shard is another ─────────────────────────────────────────────


def pair(rng: np.random.Generator, which: int, k: int) -> tuple[tuple[FloatArray, IntArray], ...]:
    """Two shards of five rows, as rows and classes: at random, and by malice."""
    X, other = on_sphere(rng, 2, 5, D) * rng.uniform(0.1, 1.0, (2, 5, 1))
    classes, others = rng.integers(k, size=(2, 5))
    first, last = np.zeros(5, np.int64), np.full(5, k - 1)
    u = on_sphere(rng, D)
    apart = np.outer([1, 1, -1, -1, -1], u), np.array([0, 0, k - 1, k - 1, k - 1])
    return [
        ((X, classes), (other, others)),
        ((X, classes), (X, k - 1 - classes)),  # labels flipped
        ((X, first), (X, last)),  # one class each: votes for it alone
        ((np.zeros((5, D)), classes), (X, classes)),
        ((X[[0] * 5], classes), (X, classes)),  # one row five times
        ((X, classes), (-X, classes)),
        (apart, (apart[0], k - 1 - apart[1])),
        ((X, first), (other, others)),
    ][which % 8]


def stacked_pairs(seed: int, k: int) -> tuple[Shard, tuple[LocalClassifier | None, ...]]:
    """So many pairs, first halves before second ones, and what each of them trains: mostly linear classifiers."""
    rng = np.random.default_rng(seed)
    pairs = [pair(rng, which, k) for which in range(PAIRS)]
    X, y = (
        np.array([half[part] for side in zip(*pairs, strict=True) for half in side], dtype=np.float64)
        for part in (0, 1)
    )
    chosen = [KINDS[place // 10 % 6] if place % 10 == 3 else None for place in range(2 * PAIRS)]
    return Shard(X, encode_classes(y.astype(np.int64), k)), tuple(chosen)


@cache
def voters(loss: Logistic | Softmax) -> Voters:
    """What all halves of all pairs have trained."""
    shard, kinds = stacked_pairs(2, classes_of(loss))
    everyone = facts(loss, 2 * PAIRS, np.zeros((1, D)), classifiers=kinds).everyone
    return ensemble("ensemble_vote").prepare(shard, everyone)


def moves(algorithm: Ensemble, loss: Logistic | Softmax, rows: FloatArray, delta: float) -> tuple[IntArray, float]:
    """How far the halves of each pair lie apart before noise, (pairs, m), and the sensitivity that is declared."""
    own, query = facts(loss, 2 * PAIRS, rows, delta=delta).everyone, Query(1, "votes", rows)
    exact = algorithm.local(query, voters(loss), own, NoNoise())
    return exact[:PAIRS] - exact[PAIRS:], float(np.max(algorithm.sensitivity(query, own)))


def longest_square(moved: IntArray) -> int:
    """The squared 2-norm of the longest of integers (pairs, m), exactly: floating point says which may be that."""
    about = (moved.astype(np.float64) ** 2).sum(axis=1)
    return max(squares(moved[about >= (1 - 1e-9) * about.max()]))


def squares(moved: IntArray) -> list[int]:
    """Squared 2-norms (pairs,) of integers (pairs, m), exactly."""
    return [sum(int(value) ** 2 for value in row if value) for row in moved.tolist()]


@ENSEMBLES
@pytest.mark.parametrize("loss", [Logistic(), Softmax(2), Softmax(6)], ids=repr)
@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.slow
def test_a_party_moves_counts_by_at_most_all_votes_turned_over(
    name: str, loss: Logistic | Softmax, delta: float
) -> None:
    rows = on_sphere(np.random.default_rng(1), N, D)
    most = N if classes_of(loss) == 2 else 2 * N
    moved, sensitivity = moves(ensemble(name), loss, rows, delta)
    assert not (moved % UNIT).any(), "whole votes"
    found, absolute = squares(moved // UNIT), [int(np.abs(row // UNIT).sum()) for row in moved]
    assert max(found) == max(absolute) == most
    if delta:
        assert most <= Fraction(sensitivity) ** 2 < most * (1 + 1e-15)
    else:
        assert sensitivity == most


@pytest.mark.parametrize("loss", [Logistic(), Softmax(2), Softmax(6)], ids=repr)
@pytest.mark.parametrize(
    "rows", ["sphere", "zeros", *(pytest.param(rows, marks=pytest.mark.slow) for rows in ("alike", "short", "many"))]
)
@pytest.mark.parametrize("delta", [1e-5, pytest.param(0.0, marks=pytest.mark.slow)])
@pytest.mark.long
def test_a_party_moves_a_statistic_by_at_most_its_bound(loss: Logistic | Softmax, rows: str, delta: float) -> None:
    rng = np.random.default_rng(3)
    asked = {
        "sphere": on_sphere(rng, N, D),
        "alike": np.tile([1.0, 0.0, 0.0, 0.0], (N, 1)),
        "short": on_sphere(rng, N, D) * 0.01,
        "many": on_sphere(rng, 40, D) * rng.uniform(size=(40, 1)),
        "zeros": np.zeros((N, D)),
    }[rows]
    moved, sensitivity = moves(ensemble("ensemble_soft", release="statistic"), loss, asked, delta)
    bound = (Fraction(sensitivity) * UNIT) ** 2
    largest = longest_square(moved)
    ratio = math.sqrt(Fraction(largest) / bound)
    print(f"{loss} {rows}: a statistic moves by {ratio:.3f} of its bound")
    assert ratio <= 1
    assert (ratio > 0.5) == (rows != "zeros")
    if rows == "alike":
        assert ratio > 1 - 1e-9


@dataclass(frozen=True)
class Ballots:
    """Neighbours at the learner: rows, and how many votes (N, K) each class has of them, twice."""

    rows: tuple[FloatArray, FloatArray]
    counts: tuple[IntArray, IntArray]


def ballots(rng: np.random.Generator, loss: Loss, regularization: float, m: int, *, row: bool) -> Ballots:
    """All that shards may lead to: a party's votes are any, those of the rest too, and with a row that is another one.

    Rows are often all alike, and as long as lets the minimiser be as long as it can; the rest is often in a tie.
    """
    k, n = classes_of(loss), int(rng.integers(1, 9))
    rows = on_sphere(rng, n, D)
    if rng.random() < 0.6:
        rows = np.tile(rows[0], (n, 1))
    rows = rows * rng.choice([1.0, min(1.0, longest(loss) * math.sqrt(regularization)), rng.uniform()])
    first, last = np.zeros(n, np.int64), np.full(n, k - 1)
    rest = rng.integers(k, size=(m - 1, n))
    if rng.random() < 0.7:
        rest = np.array([first, last] * m)[1:m]
    one, other = rng.integers(k, size=(2, n)) if rng.random() < 0.3 else (last, first)
    both = []
    for own in (one, other):
        cast = np.vstack([rest, own])
        both.append((cast[..., None] == np.arange(k)).sum(axis=0))
    if not row:
        return Ballots((rows, rows), (both[0], both[1]))
    exchanged, redrawn = rows.copy(), both[1].copy()
    exchanged[0] = -rows[0] if rng.random() < 0.5 else on_sphere(rng, D)
    redrawn[0] = both[0][0] if rng.random() < 0.5 else rng.multinomial(m, np.full(k, 1 / k))
    return Ballots((rows, exchanged), (both[0], redrawn))


def learnt(algorithm: Ensemble, of: FederationFacts, rows: FloatArray, counts: IntArray) -> FloatArray:
    """The model of a program that is told these votes, and noise of 0."""
    of = replace(of, public=rows, public_shape=rows.shape)
    program, everybody = algorithm.program(of), tuple(range(len(of.parties)))
    next(program)
    program.send(Reply((counts[:, 1] if counts.shape[1] == 2 else counts.ravel()).astype(np.float64), everybody))
    with pytest.raises(StopIteration) as stop:
        program.send(Reply(np.zeros(of.n_weights), everybody))
    return np.asarray(stop.value.value.weights)


def worst_ratio(name: str, loss: Loss, pairs: int, least: float, *, row: bool) -> float:
    """The largest move of the exact minimiser, in parts of what is declared, over so many pairs."""
    rng, found = np.random.default_rng(5), [0.0]
    for index in range(pairs):
        regularization, m = [1e-4, 0.01, 1.0, 50.0][index % 4], int(rng.integers(2, 4))
        algorithm = ensemble(name, regularization=regularization, calibration="output_tight", hide_auxiliary_row=row)
        given = ballots(rng, loss, regularization, m, row=row)
        of = facts(loss, m, given.rows[0])
        bound = algorithm.model_moves(of)
        assert bound <= replace(algorithm, calibration="paper").model_moves(of)
        one, other = (learnt(algorithm, of, *each) for each in zip(given.rows, given.counts, strict=True))
        left = 4e-9 / regularization  # of two solvers
        found.append((float(np.linalg.norm(one - other)) - left) / bound)
    print(f"{name} {loss} row={row}: the minimiser moves by {max(found):.4f} of its bound in {pairs} pairs")
    assert least < max(found) <= 1
    return max(found)


@ENSEMBLES
@EVERY_LOSS
@pytest.mark.parametrize("row", [False, True], ids=["party", "party and row"])
@pytest.mark.parametrize(("n_pairs", "near"), [(8, 0.0), pytest.param(repeats(60, 500), 0.5, marks=pytest.mark.slow)])
@pytest.mark.long
def test_a_party_moves_the_minimiser_by_at_most_its_bound_and_of_many_pairs_some_come_near_it(
    name: str,
    loss: Loss,
    n_pairs: int,
    near: float,
    row: bool,  # noqa: FBT001 -- a parameter
) -> None:
    worst_ratio(name, loss, n_pairs, near, row=row)


@EVERY_LOSS
def test_where_the_norm_of_a_minimiser_is_the_bound_a_pair_attains_it(loss: Loss) -> None:
    """Of more classes than two, two minimisers of the longest are less than opposite: by the simplex that they span."""
    regularization, k = 1e-4, classes_of(loss)
    vote = ensemble("ensemble_vote", regularization=regularization, calibration="output_tight")
    rows = np.tile([longest(loss) * math.sqrt(regularization), 0.0], (N, 1))
    of = facts(loss, 2, rows)
    cap = 2 * largest_minimiser(loss, regularization)
    assert vote.model_moves(of) == cap < 0.03 / regularization
    tie, lost = np.zeros((2, N, k), np.int64)
    tie[:, [0, k - 1]], lost[:, k - 1 if k > 2 else 0] = 1, 2
    one, other = (learnt(vote, of, rows, counts) for counts in (tie, lost))
    ratio = float(np.linalg.norm(one - other)) / cap
    print(f"{loss}: {ratio:.4f} of the cap")
    opposite = 1.0 if k == 2 else math.sqrt(k / (k - 1) / 2)
    assert opposite - 0.001 < ratio <= 1


@EVERY_LOSS
def test_no_minimiser_is_longer_than_is_said_and_some_are_as_long(loss: Loss) -> None:
    rng, k = np.random.default_rng(6), classes_of(loss)
    most = largest_minimiser(loss, 1.0) ** 2
    if loss.outputs == 1:
        scores = rng.normal(scale=3, size=100_000)
        found = -scores * loss.slope(scores, np.ones_like(scores))
    else:
        scores = rng.normal(scale=3, size=(100_000, k))
        found = -(scores * loss.slope(scores, np.ones(len(scores)))).sum(axis=-1)
    assert 0.8 * most < found.max() <= most * (1 + 1e-12)
    assert most < loss_at_zero(loss), "what follows from J(w*) <= J(0) is twice that, or more"
    for regularization in (1e-6, 1e-2):
        rows = Shard(np.full((1, 1), longest(loss) * math.sqrt(regularization)), np.ones(1))
        length = float(np.linalg.norm(minimise(loss, rows, regularization)))
        assert length == pytest.approx(largest_minimiser(loss, regularization), rel=0.01)


@pytest.mark.parametrize("h", [0.01, 0.3, 1 / 3, 0.4, 2.0, 50.0])
def test_the_longest_minimiser_of_a_huber_loss_is_found_for_every_h(h: float) -> None:
    scores = np.linspace(-100, 100, 2_000_001)
    most = float((-scores * Huber(h).slope(scores, np.ones_like(scores))).max())
    assert largest_minimiser(Huber(h), 0.25) == pytest.approx(2 * math.sqrt(most), rel=1e-4)


def test_of_any_other_loss_the_longest_minimiser_follows_from_convexity() -> None:
    assert largest_minimiser(Hinge(), 0.25) == 2.0
    assert largest_minimiser(Squared(), 0.5) == 1.0


def average(loss: Loss, regularization: float, calibration: str) -> tuple[IntArray, float, FederationFacts]:
    """How far pairs of shards move a party's minimiser, (pairs, m) in integers, and by how much they may."""
    algorithm = build_algorithm("parameter_average", {"regularization": regularization, "calibration": calibration})
    of = facts(loss, 2 * PAIRS, np.zeros((1, D)))
    query = Query(1, "minimise", np.zeros(0))
    own, k, rng = of.everyone, classes_of(loss), np.random.default_rng(8)
    shard, _ = stacked_pairs(7, k)
    X, y = np.array(shard.X), np.array(shard.y)
    long = min(1.0, longest(loss) * math.sqrt(regularization))
    for place in range(0, PAIRS, 8):  # rows as long as they may be, and their opposites
        X[place] = on_sphere(rng, D) * long
        X[place + PAIRS] = -X[place]
        y[[place, place + PAIRS]] = rng.choice([-1.0, 1.0])
    exact = algorithm.local(query, algorithm.prepare(Shard(X, y), own), own, NoNoise())
    return exact[:PAIRS] - exact[PAIRS:], float(np.max(algorithm.sensitivity(query, own))), of


@EVERY_LOSS
@pytest.mark.parametrize("calibration", ["tight", "paper"])
@pytest.mark.parametrize("regularization", [1e-3, 0.1, 50.0])
@pytest.mark.slow
def test_a_party_moves_the_average_by_at_most_its_bound(loss: Loss, calibration: str, regularization: float) -> None:
    moved, sensitivity, of = average(loss, regularization, calibration)
    ratio = math.sqrt(Fraction(max(squares(moved))) / (Fraction(sensitivity) * UNIT) ** 2)
    print(f"{calibration} {loss} lambda={regularization}: the average moves by {ratio:.4f} of its bound")
    assert ratio <= 1
    if calibration == "tight" and regularization < 0.01 and loss.outputs == 1:
        assert ratio > 0.99, "opposite shards, whose minimisers are as long as can be"
    if calibration == "paper" and regularization > 1 and loss.outputs == 1:
        slope = np.linalg.norm(loss.slope(np.zeros(1), np.ones(1)))
        assert ratio > 0.9 * slope / loss.lipschitz, "as steep as the loss is at 0"
    assert len(of.parties) == 2 * PAIRS


# ── an auxiliary row ─────────────────────────────────────────────────────────


def test_a_hidden_row_costs_soft_labels_n_plus_m_less_1_over_n_and_the_vote_nothing() -> None:
    """By the paper's constant of two classes; of more, a row moves by 2 L = 2 sqrt 2 what a label moves by sqrt 2."""
    rows, m, regularization = np.zeros((20, D)), 7, 0.01
    for loss in (Logistic(), Huber()):
        of = facts(loss, m, rows)
        found = {}
        for name in ("ensemble_vote", "ensemble_soft"):
            both = [
                ensemble(name, regularization=regularization, calibration="paper", hide_auxiliary_row=row)
                for row in (False, True)
            ]
            found[name] = [algorithm.model_moves(of) for algorithm in both]
        assert found["ensemble_vote"] == pytest.approx([2 / regularization] * 2)
        grid = 2 * 2.0**-17 / regularization * (loss == Huber())  # of the labels, which the Huber loss has
        plain, hidden = found["ensemble_soft"]
        assert plain == pytest.approx(2 / (m * regularization) + grid)
        assert hidden == pytest.approx(2 / (m * regularization) * (20 + m - 1) / 20 + grid * 19 / 20)
    of = facts(Softmax(6), m, rows)
    vote = ensemble("ensemble_vote", regularization=regularization, calibration="paper", hide_auxiliary_row=True)
    assert vote.model_moves(of) == pytest.approx(math.sqrt(2) / regularization * 21 / 20)


@ENSEMBLES
@pytest.mark.parametrize("calibration", ["paper", "output_tight"])
def test_a_hidden_row_is_promised_and_never_charged(name: str, calibration: str) -> None:
    of = facts(Logistic(), 3, np.zeros((20, D)))
    plain, hiding = (ensemble(name, calibration=calibration, hide_auxiliary_row=row) for row in (False, True))
    promised = [(guarantee.view, guarantee.adjacency) for guarantee in guarantees(hiding, of)]
    party, row, transcript = (
        ("model", "whole_party"), ("model", "auxiliary_row"), ("transcript", "whole_party")
    )  # fmt: skip
    assert promised == [party, row, transcript]
    assert [(guarantee.view, guarantee.adjacency) for guarantee in guarantees(plain, of)] == [party, transcript]
    claim, also, everything = guarantees(hiding, of)
    delta = 0.0 if calibration == "paper" else 1e-5
    assert (claim.epsilon, claim.delta) == (also.epsilon, also.delta) == (1.0, delta)
    assert math.isinf(everything.epsilon)
    assert {"the model is the exact minimiser"} <= set(claim.assumptions) & set(also.assumptions)
    assert "the learner is trusted" in " ".join(claim.assumptions)
    assert price(hiding, of.of(0), "model") == price(plain, of.of(0), "model")
    assert price(hiding, of.of(0), "model").adjacency == "whole_party"
    assert [type(hiding.event(round, of.of(0))) for round in (1, 2)] == [NonPrivateEvent, NoEvent]


@ENSEMBLES
@pytest.mark.parametrize("calibration", ["paper", "output_tight", "tight"])
def test_exact_votes_are_for_owners_who_fear_the_model_alone(name: str, calibration: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=3, algorithms=(name,), makes_ledgers=False)
    public = PublicRows.of(cluster.public_rows())
    spec = run_spec(cluster, algorithm=name, parameters={"calibration": calibration}, public=public)
    policy = cluster.party_settings("party-1").policy
    terms = ("party-1", cluster.study.digest, cluster.n_examples, spec.names)
    if calibration == "tight":
        total = review(spec, rules_of(policy), *terms).total
        assert total.epsilon == pytest.approx(10**6, rel=1e-4)
        assert total.delta > 0
        return
    with pytest.raises(BudgetExhaustedError, match="without noise; no budget allows that"):
        review(spec, rules_of(policy), *terms)
    total = review(spec, rules_of(policy.model_copy(update={"view": "model"})), *terms).total
    assert total.epsilon == 10**6
    assert (total.delta > 0) == (calibration == "output_tight")


# ── what is asked, and what is refused ───────────────────────────────────────


@ENSEMBLES
def test_more_rows_than_there_are_is_all_of_them(name: str) -> None:
    rows = Shard(on_sphere(np.random.default_rng(9), 10, D), np.ones(10)).X
    of = facts(Softmax(6), 3, rows)
    for wanted, taken in ((100, range(10)), (10, range(10)), (5, range(0, 10, 2)), (3, (0, 3, 6)), (1, (0,))):
        algorithm = ensemble(name, auxiliary_rows=wanted)
        assert np.array_equal(algorithm.rows_asked(rows), rows[list(taken)])
        assert algorithm.n_asked(of) == len(taken)
        (question,) = algorithm.questions(of)
        assert (question.message, question.answer) == ((10, D), 6 * len(taken))


@ENSEMBLES
@pytest.mark.parametrize("release", ["counts", "statistic"])
def test_rows_that_are_no_numbers_are_zeros(name: str, release: str) -> None:
    """A learner that sends such rows learns no more of them than of zeros."""
    algorithm = ensemble(name, **({"release": release} if name == "ensemble_soft" else {}))
    rows = np.array([[np.nan] * D, [np.inf] * D, [1e300] * D, [0.25] * D])
    asked = algorithm.rows_asked(rows)
    assert not asked[:2].any()
    assert np.linalg.norm(asked, axis=1).max() <= 1
    of = facts(Logistic(), 2, rows).of(0)
    shard = Shard(on_sphere(np.random.default_rng(10), 5, D), np.array([-1.0, 1, 1, -1, 1]))
    prepared = algorithm.prepare(shard, of)
    clean = np.where(np.isfinite(rows), rows, 0.0)
    one, other = (algorithm.local(Query(1, "votes", each), prepared, of, NoNoise()) for each in (rows, clean))
    assert np.array_equal(one, other)


@ENSEMBLES
@pytest.mark.parametrize("calibration", ["paper", "output_tight", "tight"])
@pytest.mark.parametrize(
    ("loss", "terms", "why"),
    [
        (Logistic(), {"parties": ("alone",)}, "an ensemble needs at least two parties"),
        (Logistic(), {"public_shape": (20, D + 1)}, "the public rows have 5 features, and the parties' examples 4"),
        (Logistic(), {"public_shape": None}, "the algorithm asks about public rows, and the run names none"),
        (Squared(), {}, "needs a loss of bounded slope"),
        (Hinge(), {}, "needs a loss of bounded curvature"),
    ],
)
def test_what_no_ensemble_can_do_is_refused_in_words(
    name: str, calibration: str, loss: Loss, terms: dict[str, Any], why: str
) -> None:
    m = len(terms.get("parties", "123"))
    with pytest.raises(InvalidInputError, match=why):
        ensemble(name, calibration=calibration).questions(facts(loss, m, np.zeros((20, D)), **terms))


def test_an_average_of_one_is_refused_and_so_are_losses_without_bounds() -> None:
    average = build_algorithm("parameter_average")
    for loss, m, why in (
        (Logistic(), 1, "an average that hides a party needs at least two"),
        (Squared(), 3, "needs a loss of bounded slope"),
        (Hinge(), 3, "needs a loss of bounded curvature"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            average.questions(facts(loss, m, np.zeros((1, D))))


def test_the_huber_loss_has_no_statistic() -> None:
    with pytest.raises(InvalidInputError, match="take release = 'counts'"):
        ensemble("ensemble_soft", release="statistic").questions(facts(Huber(), 3, np.zeros((5, D))))


@pytest.mark.parametrize(
    ("name", "parameters", "epsilon"),
    [
        ("ensemble_vote", {}, 1e-5),
        ("ensemble_soft", {}, 1e-5),
        ("ensemble_soft", {"release": "statistic"}, 1e-6),
        ("ensemble_vote", {"calibration": "paper", "regularization": 1e-9}, 1e-6),
        ("parameter_average", {"calibration": "tight", "regularization": 1e-9}, 1e-6),
        ("parameter_average", {"calibration": "paper", "regularization": 1e-4}, 1e-6),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_noise_that_does_not_fit_is_refused_before_anything_is_answered(
    name: str, parameters: dict[str, Any], epsilon: float, delta: float
) -> None:
    algorithm = build_algorithm(name, parameters)
    rows = on_sphere(np.random.default_rng(11), 40, D)
    algorithm.check_noise(facts(Softmax(6), 3, rows, epsilon=1.0, delta=delta).of(0))
    with pytest.raises(InvalidInputError, match="epsilon is too small: noise of deviation"):
        algorithm.check_noise(facts(Softmax(6), 3, rows, epsilon=epsilon, delta=delta).of(0))


def least_that_fits(algorithm: Algorithm, of: FederationFacts) -> Iterator[float]:
    """Epsilons, from small to large, whose noise is said to fit."""
    for epsilon in np.geomspace(1e-6, 1.0, 40).tolist():
        try:
            algorithm.check_noise(replace(of, epsilon=np.full(len(of.parties), epsilon)).of(0))
        except InvalidInputError:
            continue
        yield epsilon


@pytest.mark.parametrize("parameters", [{}, {"release": "statistic"}], ids=repr)
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("secure_sum", [False, True])
def test_what_was_said_to_fit_does(
    parameters: dict[str, Any],
    delta: float,
    secure_sum: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """No party pays for a round in which it can answer nothing."""
    soft = ensemble("ensemble_soft", **parameters)
    for rows in (np.tile([1.0, 0.0, 0.0, 0.0], (40, 1)), np.zeros((40, D))):
        of = facts(Softmax(6), 3, rows, delta=delta, secure_sum=secure_sum)
        own = replace(of, epsilon=np.full(3, next(least_that_fits(soft, of)))).of(0)
        prepared = soft.prepare(Shard(np.eye(D), np.array([-1.0, 1, 1, 1])), own)
        assert soft.local(Query(1, "votes", rows), prepared, own, NoNoise()).shape == (soft.lanes(of),)


@ENSEMBLES
def test_where_delta_is_0_all_noise_is_laplaces(name: str) -> None:
    rows = np.zeros((20, D))
    of, some = facts(Softmax(6), 3, rows, delta=0.0), facts(Softmax(6), 3, rows, delta=1e-5)
    assert ensemble(name).event(1, of.of(0)) == SequentialEvent((LaplaceEvent(1 / 40),) * 40), "20 rows, of six classes"
    assert isinstance(ensemble(name).event(1, some.of(0)), GaussianEvent)
    output = ensemble(name, calibration="output_tight")
    assert [claim.delta for claim in output.claims(of.of(0))] == [0.0]
    average = build_algorithm("parameter_average")
    assert isinstance(average, ParameterAverage)
    assert (average.is_gaussian(of), average.is_gaussian(some)) == (False, True)
