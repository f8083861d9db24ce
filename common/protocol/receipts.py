"""Receipts: signatures of a service over the state of its chain of records, by which an old copy is recognised.

A *head* describes a chain in short: its length and its last link, a hash over all that the chain holds. A service signs
its head into each answer, and each request shows it the newest head that the caller has. It answers only while its own
chain holds that head; a chain that was set back does not, and a service that signs that its chain does ("shown") was
not set back. So a receipt is evidence: anyone who has it and the service's public key can check it.

A receipt is two parts in base64, joined by a dot: the claim, canonical JSON, and an Ed25519 signature of it.

A caller keeps the newest receipt of each service, as evidence against one whose chain was set back (`ReceiptKeeper`).
It shows it with every request. Each response must carry a newer one, by the same key, that says that the one shown was
found in the chain: a count that falls, a head that does not follow the known one, or an answer to another question is
refused. Receipts that other callers kept count as well: the service must account for each before it is asked anything
more.

A service need not show its whole chain to each caller. A party shows a learner the chain of the records about that
learner alone, and *seals* the rest for itself: the head of its whole chain, and its totals.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, StringConstraints

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import InvalidReceiptError, LedgerError, ParleyError
from parley.common.secure_sum.envelope import Signed, public_hex
from parley.common.strict import Strict


@dataclass(frozen=True, slots=True)
class Head:
    """A chain's length and its last link, 64 hexadecimal digits; an empty chain has 0 and 64 zeros."""

    count: int
    link: str


RECEIPT_HEADER = "Parley-Receipt"
"""The header of a receipt, in a request and in its answer."""

APPROVAL = 0
"""The round number of an approval of a run: its question is the specification, by its digest."""
_TAG = "parley-receipt-1"
_LARGEST_COUNT = 2**53
_DIGEST_LENGTH = 64
_REMEMBERED = 1024
_MOST_UNSETTLED = 64


@dataclass(frozen=True, slots=True)
class Binding:
    """The answer that a receipt came with: its run, its round, and SHA-256 of the question and of the answer's body."""

    run: str
    round: int
    query: str
    body: str

    @classmethod
    def of(cls, run: str, round: int, query: str, body: bytes) -> Self:
        """Return the binding of an answer; ``query`` is the digest of the question."""
        return cls(run, round, query, hashlib.sha256(body).hexdigest())


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that may be sent, and the binding that its receipt carries."""

    body: bytes
    bound: Binding


MOST_RECEIPTS = 1000
LONGEST_RECEIPT = 4096


class HeldReceipts(Strict):
    """Receipts of services, as they signed them, which services pass on to each other."""

    receipts: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=LONGEST_RECEIPT)], ...],
        Field(max_length=MOST_RECEIPTS, description="each as it stood in a header Parley-Receipt"),
    ]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A claim of ``signer``, who holds ``key``, about the chain that began with the link ``ledger``.

    ``to`` names the recipient; ``shown`` is the head that the signer was shown and has in its chain; ``answer`` binds
    it to the answer that it was sent with; ``totals`` are the signer's own public sums. ``sealed`` is in base64 what
    only the signer can read. ``text`` is the receipt as it was sent.
    """

    signer: str
    key: str
    ledger: str
    head: Head
    to: str
    shown: Head | None
    answer: Binding | None
    totals: dict[str, Any]
    text: str
    sealed: str = ""

    @property
    def state(self) -> str:
        """The state of the chain that it vouches for, as far as a reader can tell states apart."""
        return self.head.link + self.sealed

    def follows(self, count: int) -> bool:
        """Say whether it may be newer than one of the same chain that came before it, with so many entries.

        What is sealed may be newer under the same head.
        """
        return self.head.count > count or (self.head.count == count and self.sealed != "")


def write_receipt(  # noqa: PLR0913 -- a claim's parts, by name
    key: Ed25519PrivateKey,
    *,
    signer: str,
    ledger: str,
    head: Head,
    to: str = "",
    shown: Head | None = None,
    answer: Binding | None = None,
    totals: dict[str, Any] | None = None,
    sealed: str = "",
) -> Receipt:
    """Sign a receipt; see `Receipt`."""
    public = public_hex(key)
    claim = {
        "signer": signer,
        "key": public,
        "ledger": ledger,
        "head": _plain(head),
        "to": to,
        "shown": shown and _plain(shown),
        "answer": answer and _plain(answer),
        "totals": totals or {},
    } | ({"sealed": sealed} if sealed else {})
    signed = Signed.seal(_TAG, canonical(claim), key)
    text = f"{base64.b64encode(signed.body).decode()}.{base64.b64encode(signed.signature).decode()}"
    return Receipt(signer, public, ledger, head, to, shown, answer, totals or {}, text, sealed)


def read_receipt(text: str) -> Receipt:
    """Read a receipt without checking its signature. Raises InvalidReceiptError if it is none."""
    return _read(text)[0]


def verify_receipt(text: str, signer: str, key: str) -> Receipt:
    """Read a receipt and check that ``signer``, who holds the public ``key``, signed it.

    Raises InvalidReceiptError if not.
    """
    receipt, signed = _read(text)
    try:
        signed.verify(_TAG, key)
    except ParleyError:
        raise InvalidReceiptError(f"a receipt that was not signed with the key of {signer}") from None
    if (receipt.signer, receipt.key) != (signer, key):
        raise InvalidReceiptError(f"a receipt of {receipt.signer[:100]!r}, not of {signer}")
    return receipt


