"""A run's reply log in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.common.protocol.driver import logged_reply
from parley.common.protocol.messages import Query, Reply
from parley.common.service.worker import Worker

if TYPE_CHECKING:
    from parley.common.client.federation import RoundReport
    from parley.common.client.receipted_peer import ReceiptedPeer
    from parley.learner.execution.round_report import Reporter
    from parley.learner.storage.run_store import RunStore


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The replies of one run, durable before the program sees them.

    ``length`` is the number of rounds that were logged when the program started: only those are looked up. ``report``
    gives how the last round went. What the store does is done by the ``worker``.
    """

    store: RunStore
    worker: Worker
    run: str
    length: int
    peers: tuple[ReceiptedPeer, ...]
    reporter: Reporter
    report: Callable[[], RoundReport]

    async def recall(self, query: Query) -> Reply | None:
        """The reply logged for this query; ReplayMismatchError if the program asks another than it did then."""
        if query.round > self.length:
            return None
        return logged_reply(await self.worker.do(lambda: self.store.reply(self.run, query.round)), query)

    async def append(self, query: Query, reply: Reply) -> None:
        """Commit a reply, the news of its round and the newest receipts."""
        went = self.report()
        await self.worker.do(lambda: self._append(query, reply, went))

    def _append(self, query: Query, reply: Reply, went: RoundReport) -> None:
        receipts = [peer.receipt for peer in self.peers if peer.receipt]
        notices = self.reporter.notices(query, reply, went)
        self.store.append(self.run, query, reply, notices, receipts, opened=went.opened)
