"""By which of its owner's rules a party would refuse a run, as far as it tells them: known before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Cost
from parley.common.runs.consent import Objection, ReviewedRun, dear
from parley.common.runs.members import Member
from parley.common.wire.party_api import PartyFacts
from parley.learner.secure_sum.foreseen import ForeseenSum

Charge = Cost | BudgetExhaustedError
"""What a run would be charged to a party at most, or why no budget bears it."""


def objections(
    run: ReviewedRun, member: Member, facts: PartyFacts, charge: Charge, foreseen: ForeseenSum | None
) -> tuple[str, ...]:
    """Why the party would refuse the run, a reason for each rule; ``foreseen`` is its secure sum."""
    pins = foreseen.pins.get(member.name) if foreseen else None
    known = () if foreseen is None else run.spec.names if pins is None else pins.known
    broken = chain(
        run.objections(member, facts, known),
        _of_charge(run, facts, charge),
        foreseen.objections(facts) if foreseen else (),
    )
    reasons: dict[str, str] = {}
    for rule, reason in broken:
        reasons.setdefault(rule, reason)
    return tuple(reasons.values())


def _of_charge(run: ReviewedRun, facts: PartyFacts, charge: Charge) -> Iterable[Objection]:
    """Why the party would refuse what it would be charged."""
    if isinstance(charge, Cost):
        return dear(charge, run.algorithm.adjacency, facts)
    return [(charge.kind, charge.detail)]