def _plain(value: Head | Binding) -> dict[str, Any]:
    """Return the fields of a head or a binding, as in a claim."""
    return {name: getattr(value, name) for name in value.__slots__}


def _read(text: str) -> tuple[Receipt, Signed]:
    """Read a receipt and what was signed, without checking the signature. Raises InvalidReceiptError if it is none."""
    try:
        signed = _signed(text)
        claim = json.loads(signed.body)
        receipt = Receipt(
            signer=str(claim["signer"]),
            key=str(claim["key"]),
            ledger=_link(claim["ledger"]),
            head=_head(claim["head"]),
            to=str(claim["to"]),
            shown=claim["shown"] and _head(claim["shown"]),
            answer=claim["answer"] and Binding(**claim["answer"]),
            totals=dict(claim["totals"]),
            text=text,
            sealed=str(claim.get("sealed", "")),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidReceiptError("a receipt that cannot be read") from None
    return receipt, signed


def _signed(text: str) -> Signed:
    """Decode claim and signature. Raises ValueError."""
    if len(text) > LONGEST_RECEIPT:
        raise ValueError(text[:1])
    claim, _, signature = text.partition(".")
    try:
        return Signed(base64.b64decode(claim, validate=True), base64.b64decode(signature, validate=True))
    except binascii.Error as error:
        raise ValueError(text[:1]) from error


def _head(value: dict[str, Any]) -> Head:
    """Read a head with a valid count. Raises ValueError, TypeError or KeyError."""
    count = value["count"]
    if type(count) is not int or not 0 <= count <= _LARGEST_COUNT:
        raise ValueError("count")
    return Head(count, _link(value["link"]))


def _link(value: object) -> str:
    if not isinstance(value, str) or len(value) != _DIGEST_LENGTH:
        raise ValueError("link")
    return value


@dataclass(slots=True)
class ReceiptKeeper:
    """The newest receipt of one service, and the public key it is checked with.

    Without a ``key``, which nobody has pinned then, the key of the first receipt counts from then on.
    """

    signer: str
    key: str | None = None
    newest: Receipt | None = None
    stored: Receipt | None = None
    """The newest that the caller has on its disk: only such are handed on, so that none is later than its own."""
    unsettled: dict[str, Receipt] = field(default_factory=dict)
    """Receipts that others passed on, by their states, for which the service has yet to account."""
    _settled: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """The last states that the service itself has shown or accounted for."""

    def __post_init__(self) -> None:
        self.stored = self.newest
        if self.key is None and self.newest is not None:
            self.key = self.newest.key

    def take(
        self, text: str | None, shown: Receipt | None, query: tuple[str, int, str] | None = None, body: bytes = b""
    ) -> Receipt:
        """Take the receipt of the response to a request that was sent with the receipt ``shown``.

        In a round, it must bind the response's ``body`` to the ``query``: run, round and digest of the question. Raises
        LedgerError if it is missing, was not signed by the service, or contradicts earlier receipts.
        """
        if text is None:
            raise LedgerError("its answer carries no receipt")
        receipt = verify_receipt(text, self.signer, self.key or _key_of(text))
        if receipt.shown != (shown and shown.head):
            raise LedgerError("its receipt does not go on from the one that it was shown")
        if shown is not None and receipt.ledger == shown.ledger and receipt.head.count < shown.head.count:
            raise LedgerError("its ledger has fewer entries than it had")
        if query is not None and receipt.answer != Binding.of(*query, body):
            raise LedgerError("its answer is not to what it was asked")
        self._keep(receipt)
        return receipt

    def was_newer(self, receipt: Receipt) -> bool:
        """Return whether the caller once had a later receipt than the newest that it has: one that was given to it."""
        newest = self.newest
        if newest is None or (receipt.key, receipt.ledger, receipt.to) != (newest.key, newest.ledger, newest.to):
            return False
        return receipt.head.count > newest.head.count

    def learn(self, text: str) -> None:
        """Take a receipt that another caller passed on: the service must account for it before it is trusted again.

        Only the service can say whether its ledger holds that history or has replaced it. That applies to a receipt
        that is older than the newest too, for it may belong to another history. Receipts that the service did not sign
        are ignored, and so are all receipts while its key is not known.
        """
        if self.key is None or len(self.unsettled) >= _MOST_UNSETTLED:
            return
        try:
            if (state := read_receipt(text).state) not in self._settled:
                self.unsettled[state] = verify_receipt(text, self.signer, self.key)
        except LedgerError:
            return

    def settle(self, text: str | None, shown: Receipt) -> None:
        """Take the response that must account for a receipt that was ``shown``; raises LedgerError if it does not."""
        if text is None or verify_receipt(text, self.signer, self.key or _key_of(text)).shown != shown.head:
            raise LedgerError("it does not account for a receipt that it signed")
        self._settled.append(shown.state)
        self.unsettled.pop(shown.state, None)

    def _keep(self, receipt: Receipt) -> None:
        """Keep a receipt if it is newer; raises LedgerError if it contradicts the newest one."""
        newest = self.newest
        is_same = newest is not None and newest.ledger == receipt.ledger
        if newest is not None and is_same and _forks(newest.head, receipt.head):
            raise LedgerError("two of its receipts contradict each other: its ledger was set back")
        self.key = receipt.key
        self._settled.append(receipt.state)
        if newest is None or not is_same or receipt.follows(newest.head.count):
            self.newest = receipt


def _forks(one: Head, other: Head) -> bool:
    return one.count == other.count and one.link != other.link


def _key_of(text: str) -> str:
    return read_receipt(text).key
