"""What every private answer owes its party: a true sensitivity, noise of the law it declares, a promise that it keeps.

Statistical checks run on seeded noise, so that they cannot fail by chance; they would reject true noise at ALARM each,
and beside each stands the proof of its power: it rejects half the scale.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from common.algorithms._releases import Releases
from common.arrays import FloatArray
from common.data.shard import Shard
from common.encoding.fixed_point import UNIT, to_reals
from common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NonPrivateEvent,
)
from common.privacy.guarantee import Adjacency
from common.privacy.noise import Noise, SeededNoise, SystemNoise
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query
from common.runs.pricing import events, guarantees, transcript
from tests.contracts.algorithms import (
    ADDITIVE,
    CASES,
    Case,
    D,
    ball,
    conversation,
    each_of,
    exact,
    federation,
    labels,
    seen,
)
from tests.support.noises import RoundNoise, ScaledNoise

ALARM = 1e-6


ALIKE = {
    label
    for label, case in ADDITIVE.items()
    if isinstance(case.algorithm, Releases) and label not in {"average-sum", "release-output-each"}
}
"""Cases that release the minimisers that others do: before the noise, quick tests look at those alone."""


EVERY, EVERY_ADDITIVE = each_of(CASES), each_of(ADDITIVE, ALIKE)


# ── sensitivity ──────────────────────────────────────────────────────────────

N_NEIGHBOURS = 1500
HOSTILE = [np.nan, np.inf, -np.inf, 1e308, 5e-324, 1e200, -1e18, 50.0]


def neighbours(rng: np.random.Generator, n: int, adjacency: Adjacency) -> tuple[Shard, Shard]:
    """Shards and their neighbours, stacked: one record replaced, or all, as if the owner had checked nothing.

    A fifth of the records replaced are not numbers, a fifth lie far outside the ball, a fifth pull the sum of gradients
    along the second axis with all their might when the weights point down the first; the rest are anything.
    """
    X, y = ball(rng, N_NEIGHBOURS, n, D) * rng.uniform(0, 2, (N_NEIGHBOURS, n, 1)), labels(rng, N_NEIGHBOURS, n)
    other_X, other_y = X.copy(), y.copy()
    if adjacency == "whole_party":
        other_X, other_y = ball(rng, N_NEIGHBOURS, n, D), labels(rng, N_NEIGHBOURS, n)
    kind = np.arange(N_NEIGHBOURS) % 5
    for rows, targets in ((X, y), (other_X, other_y)):
        rows[:, 0] = ball(rng, N_NEIGHBOURS, D)
        rows[kind == 0, 0, rng.integers(D)] = rng.choice(HOSTILE, (kind == 0).sum())
        rows[kind == 1, 0] = rng.choice(HOSTILE, ((kind == 1).sum(), D))
        rows[kind == 2, 0] *= 10.0 ** rng.uniform(0, 300, ((kind == 2).sum(), 1))
        targets[:, 0] = rng.choice([-1.0, 1.0, -1.0, 1.0, np.nan, np.inf, 1e9, 0.5], N_NEIGHBOURS)
    for rows, targets, sign in ((X, y, 1), (other_X, other_y, -1)):
        rows[kind == 3, 0] = [0.01, sign * math.sqrt(1 - 0.01**2), *[0] * (D - 2)]
        targets[kind == 3, 0] = 1.0
    return Shard(X, y), Shard(other_X, other_y)


def each_question(case: Case) -> list[Query]:
    """A query of the program for each different question that it asks."""
    asked, _ = conversation(case, case.equal_facts(1 if case.algorithm.curator else 3, 5), seed=3)
    return list({query.step: query for query in reversed(asked)}.values())[::-1]


def queries(asked: Query, rng: np.random.Generator) -> list[Query]:
    """What a curious learner may ask: a question of the program, and others like it with other values."""
    if not asked.message.size:
        return [asked]
    steep = np.resize([-60_000.0, 0, 0, 0], asked.message.shape)
    any_weights = rng.normal(size=asked.message.shape) * 10.0 ** rng.uniform(-3, 4)
    return [asked, dataclasses.replace(asked, message=steep), dataclasses.replace(asked, message=any_weights)]


def norm_of(event: Event) -> int:
    """Which norm of a move the event's noise hides: the 2-norm, or the 1-norm for Laplace noise."""
    return 1 if isinstance(event, LaplaceEvent) else 2


@EVERY_ADDITIVE
def test_no_neighbour_moves_an_answer_past_its_sensitivity(case: Case) -> None:
    rng = np.random.default_rng(3)
    asked, violations, largest = 0, 0, 0.0
    for n in (1, 12):
        shard, other = neighbours(rng, n, case.algorithm.adjacency)
        facts = case.equal_facts(N_NEIGHBOURS, n)
        asked += N_NEIGHBOURS
        for query in chain.from_iterable(queries(question, rng) for question in each_question(case)):
            p = norm_of(case.algorithm.event(query.round, facts.of(0)))
            moved = exact(case, query, shard, facts) - exact(case, query, other, facts)
            bounds = np.resize(case.algorithm.sensitivity(query, seen(facts)), N_NEIGHBOURS).tolist()
            for row, bound in zip(moved.tolist(), bounds, strict=True):
                move = sum(abs(v) ** p for v in row)  # Python's integers: exact
                violations += move > (Fraction(bound) * UNIT) ** p
                largest = max(largest, move ** (1 / p) / UNIT / bound)
    print(f"{case.name}: {asked:,} neighbours: {violations} violations; the largest move is {largest:.4f} of the bound")
    assert asked >= 3000
    assert violations == 0
    assert largest > 0.05  # the neighbours do move the answers


