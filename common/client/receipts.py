"""What an asker holds against a service whose ledger was set back: the newest receipt that the service signed.

It is shown with every request, and the service answers only while its ledger holds what it says. Each response must
carry a newer one, by the same key, that says that what was shown was found in the ledger: a count that falls, a head
that does not go on from the one that was known, or an answer to another question is refused.

What other askers hold counts as well: it is put to the service by itself, before it is asked anything else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import Binding, Head, Receipt, read_receipt, verify_receipt

_REMEMBERED = 1024
_MOST_UNSETTLED = 64


@dataclass(slots=True)
class ReceiptKeeper:
    """The newest receipt of one service, and the public key it is checked with.

    Without a ``key`` the first receipt's own is taken from then on: it was not pinned by anybody.
    """

    signer: str
    key: str | None = None
    newest: Receipt | None = None
    unsettled: dict[str, Receipt] = field(default_factory=dict)
    """Receipts that others handed on, by their links, for which the service has yet to account."""
    _settled: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """The last links that the service itself has shown or accounted for."""

    def __post_init__(self) -> None:
        if self.key is None and self.newest is not None:
            self.key = self.newest.key

    def take(self, text: str | None, shown: Receipt | None, asked: Binding | None = None) -> Receipt:
        """The receipt of a response to a request that had ``shown`` one and, in a round, ``asked`` something.

        Raises LedgerError where it is missing, was not signed by the service, or contradicts what is known.
        """
        if text is None:
            raise LedgerError("its answer carries no receipt")
        receipt = verify_receipt(text, self.signer, self.key or _key_of(text))
        if receipt.shown != (shown and shown.head):
            raise LedgerError("its receipt does not go on from the one that it was shown")
        if shown is not None and receipt.ledger == shown.ledger and receipt.head.count < shown.head.count:
            raise LedgerError("its ledger has fewer entries than it had")
        if asked is not None and receipt.answer != asked:
            raise LedgerError("its answer is not to what it was asked")
        self._keep(receipt)
        return receipt

    def learn(self, text: str) -> None:
        """Take a receipt that somebody else handed on: the service must account for it before it is believed again.

        The service alone can say whether its ledger holds that history or has replaced it, also where the receipt is
        older than what is known, for it may be of another history. What the service did not sign is passed over, as is
        all of one whose key is not known yet.
        """
        if self.key is None or len(self.unsettled) >= _MOST_UNSETTLED:
            return
        try:
            if (link := read_receipt(text).head.link) not in self._settled:
                self.unsettled[link] = verify_receipt(text, self.signer, self.key)
        except LedgerError:
            return

    def settle(self, text: str | None, shown: Receipt) -> None:
        """Take the response that accounts for a receipt that was ``shown``; raises LedgerError where it does not."""
        if text is None or verify_receipt(text, self.signer, self.key or _key_of(text)).shown != shown.head:
            raise LedgerError("it does not account for a receipt that it signed")
        self._settled.append(shown.head.link)
        self.unsettled.pop(shown.head.link, None)

    def _keep(self, receipt: Receipt) -> None:
        """Keep a receipt if it is newer; raises LedgerError where it contradicts what is known."""
        known = self.newest
        is_same = known is not None and known.ledger == receipt.ledger
        if known is not None and is_same and _forks(known.head, receipt.head):
            raise LedgerError("two of its receipts contradict each other: its ledger was set back")
        self.key = receipt.key
        self._settled.append(receipt.head.link)
        if known is None or not is_same or receipt.head.count > known.head.count:
            self.newest = receipt


def _forks(one: Head, other: Head) -> bool:
    return one.count == other.count and one.link != other.link


def _key_of(text: str) -> str:
    return read_receipt(text).key
