"""From a draft to a run that every party has approved: ask for public facts, settle the specification, propose it.

Under a `Cohort` rule, parties that do not answer or that refuse take no part, as long as enough do. Those that report
their facts in time become members of the specification, and the members that then approve it take part in its rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from parley.common.client.peer import all_of, ask_all
from parley.common.errors import AwaitingOwnerError, ParleyError, PartyRefusedError, UnavailableError
from parley.common.privacy.guarantee import View
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.specification import CHANGED_STUDY, Cohort, RunSpec
from parley.common.wire.party_api import Approval, PartyFacts, RunProposal, StudyFacts

if TYPE_CHECKING:
    from parley.common.client.party import PartyClient
    from parley.common.data.study import Study

_T = TypeVar("_T")

Consented = tuple[Approval, SignedApproval]
"""A party's approval, and the same as it was signed."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between looks at whether parties are prepared: doubled each time
_LONGEST_REASON = 100  # characters of why a party is absent
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Recruited:
    """A run with its members' ``facts`` about its study, and why the other parties that were asked are ``absent``.

    Both are by name.
    """

    spec: RunSpec
    facts: Mapping[str, StudyFacts]
    absent: Mapping[str, str]


async def recruit(
    run: str, parties: Sequence[PartyClient], draft: RunSpec, seconds: float, cohort: Cohort | None = None
) -> Recruited:
    """Ask the parties for their facts; return the draft among those that take part, with their true sizes.

    Without a ``cohort`` all have so many ``seconds`` to answer; with one, the seconds of its rule.

    Raises:
        UnavailableError: a party cannot be reached; it names the party.
        PartyRefusedError: a party refuses, has another name or does not hold the study; it names the party.
        InvalidInputError: a member has too few rows to hold any out.

    With a cohort, the first two are raised only if too few parties can take part.
    """
    study = draft.study
    await asyncio.to_thread(lambda: study.digest)  # of many columns it takes long

    async def ask_facts(party: PartyClient) -> StudyFacts:
        return facts_about(study, party.name, await party.facts())

    return enlist(run, draft, await ask_all(parties, ask_facts, cohort.seconds if cohort else seconds), cohort)


def enlist(
    run: str, draft: RunSpec, outcomes: Sequence[StudyFacts | ParleyError], cohort: Cohort | None = None
) -> Recruited:
    """Return the draft among the parties that take part, by what each of them said of the study, or its error.

    Raises what `recruit` raises.
    """
    absent: dict[str, str] = {}
    if cohort is None:
        facts = dict(zip(draft.names, all_of(outcomes), strict=True))
    else:
        turnout = _Turnout[StudyFacts].of(draft.names, outcomes)
        turnout.check(cohort, f"answered within {cohort.seconds:g} s")
        members = cohort.of(run, tuple(turnout.present))
        facts = {name: turnout.present[name] for name in members}
        not_drawn = f"not drawn: the cohort has at most {cohort.most} parties"
        absent = turnout.absent | {name: not_drawn for name in turnout.present if name not in facts}
    spec = draft.among(facts).with_sizes({name: fact.n_examples for name, fact in facts.items()})
    return Recruited(spec, facts, absent)


def views_of(facts: Mapping[str, StudyFacts]) -> dict[str, View]:
    """Return each party's adversary view, by name."""
    return {name: fact.view for name, fact in facts.items()}


async def propose(  # noqa: PLR0913, PLR0917 -- what is proposed, and how long is waited for what
    parties: Sequence[PartyClient],
    proposal: RunProposal,
    seconds: float,
    preparation: float,
    cohort: Cohort | None = None,
    waited: float = 0,
) -> tuple[dict[str, Consented], dict[str, str]]:
    """Ask every party to approve a run; return the signed approvals, and why members of a cohort gave none, by name.

    The same proposal again gets the same approval. Parties that must train before they can answer have so many seconds
    of ``preparation`` for it. A cohort waits for all its owners until the run has ``waited`` as many seconds as its
    rule says.

    Raises:
        PartyRefusedError: a party refused, or too few of a cohort approve; it has the party's name and reason.
        UnavailableError: a party did not answer or was not prepared in time; of a cohort, if that leaves too few.
        AwaitingOwnerError: owners have yet to answer.
    """
    digest, deadline, pause = await asyncio.to_thread(proposal.spell), time.monotonic() + preparation, _FIRST_PAUSE

    async def approve(party: PartyClient) -> Consented:
        approval, signed = await party.approve(proposal)
        if (approval.run, approval.spec_digest) != (proposal.run, digest):
            raise _refused(party.name, "wrong-approval", "it approved another run than was proposed")
        return approval, signed

    approvals: dict[str, Consented] = {}
    absent: dict[str, str] = {}
    pending = {party.name: party for party in parties}
    while True:
        outcomes = await ask_all(tuple(pending.values()), approve, seconds)
        if cohort is None:
            approvals |= zip(pending, all_of(outcomes), strict=True)
        else:
            turnout = _Turnout[Consented].of(pending, outcomes)
            approvals = {name: approval for name, approval in approvals.items() if name not in pending}
            turnout.check_owners(cohort, waited)
            turnout.check(cohort, f"approved within {seconds:g} s", len(approvals))
            approvals |= turnout.present
            absent |= turnout.absent
        unready, is_late = [name for name in approvals if not approvals[name][0].prepared], time.monotonic() > deadline
        if is_late and cohort and len(approvals) - len(unready) >= cohort.least:
            absent |= {name: f"{name} was not prepared within {preparation:g} s" for name in unready}
            unready = []
        if not unready:
            return {name: approval for name, approval in approvals.items() if name not in absent}, absent
        if is_late:
            raise UnavailableError(f"not prepared within {preparation:g} s: {', '.join(unready)}", unprepared=unready)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        pending = {name: pending[name] for name in unready}


