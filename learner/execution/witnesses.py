"""Hands receipts on from one peer to another, so that each party and key holder has the others as witnesses.

If a peer was set back to an earlier state, together with this learner's receipts of it, a later receipt that another
peer holds still shows it. Before a run is proposed or taken up, its peers are asked for the receipts that they hold of
each other, and each peer must account for its own (`parley.common.protocol.receipts`). While runs go on, new receipts
are handed on, a few at a time, and all of them at a run's end. None of this fails a run or delays it for long: a
witness that does not answer soon is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

import structlog

from parley.common.client.peer import Peer
from parley.common.errors import LedgerError, RefusedError, UnavailableError
from parley.common.protocol.receipts import MOST_RECEIPTS, Receipt, read_receipt

_T = TypeVar("_T")

_PATIENCE_TO_ASK = 2.0  # seconds for one witness, before a run that most likely needs it
_PATIENCE_TO_HAND_ON = 1.0  # seconds for one witness
_PAUSE = 1.0  # seconds between two turns
_WITNESSES_A_TURN = 2
_SET_BACK = (
    "this learner's state is older than it was: another service holds a later receipt that was given to this learner; "
    "compare the members of the roster, and expect runs that began since to be gone"
)


class Witnesses:
    """Asks all ``peers``, by name, for receipts of each other, and hands new ones on.

    ``copied`` are the texts of receipts that came with a backup. Nobody is given these: later ones may have been lost.
    """

    def __init__(self, peers: Mapping[str, Peer], copied: Collection[str] = ()) -> None:
        self._peers, self._copied = peers, copied
        self._states: dict[str, dict[str, str]] = {}
        """By witness and signer, the state that the last receipt vouches for which was handed on."""

    def newest(self, name: str) -> Receipt | None:
        """Return the newest receipt of a peer; None without any, or for an unknown name."""
        return self._peers[name].receipts.newest if name in self._peers else None

    def is_copied(self, receipt: Receipt) -> bool:
        """Return whether a receipt came with a backup: its signer may have given a later one, which was lost."""
        return receipt.text in self._copied

    async def ask(self, names: Iterable[str]) -> None:
        """Ask these peers for their receipts of all; each signer must account for its own before it is asked more."""
        witnesses = [self._peers[name] for name in names if name in self._peers]
        answers = await asyncio.gather(*(_soon(witness.stored_receipts, _PATIENCE_TO_ASK) for witness in witnesses))
        for text in {text for texts in answers for text in texts or ()}:
            try:
                receipt = read_receipt(text)
            except LedgerError:
                continue
            if peer := self._peers.get(receipt.signer):
                if peer.receipts.was_newer(receipt):
                    structlog.get_logger().warning("set back", peer=peer.name, advice=_SET_BACK)
                peer.receipts.learn(text)

    async def hand_on(self, names: Iterable[str]) -> None:
        """Hand each of these peers the receipts that it has not been handed yet."""
        await asyncio.gather(*(self._hand_on(self._peers[name]) for name in names if name in self._peers))

    async def keep_handing_on(self) -> None:
        """Hand new receipts to a few peers in turn, without end."""
        while True:
            names = list(self._peers)  # peers come and go
            for start in range(0, max(len(names), 1), _WITNESSES_A_TURN):
                await asyncio.sleep(_PAUSE)
                await self.hand_on(names[start : start + _WITNESSES_A_TURN])

    async def _hand_on(self, witness: Peer) -> None:
        states = self._states.setdefault(witness.name, {})
        stored = [peer.receipts.stored for peer in self._peers.values() if peer is not witness]
        current = [receipt for receipt in stored if receipt and not self.is_copied(receipt)]
        unsent = [receipt for receipt in current if states.get(receipt.signer) != receipt.state]
        batch = unsent[:MOST_RECEIPTS]
        if not batch:
            return

        async def hold() -> bool:
            await witness.store_receipts([receipt.text for receipt in batch])
            return True

        if await _soon(hold, _PATIENCE_TO_HAND_ON):
            states |= {receipt.signer: receipt.state for receipt in batch}


async def _soon(ask: Callable[[], Awaitable[_T]], seconds: float) -> _T | None:
    """Return a witness's answer within so many seconds; None if it does not answer or refuses."""
    try:
        async with asyncio.timeout(seconds):
            return await ask()
    except (UnavailableError, RefusedError, TimeoutError) as error:
        structlog.get_logger().debug("witness", error=type(error).__name__)
        return None
