"""The ledger's arithmetic: entries chained by hashes, and receipts that pin a chain's head. Pure.

Entry n says what answer n cost whom. Its link is a hash over the link before it and over the entry, so one link names
the whole ledger up to there. Whoever holds (count, link) can tell whether a ledger still contains that history: a
restored old copy does not, and neither does one in which an answer was drawn again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass

from common.encoding.canonical_json import canonical
from common.errors import LedgerError
from common.privacy.guarantee import Adjacency


@dataclass(frozen=True, slots=True)
class Ask:
    """One round as a learner asks it; ``query`` is the digest of what it asks."""

    learner: str
    run: str
    round: int
    query: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Answer number n and its price: epsilon in micro-units, delta in units of 1e-18, ``at`` in seconds since 1970.

    ``query`` and ``answer`` are SHA-256 digests; ``adjacency`` is what the price hides.
    """

    number: int
    learner: str
    run: str
    round: int
    query: str
    answer: str
    epsilon: int
    delta: int
    adjacency: Adjacency
    at: int


@dataclass(frozen=True, slots=True)
class Head:
    """A ledger's length and its last link; of an empty ledger 0 and the link that it began with."""

    count: int
    link: str

    def follow(self, entry: Entry) -> Head:
        """The head after one more entry."""
        values = [getattr(entry, name) for name in entry.__slots__]
        return Head(entry.number, hashlib.sha256(self.link.encode() + canonical(values)).hexdigest())


def check_chain(genesis: Head, entries: Iterable[tuple[Entry, str]]) -> Head:
    """The head of a ledger that begins at ``genesis``, from its entries and their stored links.

    Raises LedgerError where an entry is missing or was changed.
    """
    head = genesis
    for entry, link in entries:
        if entry.number != head.count + 1 or (head := head.follow(entry)).link != link:
            raise LedgerError(f"the ledger was changed at entry {entry.number}")
    return head


def write_receipt(party: str, head: Head, adjacency: Adjacency, key: bytes) -> str:
    """A head, signed by the party for a learner to keep: base64 of JSON {party, count, head, adjacency, mac}.

    ``adjacency`` is what every charge of the ledger hides at least.
    """
    claim = _claim(party, head, adjacency)
    receipt = claim | {"mac": _mac(claim, key)}
    return base64.b64encode(json.dumps(receipt, separators=(",", ":")).encode()).decode()


def verify_receipt(text: str, party: str, key: bytes) -> Head:
    """The head that this party once signed; raises LedgerError for any other text."""
    try:
        receipt = json.loads(base64.b64decode(text, validate=True))
        head = Head(int(receipt["count"]), str(receipt["head"]))
        claim = _claim(party, head, str(receipt["adjacency"]))
        genuine = hmac.compare_digest(str(receipt["mac"]).encode(), _mac(claim, key).encode())
    except (ValueError, TypeError, KeyError, RecursionError):
        genuine = False
    if not genuine:
        raise LedgerError("the receipt was not signed with this ledger's key: the ledger is not the one it was")
    return head


def _claim(party: str, head: Head, adjacency: str) -> dict[str, str | int]:
    return {"party": party, "count": head.count, "head": head.link, "adjacency": adjacency}


def _mac(claim: dict[str, str | int], key: bytes) -> str:
    return hmac.new(key, canonical(claim), hashlib.sha256).hexdigest()