@dataclass(frozen=True, slots=True)
class _Turnout(Generic[_T]):
    """The answers of parties by name, and the reasons of those that refused or were silent.

    ``asking`` names the silent ones whose owners have yet to answer.
    """

    present: dict[str, _T]
    refused: dict[str, str]
    silent: dict[str, str]
    asking: list[str]

    @classmethod
    def of(cls, names: Iterable[str], outcomes: Sequence[_T | ParleyError]) -> Self:
        """Sort the outcomes of `ask_all` by what they are."""
        turnout = cls({}, {}, {}, [])
        for name, outcome in zip(names, outcomes, strict=True):
            match outcome:
                case UnavailableError():
                    turnout.silent[name] = outcome.detail[:_LONGEST_REASON]
                    turnout.asking.extend([name] * isinstance(outcome, AwaitingOwnerError))
                case ParleyError():
                    turnout.refused[name] = outcome.detail[:_LONGEST_REASON]
                case _:
                    turnout.present[name] = outcome
        return turnout

    @property
    def absent(self) -> dict[str, str]:
        """The reasons of all that did not answer, by name."""
        return self.refused | self.silent

    def check_owners(self, cohort: Cohort, waited: float) -> None:
        """Raise AwaitingOwnerError while the cohort still waits for owners who have yet to answer."""
        if self.asking and waited < cohort.owner_hours * 3600:
            reasons = _shortened({name: self.silent[name] for name in self.asking})
            raise AwaitingOwnerError(reasons, silent=self.asking)

    def check(self, cohort: Cohort, did: str, earlier: int = 0) -> None:
        """Raise an error if the present and the ``earlier`` ones are too few for a cohort.

        It is PartyRefusedError if the refusals alone make them too few, and otherwise UnavailableError, because the
        silent may yet answer. ``did`` is what they were asked to do, in the past tense.
        """
        present = earlier + len(self.present)
        if present >= cohort.least:
            return
        by = datetime.now(UTC).isoformat(timespec="seconds")
        detail = (
            f"{present} of {present + len(self.absent)} parties {did}, by {by}, and the cohort needs at least "
            f"{cohort.least}; {_shortened(self.absent)}"
        )
        if present + len(self.silent) < cohort.least:
            raise PartyRefusedError(detail, party=next(iter(self.refused), ""), reason="cohort-too-small")
        raise UnavailableError(detail, silent=list(self.silent))


def _shortened(absent: Mapping[str, str]) -> str:
    """Return the reasons of the first absent parties, and how many more there are."""
    more = [f"and {len(absent) - _MOST_NAMED} more"] * (len(absent) > _MOST_NAMED)
    return "; ".join([*islice(absent.values(), _MOST_NAMED), *more])


def facts_about(study: Study, name: str, facts: PartyFacts) -> StudyFacts:
    """Return what a party states about a study.

    Raises PartyRefusedError if it has another name than the roster's ``name`` for it, or holds nothing of the study.
    """
    if facts.name != name:
        raise _refused(name, "wrong-name", f"it calls itself {facts.name}")
    if (about := facts.about(study.digest)) is None:
        if any(held.study == study.name for held in facts.studies):
            raise _refused(name, "changed-study", CHANGED_STUDY.format(f"its study {study.name!r}"))
        others = ", ".join(held.study or held.study_digest[:12] for held in facts.studies[:_MOST_NAMED]) or "none"
        reason = f"it has no study {study.name!r} for this learner (it has {others}): "
        raise _refused(name, "wrong-study", f"{reason}a run names its parties where not all hold its study")
    if about.n_examples < 1:
        raise _refused(name, "wrong-facts", "it reports no examples")
    return about


def _refused(name: str, reason: str, detail: str) -> PartyRefusedError:
    return PartyRefusedError(f"{name} cannot take part: {detail}", party=name, reason=reason)
