"""From a draft to a run that every party has approved: ask for public facts, settle the specification, propose it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from common.client.peer import all_of, ask_all
from common.errors import PartyRefusedError, UnavailableError
from common.privacy.guarantee import View
from common.runs.specification import Member, RunSpec
from common.wire.party_api import Approval, PartyFacts, RunProposal

if TYPE_CHECKING:
    from common.client.party import PartyClient

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between looks at whether parties are prepared: doubled each time


async def gather_facts(
    parties: Sequence[PartyClient], draft: RunSpec, seconds: float
) -> tuple[RunSpec, dict[str, PartyFacts]]:
    """The draft with the parties' true sizes, and what each party says of itself, by name.

    Raises UnavailableError for a party that cannot be reached, PartyRefusedError for one that refuses, goes by another
    name or holds another study; both name the party. InvalidInputError for one with too few rows to hold any out.
    """
    facts = dict(zip(draft.names, all_of(await ask_all(parties, lambda party: party.facts(), seconds)), strict=True))
    for name, fact in facts.items():
        _check_facts(name, fact, draft.study.digest)
    spec = with_sizes(draft, {name: fact.n_examples for name, fact in facts.items()})
    return spec, facts


def views_of(facts: Mapping[str, PartyFacts]) -> dict[str, View]:
    """Each party's adversary view, by name."""
    return {name: fact.views[0] for name, fact in facts.items()}


def with_sizes(draft: RunSpec, sizes: Mapping[str, int]) -> RunSpec:
    """The draft with the sizes of the parties' shards, by name; raises InvalidInputError for too few to hold out."""
    members = (Member(name=each.name, n_examples=sizes[each.name], budget=each.budget) for each in draft.parties)
    spec = draft.model_copy(update={"parties": tuple(members)})
    spec.check_hold_out()
    return spec


async def propose(
    parties: Sequence[PartyClient], proposal: RunProposal, seconds: float, preparation: float
) -> Mapping[str, Approval]:
    """Every party's approval of a run, by name; the same proposal again gets the same approval.

    Parties that must train what they will answer from have so many seconds of ``preparation`` for it. Raises
    PartyRefusedError with the party's name and reason, UnavailableError.
    """
    deadline, pause = time.monotonic() + preparation, _FIRST_PAUSE
    while True:
        approvals = await _approvals(parties, proposal, seconds)
        unready = [name for name, approval in approvals.items() if not approval.prepared]
        if not unready:
            return approvals
        if time.monotonic() > deadline:
            raise UnavailableError(f"not prepared within {preparation:g} s: {', '.join(unready)}", unprepared=unready)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _approvals(parties: Sequence[PartyClient], proposal: RunProposal, seconds: float) -> dict[str, Approval]:
    """What every party answers to the proposal now, by name."""
    digest = proposal.spec.digest
    answers = all_of(await ask_all(parties, lambda party: party.approve(proposal), seconds))
    approvals = dict(zip(proposal.spec.names, answers, strict=True))
    for name, approval in approvals.items():
        if (approval.run, approval.spec_digest) != (proposal.run, digest):
            raise _refused(name, "wrong-approval", "it approved another run than was proposed")
    return approvals


def _check_facts(name: str, facts: PartyFacts, study: str) -> None:
    """Raise PartyRefusedError unless the party is who the roster says and holds the study that is meant."""
    if facts.name != name:
        raise _refused(name, "wrong-name", f"it calls itself {facts.name}")
    if facts.study_digest != study:
        raise _refused(name, "wrong-study", f"it holds another study ({facts.study_digest[:12]}, not {study[:12]})")
    if not facts.views or facts.n_examples < 1:
        raise _refused(name, "wrong-facts", "it reports no examples or no adversary view")


def _refused(name: str, reason: str, detail: str) -> PartyRefusedError:
    return PartyRefusedError(f"{name} cannot take part: {detail}", party=name, reason=reason)
