"""A run's reply log in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.protocol.driver import logged_reply
from common.protocol.messages import Query, Reply

if TYPE_CHECKING:
    from common.client.party import PartyClient
    from learner.execution.round_report import Reporter
    from learner.storage.run_store import RunStore


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The replies of one run, durable before the program sees them.

    ``length`` is the number of rounds that were logged when the program started: only those are looked up.
    """

    store: RunStore
    run: str
    length: int
    parties: tuple[PartyClient, ...]
    reporter: Reporter

    def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query; ReplayMismatchError if the program asks another than it did then."""
        return logged_reply(self.store.reply(self.run, query.round), query) if query.round <= self.length else None

    def append(self, query: Query, reply: Reply) -> None:
        """Commit a reply, the news of its round and the newest receipts."""
        receipts = [party.receipt for party in self.parties if party.receipt]
        notices, opened = self.reporter.notices(query, reply), self.reporter.report().opened
        self.store.append(self.run, query, reply, notices, receipts, opened=opened)
