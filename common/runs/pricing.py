"""Charge or refuse: what a run costs a party, round by round, in whole micro-units of epsilon.

Within a run, events compose tightly: the cost of a round is what it adds to the epsilon of all rounds so far, so the
rounds' costs add up to the run's epsilon however many are asked. Across runs, epsilons and deltas add up (basic
composition).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from common.errors import BudgetExhaustedError
from common.privacy.account import DELTA_UNITS, MICRO, Cost
from common.privacy.accountant import added_epsilon, epsilon_after, epsilons_after_each
from common.privacy.events import ApproximateEvent, Event, NonPrivateEvent
from common.privacy.guarantee import Guarantee, View
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts


def events(algorithm: Algorithm, facts: FederationFacts) -> list[Event]:
    """What each round of a run costs the party whose facts these are."""
    return [algorithm.event(round, facts) for round in range(1, algorithm.rounds(facts) + 1)]


@runtime_checkable
class Conditional(Protocol):
    """An algorithm whose events cost what they say only if something holds that no party can see."""

    def assumptions(self, facts: FederationFacts) -> tuple[str, ...]:
        """What must hold, in words; none where nothing must."""


def transcript(algorithm: Algorithm, facts: FederationFacts) -> Guarantee:
    """The guarantee against whoever sees all that the learner sees, for the party whose facts these are."""
    delta, costs = float(facts.own_delta), events(algorithm, facts)
    assumed = dict.fromkeys(
        words for event in costs if isinstance(event, ApproximateEvent) for words in event.assumptions
    )
    if isinstance(algorithm, Conditional):
        assumed |= dict.fromkeys(algorithm.assumptions(facts))
    guarantee = Guarantee(epsilon_after(costs, delta), delta, "transcript", "tight", assumptions=tuple(assumed))
    if not facts.secure_sum:
        return guarantee
    return replace(guarantee, trust=facts.colluders).assuming(
        f"at least {facts.minimum_contributors} parties contribute to each sum",
        f"at most {facts.colluders} of them collude",
        "not both the learner and all key holders are corrupt",
    )


def guarantees(algorithm: Algorithm, facts: FederationFacts) -> tuple[Guarantee, ...]:
    """What a run promises every party: the paper's claims, then the transcript's guarantee, for the worst-off."""
    each = [(*algorithm.claims(own), transcript(algorithm, own)) for own in map(facts.of, _distinct(facts))]
    return tuple(max(column, key=lambda guarantee: guarantee.epsilon) for column in zip(*each, strict=True))


def schedule(algorithm: Algorithm, facts: FederationFacts, view: View = "transcript") -> tuple[Cost, ...]:
    """The cost of each round to the party whose facts these are, (T,); at least one micro-unit each.

    ``view`` is what the party fears is seen. A party that fears only the final model pays the paper's claim with the
    first round. Raises BudgetExhaustedError for a run without noise: no budget bears it.
    """
    rounds, delta = algorithm.rounds(facts), float(facts.own_delta)
    claimed = next((claim for claim in algorithm.claims(facts) if claim.view == view), None)
    if claimed is not None:
        total = math.ceil(claimed.epsilon * MICRO - 1e-6)
        spent = [max(1, total - rounds) + round for round in range(1, rounds + 1)]
    else:
        epsilons = epsilons_after_each(events(algorithm, facts), delta)
        if not bool(np.isfinite(epsilons).all()):
            raise BudgetExhaustedError("the run releases answers without noise; no budget bears that")
        spent = _rising([math.ceil(epsilon * MICRO - 1e-3) for epsilon in epsilons])
    steps = np.diff([0, *spent]).tolist()
    whole_delta = math.ceil(delta * DELTA_UNITS - 1e-6)
    return tuple(Cost(step, whole_delta if round == 0 else 0) for round, step in enumerate(steps))


def highest_charge(algorithm: Algorithm, facts: FederationFacts, view: View = "transcript") -> float:
    """The most that the costs of `schedule` add up to in epsilon, to the micro-unit a round; raises as it does.

    At once, unless the rounds' epsilons add up to more than the budget agreed on, and no closed form is known: then
    composing them takes up to seconds. Where they do not, the schedule, which composes them too, may cost less.
    """
    costs, delta = events(algorithm, facts), float(facts.own_delta)
    claimed = any(claim.view == view for claim in algorithm.claims(facts))
    if claimed or any(isinstance(event, NonPrivateEvent) for event in costs):
        return sum(cost.epsilon for cost in schedule(algorithm, facts, view)) / MICRO
    added = added_epsilon(costs, delta)
    epsilon = added if added <= facts.own_epsilon * (1 + 1e-9) else epsilon_after(costs, delta)
    return max(math.ceil(epsilon * MICRO - 1e-3), len(costs)) / MICRO


def _rising(totals: list[int]) -> list[int]:
    """Totals made strictly increasing by raising where they are not: each round costs something."""
    risen: list[int] = []
    for total in totals:
        risen.append(max(total, risen[-1] + 1 if risen else 1))
    return risen


def _distinct(facts: FederationFacts) -> list[int]:
    """One party's index for each distinct budget and size."""
    rows = np.stack([facts.epsilon, facts.delta, facts.n_examples.astype(np.float64)])
    return [int(index) for index in np.unique(rows, axis=1, return_index=True)[1]]
