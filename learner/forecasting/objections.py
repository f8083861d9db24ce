"""By which of its owner's rules a party would refuse a run, as far as it tells them: known before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from common.errors import BudgetExhaustedError
from common.privacy.account import Cost
from common.runs.consent import Objection, ReviewedRun, dear
from common.runs.members import Member
from common.wire.party_api import PartyFacts

Charge = Cost | BudgetExhaustedError
"""What a run would be charged to a party at most, or why no budget bears it."""


def objections(run: ReviewedRun, member: Member, facts: PartyFacts, charge: Charge) -> tuple[str, ...]:
    """Why the party would refuse the run, a reason for each rule."""
    reasons: dict[str, str] = {}
    for rule, reason in chain(run.objections(member, facts, run.spec.names), _of_charge(run, facts, charge)):
        reasons.setdefault(rule, reason)
    return tuple(reasons.values())


def _of_charge(run: ReviewedRun, facts: PartyFacts, charge: Charge) -> Iterable[Objection]:
    """Why the party would refuse what it would be charged."""
    if isinstance(charge, Cost):
        return dear(charge, run.algorithm.adjacency, facts)
    return [(charge.kind, charge.detail)]
