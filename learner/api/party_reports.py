"""Asks the parties of the roster what they say of themselves, and remembers what each said last."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from parley.common.client.party import PartyClient
from parley.common.client.peer import ask_all
from parley.common.errors import ParleyError
from parley.common.service.problems import ProblemDocument, document_of
from parley.common.wire.party_api import BudgetReport, PartyFacts
from parley.learner.api.schemas import PartyView

if TYPE_CHECKING:
    from parley.learner.api.service import LearnerService


class PartyReports:
    """Lists the parties of a learner with their facts and accounts.

    Its memory of a party lasts as long as the party is on the roster. When the learner stops, it keeps the facts; the
    budgets, and the time at which a party stated them, are lost.
    """

    def __init__(self, learner: LearnerService) -> None:
        self._learner = learner
        self._last: WeakKeyDictionary[PartyClient, PartyView] = WeakKeyDictionary()
        self._asked: WeakKeyDictionary[PartyClient, asyncio.Task[PartyView]] = WeakKeyDictionary()

    async def now(self) -> list[PartyView]:
        """Ask all parties; return what each answers by the deadline, or the problem of one that does not."""
        return await asyncio.gather(*map(self._ask, tuple(self._learner.roster.values())))

    async def soon(self, seconds: float) -> list[PartyView]:
        """Ask all parties; after so many seconds, return for the others what they said last, and go on asking them.

        A party is asked once at a time, however many callers wait for it.
        """
        parties = tuple(self._learner.roster.values())
        asked = [self._being_asked(party) for party in parties]
        if asked:
            await asyncio.wait(asked, timeout=seconds)
        return [self._known(party, task) for party, task in zip(parties, asked, strict=True)]

    def _being_asked(self, party: PartyClient) -> asyncio.Task[PartyView]:
        """Return the task that asks a party: the one that does so already, or a new one."""
        task = self._asked.get(party)
        if task is None or task.done():
            task = self._asked[party] = asyncio.create_task(self._ask(party))
        return task

    def _known(self, party: PartyClient, task: asyncio.Task[PartyView]) -> PartyView:
        """Return what a party has answered; if nothing, what it said last, and why it does not say so now."""
        if not task.done():
            return self._said(party).model_copy(update={"awaited": True})
        task.result()  # raises what no party can cause
        return self._last[party]

    async def _ask(self, party: PartyClient) -> PartyView:
        """Ask a party for its facts, and for its accounts of the learner's studies; remember what it answers."""
        deadline = self._learner.settings.deadline_seconds
        (answer,) = await ask_all([party], PartyClient.facts, deadline)
        view = self._silent(party)
        if isinstance(answer, ParleyError):
            problem = {"problem": ProblemDocument.model_validate(document_of(answer))}
            self._last[party] = self._said(party).model_copy(update=problem)
            return view.model_copy(update=problem)
        if self._learner.roster.get(party.name) is party:  # it may have been removed meanwhile
            await asyncio.to_thread(self._learner.known.note, {party.name: answer})
        digests = {study.digest for study in self._learner.studies.values()}
        budgets = await _budgets(party, answer, digests, deadline)
        view = view.model_copy(update={"facts": answer, "budgets": budgets, "as_of": datetime.now(UTC)})
        self._last[party] = view
        return view

    def _said(self, party: PartyClient) -> PartyView:
        """Return what a party said last; if nothing since the learner began, the facts that the learner keeps."""
        kept = {"facts": self._learner.known.facts.get(party.name)}
        return self._last.get(party) or self._silent(party).model_copy(update=kept)

    def _silent(self, party: PartyClient) -> PartyView:
        """Return the view of a party that has said nothing."""
        urls = {entry.name: str(entry.url) for entry in self._learner.settings.parties if entry.url}
        return PartyView(name=party.name, url=urls.get(party.name), facts=None, budgets={}, problem=None)


async def _budgets(
    party: PartyClient, facts: PartyFacts, digests: Container[str], seconds: float
) -> dict[str, BudgetReport]:
    """Return a party's accounts by the ``digests`` of the learner's studies, as far as it says within ``seconds``."""
    held = [study.study_digest for study in facts.studies if study.study_digest in digests]
    reports = await asyncio.gather(
        *(ask_all([party], partial(PartyClient.budget, study_digest=of), seconds) for of in held)
    )
    return {of: report for of, (report,) in zip(held, reports, strict=True) if isinstance(report, BudgetReport)}