# ── noise ────────────────────────────────────────────────────────────────────


def p_value(noise: FloatArray, event: Event, sensitivity: float) -> float:
    """How well noise (runs, d) fits the law that an event and its sensitivity imply."""
    match event:
        case GaussianEvent(mu=mu):
            return float(stats.kstest(noise.ravel() * mu / sensitivity, "norm").pvalue)
        case LaplaceEvent(epsilon=epsilon):
            return float(stats.kstest(noise.ravel() * epsilon / sensitivity, "laplace").pvalue)
        case L2LaplaceEvent(epsilon=epsilon, dimension=d):
            norm = np.linalg.norm(noise, axis=-1)
            length = stats.kstest(norm * epsilon / sensitivity, stats.gamma(d).cdf).pvalue
            cosine = stats.kstest((noise[:, 0] / norm + 1) / 2, stats.beta((d - 1) / 2, (d - 1) / 2).cdf).pvalue
            return float(min(1.0, 2 * min(length, cosine)))
        case _:
            raise AssertionError(f"an additive release declares {event}")


def noise_of_sums(case: Case, query: Query, facts: FederationFacts, noise: Noise, parts: int) -> FloatArray:
    """What is left of the answers of many parties with the same shard, less the exact one; summed in groups."""
    rng, k = np.random.default_rng(4), len(facts.parties)
    X, y = ball(rng, 5, D), labels(rng, 5)
    shard = Shard(np.broadcast_to(X, (k, *X.shape)), np.broadcast_to(y, (k, *y.shape)))
    drawn = case.answer(query, shard, facts, RoundNoise(noise)) - exact(case, query, shard, facts)
    return to_reals(drawn.reshape(-1, parts, drawn.shape[-1]).sum(axis=1))


def fits(case: Case, query: Query, facts: FederationFacts, noise: Noise, parts: int) -> float:
    event = case.algorithm.event(query.round, facts.of(0))
    query = queries(query, np.random.default_rng(4))[-1]
    sensitivity = float(np.max(case.algorithm.sensitivity(query, facts.of(0))))
    return p_value(noise_of_sums(case, query, facts, noise, parts), event, sensitivity)


@EVERY_ADDITIVE
@pytest.mark.slow
def test_noise_has_the_law_that_its_event_declares_and_half_of_it_is_caught(case: Case) -> None:
    """Without secure sum an answer carries all the noise; with it, so does the sum of m_min answers less t of them."""
    terms = {"minimum_contributors": 5, "colluders": 1} if case.secure_sum else {}
    facts = case.equal_facts(8000, 5, **terms)
    for query in each_question(case):
        p = {parts: fits(case, query, facts, SeededNoise(5), parts) for parts in ((1, 4) if case.secure_sum else (1,))}
        parts = max(p, key=lambda parts: p[parts])  # some add all of the noise under secure sum too
        halved = fits(case, query, facts, ScaledNoise(SeededNoise(5), 0.5), parts)
        found = f"noise of {parts} part(s) fits its event with p = {p[parts]:.3f}, halved with p = {halved:.1e}"
        print(f"{case.name}, {query.step}: {found}")
        assert p[parts] > ALARM
        assert halved < ALARM


@EVERY_ADDITIVE
@pytest.mark.slow
def test_every_round_draws_its_noise_anew(case: Case) -> None:
    facts, noise = case.equal_facts(4000, 5), SeededNoise(6)
    for query in each_question(case):
        first, second = (noise_of_sums(case, query, facts, noise, 1).ravel() for _ in range(2))
        assert stats.pearsonr(np.sign(first), np.sign(second)).pvalue > ALARM
        assert stats.pearsonr(np.sign(first), np.sign(first + second)).pvalue < ALARM


@EVERY
def test_an_answer_is_random_unless_it_is_declared_not_to_be(case: Case) -> None:
    shard, facts = federation(case)
    query = case.first_query(facts)
    declared = case.algorithm.event(1, facts.of(0))
    times = 32 if isinstance(declared, DrawEvent) else 1  # a few draws of few indices are often alike
    one, other = (np.stack([case.answer(query, shard, facts, SystemNoise()) for _ in range(times)]) for _ in range(2))
    if case.name == "matrix_perturbation":  # its noise hides nothing that is proven
        assert (one != other).any()
        return
    assert (one == other).all() == isinstance(declared, NonPrivateEvent)
    if not case.additive and not case.algorithm.roles:
        assert isinstance(declared, NonPrivateEvent | ApproximateEvent | DrawEvent)


# ── the promise ──────────────────────────────────────────────────────────────


@EVERY
def test_the_transcript_keeps_to_the_budget_or_a_claim_says_what_does(case: Case) -> None:
    _, facts = federation(case)
    for own, budget in zip(map(facts.of, range(len(facts.parties))), facts.epsilon.tolist(), strict=True):
        costs = events(case.algorithm, own)
        assert len(costs) == len(case.algorithm.questions(own))
        promise = transcript(case.algorithm, own)
        assert {promise.adjacency, *(claim.adjacency for claim in case.algorithm.claims(own))} == {
            case.algorithm.adjacency
        }
        if any(isinstance(event, NonPrivateEvent) for event in costs):
            assert promise.epsilon == math.inf
        elif any("no less is proven" in words for words in promise.assumptions):
            assert promise.epsilon > own.own_epsilon, "Jain & Thakurta's noise falls short, and the guarantee says so"
        elif promise.epsilon > budget * (1 + 1e-9):
            claim = case.algorithm.claims(own)[0]
            assert claim.epsilon <= budget
            assert any("sees the rounds" in words for words in claim.assumptions)
    assert [g.view for g in guarantees(case.algorithm, facts)][-1] == "transcript"
