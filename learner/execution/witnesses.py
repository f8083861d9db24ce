"""Receipts handed on from one peer to another, so that each party and key holder is witnessed by the others.

A peer that was set back, together with all that this learner knew of it, is found out if a peer still holds a later
receipt of it: before a run is proposed or taken up, its peers are asked for what they hold of each other, and each must
account for it (`parley.common.protocol.receipts`). While runs go on what is new is handed on, a little at a time, and
all of it at a run's end. Nothing of this fails a run or holds it up for long: a witness that does not answer soon is
passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import structlog

from parley.common.client.peer import Peer
from parley.common.errors import LedgerError, RefusedError, UnavailableError
from parley.common.protocol.receipts import MOST_RECEIPTS, Receipt, read_receipt

_T = TypeVar("_T")

_PATIENCE_TO_ASK = 2.0  # seconds for one witness, before a run that most likely needs it
_PATIENCE_TO_TELL = 1.0
_PAUSE = 1.0  # seconds between two turns
_TOLD_A_TURN = 2  # witnesses


class Witnesses:
    """All ``peers`` by name, as witnesses of each other."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = peers
        self._told: dict[str, dict[str, str]] = {}
        """By witness and signer, the link that it was told last."""

    def newest(self, name: str) -> Receipt | None:
        """The newest receipt of a peer; None without any, or for an unknown name."""
        return self._peers[name].receipts.newest if name in self._peers else None

    async def ask(self, names: Iterable[str]) -> None:
        """Ask these what they hold of all; whoever signed it must account for it before it is asked anything else."""
        witnesses = [self._peers[name] for name in names if name in self._peers]
        held = await asyncio.gather(*(_soon(witness.held, _PATIENCE_TO_ASK) for witness in witnesses))
        for text in {text for texts in held for text in texts or ()}:
            try:
                signer = read_receipt(text).signer
            except LedgerError:
                continue
            if peer := self._peers.get(signer):
                peer.receipts.learn(text)

    async def tell(self, names: Iterable[str]) -> None:
        """Tell each of these what it has not been told yet."""
        await asyncio.gather(*(self._tell(self._peers[name]) for name in names if name in self._peers))

    async def keep_telling(self) -> None:
        """Tell a few in turn, again and again, what is new."""
        while True:
            names = list(self._peers)  # peers come and go
            for start in range(0, max(len(names), 1), _TOLD_A_TURN):
                await asyncio.sleep(_PAUSE)
                await self.tell(names[start : start + _TOLD_A_TURN])

    async def _tell(self, witness: Peer) -> None:
        told = self._told.setdefault(witness.name, {})
        newest = [peer.receipts.newest for peer in self._peers.values() if peer is not witness]
        news = [each for each in newest if each and told.get(each.signer) != each.head.link][:MOST_RECEIPTS]
        if not news:
            return

        async def hold() -> bool:
            await witness.hold([receipt.text for receipt in news])
            return True

        if await _soon(hold, _PATIENCE_TO_TELL):
            told |= {receipt.signer: receipt.head.link for receipt in news}


async def _soon(ask: Callable[[], Awaitable[_T]], seconds: float) -> _T | None:
    """What a witness answers within so many seconds, or None."""
    try:
        async with asyncio.timeout(seconds):
            return await ask()
    except (UnavailableError, RefusedError, TimeoutError) as error:
        structlog.get_logger().debug("witness", error=type(error).__name__)
        return None
