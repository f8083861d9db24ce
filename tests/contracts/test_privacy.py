"""What every private answer promises its party: a true sensitivity, noise, and a promise that it keeps.

That the noise is what its event says is proven in `tests.contracts.test_proofs`.
"""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from parley.common.algorithms.release import Releases
from parley.common.learning.losses import Logistic
from parley.common.privacy.events import (
    DrawEvent,
    NonPrivateEvent,
)
from parley.common.privacy.noise import SystemNoise
from parley.common.protocol.messages import Query
from parley.common.runs.pricing import events, guarantees, transcript
from tests.contracts.algorithms import (
    ADDITIVE,
    CASES,
    Case,
    beyond,
    conversation,
    each_of,
    federation,
)
from tests.contracts.proving import neighbours, queries

ALIKE = {
    label
    for label, case in ADDITIVE.items()
    if isinstance(case.algorithm, Releases) and label not in {"average-sum", "release-output-each"}
}
"""Cases that release the minimisers that others do: before the noise, quick tests look at those alone."""


EVERY, EVERY_ADDITIVE = each_of(CASES), each_of(ADDITIVE, ALIKE)


# ── sensitivity ──────────────────────────────────────────────────────────────

N_NEIGHBOURS = 1500


def each_question(case: Case) -> list[Query]:
    """A query of the program for each different question that it asks."""
    queries, _ = conversation(case, case.equal_facts(1 if case.algorithm.curator else 3, 5), seed=3)
    return list({query.step: query for query in reversed(queries)}.values())[::-1]


@EVERY_ADDITIVE
def test_no_neighbour_moves_an_answer_past_its_sensitivity(case: Case) -> None:
    rng = np.random.default_rng(3)
    n_pairs, violations, largest = 0, 0, 0.0
    for n in (1, 12):
        pair = neighbours(rng, N_NEIGHBOURS, n, case.algorithm.adjacency)
        weights = (1.0, 0.25) if n == 1 and case.algorithm.weighs_classes else ()
        facts = case.equal_facts(N_NEIGHBOURS, n, loss=Logistic(class_weights=weights))
        n_pairs += N_NEIGHBOURS
        for query in chain.from_iterable(queries(question, rng) for question in each_question(case)):
            n_beyond, farthest = beyond(case, query, pair, facts)
            violations, largest = violations + n_beyond, max(largest, farthest)
    print(
        f"{case.name}: {n_pairs:,} neighbours: {violations} violations; the largest move is {largest:.4f} of the bound"
    )
    assert n_pairs >= 3000
    assert violations == 0
    assert largest > 0.05  # the neighbours do move the answers


# ── noise ────────────────────────────────────────────────────────────────────


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


# ── the promise ──────────────────────────────────────────────────────────────


@EVERY
def test_the_transcript_keeps_to_the_budget_or_a_claim_says_what_does(case: Case) -> None:
    _, facts = federation(case)
    for own_facts, budget in zip(map(facts.of, range(len(facts.parties))), facts.epsilon.tolist(), strict=True):
        costs = events(case.algorithm, own_facts)
        assert len(costs) == len(case.algorithm.questions(own_facts))
        promise = transcript(case.algorithm, own_facts)
        assert {promise.adjacency, *(claim.adjacency for claim in case.algorithm.claims(own_facts))} == {
            case.algorithm.adjacency
        }
        if any(isinstance(event, NonPrivateEvent) for event in costs):
            assert promise.epsilon == math.inf
        elif any("no less is proven" in words for words in promise.assumptions):
            assert promise.epsilon > own_facts.own_epsilon, (
                "Jain & Thakurta's noise falls short, and the guarantee says so"
            )
        elif promise.epsilon > budget * (1 + 1e-9):
            claim = case.algorithm.claims(own_facts)[0]
            assert claim.epsilon <= budget
            assert any("sees the rounds" in words for words in claim.assumptions)
    assert [g.view for g in guarantees(case.algorithm, facts)][-1] == "transcript"
