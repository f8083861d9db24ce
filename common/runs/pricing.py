"""Charge or refuse: what a run costs a party, round by round, in whole micro-units of epsilon.

Within a run, events compose tightly: the cost of a round is what it adds to the epsilon of all rounds so far, so the
rounds' costs add up to the run's epsilon however many are asked. Across runs, epsilons and deltas add up (basic
composition).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate, chain

import numpy as np

from common.errors import BudgetExhaustedError
from common.privacy.account import DELTA_UNITS, MICRO, Cost, Price
from common.privacy.accountant import added_epsilon, epsilon_after, epsilons_after_each
from common.privacy.co_owner import with_part
from common.privacy.composition import releases
from common.privacy.events import ApproximateEvent, Event, NoEvent, NonPrivateEvent
from common.privacy.guarantee import Guarantee, View
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts, OwnFacts

_SIZES = "the numbers of examples of all parties are public"
_ONE_RECORD = (
    "the promise is to each record: a person with several, in one shard or in two, is hidden at each, not at all at "
    "once (group privacy)"
)
_ONE_PARTY = (
    "the promise is to each party: a person with records at several of them is hidden at each, not at all at once"
)


def events(algorithm: Algorithm, facts: OwnFacts) -> list[Event]:
    """What each round of a run costs the party whose facts these are, (T,)."""
    return [algorithm.event(round, facts) for round in range(1, len(algorithm.questions(facts)) + 1)]


def transcript(algorithm: Algorithm, facts: OwnFacts) -> Guarantee:
    """The guarantee against whoever sees all that the learner sees, for the party whose facts these are."""
    costs = events(algorithm, facts)
    return _promise(algorithm, facts, costs, needed_delta(costs, facts))


def against_co_owner(algorithm: Algorithm, facts: OwnFacts) -> Guarantee | None:
    """The guarantee where one of the others tells its share of the noise, and none was reckoned with.

    None where there is no secure sum, or ``colluders`` are reckoned with: then `transcript` holds against them. A
    ledger charges the transcript: an owner who fears co-owners says so by its policy's ``colluders``.
    """
    if not facts.secure_sum or facts.colluders or facts.minimum_contributors == 1:
        return None
    costs, part = events(algorithm, facts), 1 - 1 / facts.minimum_contributors
    if not algorithm.whole_noise:
        costs = [with_part(event, part, float(facts.own_delta)) for event in costs]
    return _promise(algorithm, replace(facts, colluders=1), costs, needed_delta(costs, facts))


def needed_delta(costs: list[Event], facts: OwnFacts) -> float:
    """The delta that a run spends: none where pure epsilons add up to no more than was agreed on."""
    pure = epsilon_after(costs, 0.0) <= facts.own_epsilon * (1 + 1e-9)
    return 0.0 if pure else float(facts.own_delta)


def _promise(algorithm: Algorithm, facts: OwnFacts, costs: list[Event], delta: float) -> Guarantee:
    """The guarantee of a transcript of these costs, with all that it assumes."""
    assumed = dict.fromkeys(
        words
        for release in chain.from_iterable(map(releases, costs))
        if isinstance(release, ApproximateEvent)
        for words in release.assumptions
    )
    assumed |= dict.fromkeys(algorithm.assumptions(facts))
    assumed |= dict.fromkeys((_SIZES, _ONE_PARTY if algorithm.adjacency == "whole_party" else _ONE_RECORD))
    guarantee = Guarantee(
        epsilon_after(costs, delta), delta, "transcript", "tight", algorithm.adjacency, assumptions=tuple(assumed)
    )
    if not facts.secure_sum:
        return guarantee
    return replace(guarantee, trust=facts.colluders).assuming(
        f"at least {facts.minimum_contributors} parties contribute to each sum",
        f"at most {facts.colluders} of them collude",
        "not both the learner and all key holders are corrupt",
    )


def guarantees(algorithm: Algorithm, facts: FederationFacts) -> tuple[Guarantee, ...]:
    """What a run promises every party: the paper's claims, then the transcript's guarantee, for the worst-off.

    Last comes the guarantee against one co-owner, where the transcript's does not hold against any.
    """
    distinct = range(len(facts.parties)) if algorithm.roles else _distinct(facts)
    each = [
        (*algorithm.claims(own), transcript(algorithm, own), *filter(None, [against_co_owner(algorithm, own)]))
        for own in map(facts.of, distinct)
    ]
    return tuple(max(column, key=lambda guarantee: guarantee.epsilon) for column in zip(*each, strict=True))


def schedule(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> tuple[Cost, ...]:
    """The cost of each round to the party whose facts these are, (T,): nothing for one in which it has no part.

    Any other costs at least one micro-unit. ``view`` is what the adversary is taken to see. Where that is only the
    final model, a party pays the paper's claim with the first round. Raises BudgetExhaustedError for a run without
    noise: no budget bears it.
    """
    costs = events(algorithm, facts)
    delta = needed_delta(costs, facts)
    has_part = [not isinstance(event, NoEvent) for event in costs]
    claimed = next((claim for claim in algorithm.claims(facts) if claim.view == view), None)
    if claimed is not None:
        delta = claimed.delta
        total = math.ceil(claimed.epsilon * MICRO - 1e-6)
        totals = [max(1, total - sum(has_part)) + parts for parts in accumulate(map(int, has_part))]
    else:
        epsilons = epsilons_after_each(costs, delta)
        if not bool(np.isfinite(epsilons).all()):
            raise BudgetExhaustedError("the run releases answers without noise; no budget bears that")
        totals = [math.ceil(epsilon * MICRO - 1e-3) for epsilon in epsilons]
    steps = np.diff([0, *_rising(totals, has_part)]).tolist()
    whole_delta = max(math.ceil(delta * DELTA_UNITS - 1e-6), int(delta > 0))
    first = has_part.index(True) if any(has_part) else len(has_part)
    return tuple(Cost(step, whole_delta if round == first else 0) for round, step in enumerate(steps))


def price(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> Price:
    """What a run costs the party whose facts these are after each of its rounds; raises as `schedule` does."""
    costs = schedule(algorithm, facts, view)
    epsilon, delta = accumulate(cost.epsilon for cost in costs), accumulate(cost.delta for cost in costs)
    return Price(tuple(epsilon), tuple(delta), algorithm.adjacency)


def highest_charge(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> float:
    """The most that the costs of `schedule` add up to in epsilon, to the micro-unit a round; raises as it does.

    At once, unless the rounds' epsilons add up to more than the budget agreed on, and no closed form is known: then
    composing them takes up to seconds. Where they do not, the schedule, which composes them too, may cost less.
    """
    costs = events(algorithm, facts)
    delta = needed_delta(costs, facts)
    claimed = any(claim.view == view for claim in algorithm.claims(facts))
    if claimed or any(isinstance(release, NonPrivateEvent) for event in costs for release in releases(event)):
        return sum(cost.epsilon for cost in schedule(algorithm, facts, view)) / MICRO
    added = added_epsilon(costs, delta)
    epsilon = added if added <= facts.own_epsilon * (1 + 1e-9) else epsilon_after(costs, delta)
    parts = sum(not isinstance(event, NoEvent) for event in costs)
    return max(math.ceil(epsilon * MICRO - 1e-3), parts) / MICRO


def _rising(totals: list[int], has_part: list[bool]) -> list[int]:
    """Totals that rise in each round in which there is a part, and in no other: each part costs something."""
    risen = [0]
    for total, part in zip(totals, has_part, strict=True):
        risen.append(max(total, risen[-1] + 1) if part else risen[-1])
    return risen[1:]


def _distinct(facts: FederationFacts) -> list[int]:
    """One party's index for each distinct budget and size."""
    rows = np.stack([facts.epsilon, facts.delta, facts.n_examples.astype(np.float64)])
    return [int(index) for index in np.unique(rows, axis=1, return_index=True)[1]]
