"""What a receipt says to the party alone: the head of its whole ledger, and what all runs together have cost.

A learner sees in its receipts the chain of the records about its own runs. So it sees the same, byte for byte, whether
or not others ask the party too. The rest is sealed with a key that follows from the party's identity key: encrypted,
and bound to signer, recipient and visible head. The party itself opens it, when it is shown the receipt or has lost its
ledger. Numbers have a fixed width and the end is padded, so the length follows from the owner's words for people alone;
up to about four accounts it is always the same.
"""

from __future__ import annotations

import base64
import hashlib
import io
import operator
import secrets
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.common.errors import InvalidReceiptError
from parley.common.privacy.account import Account, Cost
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import Head, Receipt

_NONCE_BYTES = 12
_KEY_BYTES = 32
_PADDED_BYTES = 512
_HEAD = struct.Struct(">32sQ32sQBH")
"""First link, count, last link, time of the last entry, flags, and how many accounts."""
_WEAKER, _IN_COMPANY, _PERSONS = 1, 2, 4
"""Flags: whether charges hide less than all of a party; whether costs have all units, where earlier versions had four;
and whether those that hide less hide a person each, which earlier versions read as a record."""
_FLAGS: Mapping[Adjacency, int] = {"whole_party": 0, "person": _WEAKER | _PERSONS, "replace_one": _WEAKER}
_LENGTH = struct.Struct(">H")
_N_UNITS, _N_EARLIER, _UNIT_BYTES = 6, 4, 16


def own_ledger(origin: str, learner: str) -> str:
    """Return the link with which a learner's own chain begins in the ledger that began with the link ``origin``."""
    return hashlib.sha256(bytes.fromhex(origin) + learner.encode()).hexdigest()


def totals_of(accounts: Mapping[str, Account], adjacency: Adjacency, at: int) -> dict[str, Any]:
    """Return a ledger's totals as its receipts state them.

    They are what is spent and reserved of the account of all, and of each other by its ``people``; the weakest
    ``adjacency`` among all charges; and when the last entry was written, in seconds since 1970.
    """
    people = {name: account.totals() for name, account in accounts.items() if name}
    return {**accounts[""].totals(), "adjacency": adjacency, "at": at} | ({"people": people} if people else {})


class Seal:
    """Seals and opens receipts with a key that follows from the party's identity key."""

    def __init__(self, identity: Ed25519PrivateKey) -> None:
        derived = HKDF(SHA256(), _KEY_BYTES, salt=None, info=b"parley: sealed totals 1")
        self._cipher = ChaCha20Poly1305(derived.derive(identity.private_bytes_raw()))

    def close(self, claim: bytes, ledger: str, head: Head, totals: Mapping[str, Any]) -> str:
        """Seal a head and totals, as `totals_of` returns them, into the receipt with this `visible_claim`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, _packed(ledger, head, totals), claim)).decode()

    def open(self, receipt: Receipt) -> Receipt:
        """Return a receipt with the ledger, head and totals that were sealed into it; nothing is sealed in that one.

        What is reserved is among what is spent. Raises InvalidReceiptError if it was not sealed with this key.
        """
        claim = visible_claim(receipt.signer, receipt.to, receipt.ledger, receipt.head)
        try:
            sealed = base64.b64decode(receipt.sealed, validate=True)
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], claim)
        except (ValueError, InvalidTag):
            raise InvalidReceiptError("a receipt whose sealed part this party did not seal") from None
        ledger, head, totals = _unpacked(content)
        return replace(receipt, ledger=ledger, head=head, totals=totals, sealed="")


def visible_claim(signer: str, to: str, ledger: str, head: Head) -> bytes:
    """Return what the sealed part of a receipt is bound to."""
    return "\n".join((signer, to, ledger, str(head.count), head.link)).encode()


def _packed(ledger: str, head: Head, totals: Mapping[str, Any]) -> bytes:
    """Pack what is sealed; of each account the sum of what is spent and reserved."""
    others = totals.get("people", {}).items()
    charged = {people: account for people, account in others if any(account["spent"]) or any(account["reserved"])}
    accounts = {"": totals, **charged}
    first, last, flags = bytes.fromhex(ledger), bytes.fromhex(head.link), _IN_COMPANY | _FLAGS[totals["adjacency"]]
    parts = [_HEAD.pack(first, head.count, last, totals["at"], flags, len(accounts))]
    for people, account in accounts.items():
        name = people.encode()
        units = map(operator.add, account["spent"], account["reserved"])
        parts += [_LENGTH.pack(len(name)), name, *(unit.to_bytes(_UNIT_BYTES) for unit in units)]
    content = b"".join(parts)
    return content + bytes(-len(content) % _PADDED_BYTES)


def _unpacked(content: bytes) -> tuple[str, Head, dict[str, Any]]:
    """Return the ledger, head and totals that `_packed` packed."""
    packed = io.BytesIO(content)
    first, count, last, at, flags, n_accounts = _HEAD.unpack(packed.read(_HEAD.size))
    n_units = _N_UNITS if flags & _IN_COMPANY else _N_EARLIER
    accounts: dict[str, Account] = {}
    for _ in range(n_accounts):
        (length,) = _LENGTH.unpack(packed.read(_LENGTH.size))
        people = packed.read(length).decode()
        accounts[people] = Account(0, 0, Cost(*(int.from_bytes(packed.read(_UNIT_BYTES)) for _ in range(n_units))))
    hidden = flags & (_WEAKER | _PERSONS)
    adjacency: Adjacency = next((unit for unit in _FLAGS if _FLAGS[unit] == hidden), "replace_one")
    return first.hex(), Head(count, last.hex()), totals_of(accounts, adjacency, at)
