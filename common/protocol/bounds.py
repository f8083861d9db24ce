"""The public bound of a sum of answers: honest parties exceed it only with a chance of 2^-60.

Each example, a record or a person, adds to an answer at most as much as it moves it, because one whose rows were all
dropped adds nothing; if all the data of a party is hidden, the same holds for that. So an exact answer of n examples is
at most n times the sensitivity, in each number; its noise is bounded by its tail. An answer whose noise is inside a
minimisation has no such bound, nor has one that is a function of noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import from_wire, to_reals
from parley.common.privacy.noise import NoNoise
from parley.common.privacy.proofs import PostProcessing, Proof
from parley.common.privacy.tails import ReachOfNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query


def exceeds_bound(
    sum_of_answers: FloatArray, algorithm: Algorithm, query: Query, facts: FederationFacts, contributors: Sequence[int]
) -> BoolArray:
    """Return which numbers (m,) of these parties' sum, in reals, exceed the bound.

    Honest answers do so with a chance of at most 2^-60.
    """
    exact = largest_exact(algorithm, query, facts, contributors)
    if not np.isfinite(exact) or bool(np.all(np.abs(sum_of_answers) <= exact)):
        return np.zeros(sum_of_answers.shape, dtype=np.bool_)
    return np.asarray(np.abs(sum_of_answers) > exact + reach_of_noise(algorithm, query, facts, contributors))


def largest_exact(algorithm: Algorithm, query: Query, facts: FederationFacts, contributors: Sequence[int]) -> float:
    """Return the largest absolute value of these parties' sum without its noise; infinite if there is no bound."""
    if algorithm.roles or not _keeps_numbers(algorithm.proof(query, facts.of(0))):  # without roles all do the same
        return float("inf")
    hides_examples = algorithm.adjacency == "replace_one"
    reaches = [
        float(np.max(algorithm.sensitivity(query, facts.of(index))))
        * (int(facts.n_examples[index]) if hides_examples else 1)
        for index in contributors
    ]
    return math.fsum(reaches) + len(reaches) * float(from_wire(np.array(1), facts.wire_shift))


def _keeps_numbers(proof: Proof | None) -> bool:
    """Whether an answer has the numbers that the sensitivity is about: no function of these, unless it places them."""
    return not isinstance(proof, PostProcessing) or proof.places_only


def reach_of_noise(
    algorithm: Algorithm, query: Query, facts: FederationFacts, contributors: Sequence[int]
) -> FloatArray:
    """Return how far the noise of these parties reaches, (m,).

    Their own code adds it to the answer of a dropped example.
    """
    by_size: dict[int, list[int]] = {}  # budgets are the strictest under a secure sum, so only sizes differ
    for index in contributors:
        by_size.setdefault(int(facts.n_examples[index]), []).append(index)
    return np.asarray(
        np.sum([len(members) * _reach(algorithm, query, facts.of(members[0])) for members in by_size.values()], axis=0)
    )


def _reach(algorithm: Algorithm, query: Query, facts: OwnFacts) -> FloatArray:
    """Return the reach of one party's noise, (m,)."""
    begins = np.ones(1, dtype=np.bool_) if facts.unit == "person" else None
    dropped = Shard(np.zeros((1, facts.n_features)), np.ones(1), norm=facts.norm, begins=begins)
    prepared = algorithm.prepare(dropped, facts)
    noisy, exact = (algorithm.local(query, prepared, facts, noise) for noise in (ReachOfNoise(), NoNoise()))
    return to_reals(noisy - exact)
