"""The newest receipt of each chain of other services, so that a service can tell when one was set back to an old copy.

Only receipts by keys that the service has pinned are kept. If a signer has begun a new chain, the newest receipt of
each of its chains is kept, up to a limit: only the signer can say which chain replaces which.

What each caller handed on is kept apart, and shown to no other: a receipt says who asked its signer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from parley.common.protocol.receipts import read_receipt, verify_receipt
from parley.common.storage.sqlite import Database, Schema

_TABLE = """CREATE TABLE receipts (                   -- the newest of each chain, as each caller handed it on
        by TEXT NOT NULL,                             -- who handed it on; empty if an older version did not note it
        signer TEXT NOT NULL,
        key TEXT NOT NULL,                            -- Ed25519, hexadecimal
        ledger TEXT NOT NULL,                         -- the chain's first link
        count INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (by, signer, key, ledger)
    ) STRICT"""
_TO_VERSION_2 = (
    "ALTER TABLE receipts RENAME TO earlier",
    _TABLE,
    "INSERT INTO receipts SELECT '', signer, key, ledger, count, text FROM earlier",
    "DROP TABLE earlier",
)
_SCHEMA = Schema(
    "receipts of others",
    application=0x50_57_49_54,  # it spells PWIT
    version=2,
    tables=(_TABLE,),
    migrations={2: _TO_VERSION_2},
)
_MOST_CHAINS = 64
_FIND = "SELECT ledger, count FROM receipts WHERE by = ? AND signer = ? AND key = ?"
_KEEP = """
    INSERT INTO receipts (by, signer, key, ledger, count, text) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (by, signer, key, ledger) DO UPDATE SET count = excluded.count, text = excluded.text"""
_ALL = "SELECT text FROM receipts ORDER BY by, signer, key, count"
_HANDED_ON_BY = "SELECT text FROM receipts WHERE by = ? ORDER BY signer, key, count"
_ADOPT = "UPDATE OR IGNORE receipts SET by = ? WHERE by = ''"

PinnedSigners = Callable[[], Collection[tuple[str, str]]]
"""The names and public keys of the services whose receipts are kept."""


class Witness:
    """The receipts of other services, in a directory. For any thread; methods raise UnavailableError."""

    def __init__(self, directory: Path, pinned: PinnedSigners, callers: Collection[str]) -> None:
        """Open the store; older versions noted no caller: if there is one alone, it handed on what they stored."""
        self._pinned = pinned
        self._database = Database(directory / "witness.db", _SCHEMA)
        if len(callers) == 1:
            with self._database.transaction() as connection:
                connection.execute(_ADOPT, tuple(callers))

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self._database.close()

    def probe(self) -> None:
        """Raise UnavailableError unless a receipt can be stored next."""
        self._database.probe()

    def take(self, texts: Iterable[str], by: str) -> int:
        """Store receipts handed on ``by`` a caller, unless it handed on newer ones; return how many were stored.

        Those by keys that are not pinned are ignored.

        Raises InvalidReceiptError, and stores nothing, where a text is no receipt or was not signed with the key it
        names.
        """
        pinned, receipts = self._pinned(), [read_receipt(text) for text in texts]
        for receipt in receipts:
            verify_receipt(receipt.text, receipt.signer, receipt.key)
        accepted = [receipt for receipt in receipts if (receipt.signer, receipt.key) in pinned]
        if not accepted:
            return 0
        with self._database.transaction() as connection:
            n_stored = 0
            for receipt in accepted:
                owner = by, receipt.signer, receipt.key
                counts = dict(connection.execute(_FIND, owner).fetchall())
                newest = counts.get(receipt.ledger)
                if len(counts) < _MOST_CHAINS if newest is None else receipt.follows(newest):
                    connection.execute(_KEEP, (*owner, receipt.ledger, receipt.head.count, receipt.text))
                    n_stored += 1
        return n_stored

    def texts(self, by: str | None = None) -> list[str]:
        """Return the stored receipts that a caller handed on; all, if none is named."""
        with self._database.reading() as connection:
            rows = connection.execute(_ALL) if by is None else connection.execute(_HANDED_ON_BY, (by,))
            return [text for (text,) in rows]
