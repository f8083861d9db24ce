"""Warnings about parameters and budgets of a run with effects that nobody may have intended, from public facts."""

from __future__ import annotations

import numpy as np

from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.guarantee import delta_caution
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts


def cautions(algorithm: Algorithm, facts: FederationFacts) -> tuple[str, ...]:
    """Return all warnings about a run: about its delta, and the algorithm's own."""
    return (*_of_delta(algorithm, facts), *algorithm.cautions(facts))


def _of_delta(algorithm: Algorithm, facts: FederationFacts) -> tuple[str, ...]:
    """Warn about a delta that the run spends.

    n counts all that the promise is to, at all parties: each record, or party, may be published with the probability
    delta of its own party, so it is their sum over all that says how many. The smallest party's n would let a run
    publish a record of every few parties without a word.
    """
    visible = facts.curated() if algorithm.curator else facts
    by_party = algorithm.adjacency == "whole_party"
    counts = np.ones(len(visible.parties)) if by_party else visible.n_examples
    n = int(counts.sum())
    mean = float((counts * visible.everyone.own_delta).sum()) / max(n, 1)
    words = delta_caution(mean, n, "parties" if by_party else "records")
    return words if words and any(_spends_delta(algorithm, visible.of(index)) for index in _distinct(visible)) else ()


def _spends_delta(algorithm: Algorithm, view: OwnFacts) -> bool:
    """Whether the rounds of a run cost a party a delta: not without noise, nor if all is pure."""
    if not algorithm.is_private(view):
        return False
    events = [algorithm.event(round, view) for round in range(1, len(algorithm.questions(view)) + 1)]
    return epsilon_after(events, 0.0) > float(view.own_epsilon) * (1 + 1e-9)


def _distinct(facts: FederationFacts) -> list[int]:
    """Return one party's index for each budget."""
    return [int(index) for index in np.unique([facts.epsilon, facts.delta], axis=1, return_index=True)[1]]
