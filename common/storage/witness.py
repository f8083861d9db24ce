"""The newest receipt of each chain of other services, so that a service can tell when one was set back to an old copy.

Only receipts by keys that the service has pinned are kept. If a signer has begun a new chain, the newest receipt of
each of its chains is kept, up to a limit: only the signer can say which chain replaces which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from parley.common.protocol.receipts import read_receipt, verify_receipt
from parley.common.storage.sqlite import Database, Schema

_TABLES = (
    """CREATE TABLE receipts (                        -- the newest of each chain
        signer TEXT NOT NULL,
        key TEXT NOT NULL,                            -- Ed25519, hexadecimal
        ledger TEXT NOT NULL,                         -- the chain's first link
        count INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (signer, key, ledger)
    ) STRICT""",
)
_SCHEMA = Schema("receipts of others", application=0x50_57_49_54, version=1, tables=_TABLES)  # it spells PWIT
_MOST_CHAINS = 16
_FIND = "SELECT ledger, count FROM receipts WHERE signer = ? AND key = ?"
_KEEP = """
    INSERT INTO receipts (signer, key, ledger, count, text) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (signer, key, ledger) DO UPDATE SET count = excluded.count, text = excluded.text"""
_ALL = "SELECT text FROM receipts ORDER BY signer, key, count"

PinnedSigners = Callable[[], Collection[tuple[str, str]]]
"""The names and public keys of the services whose receipts are kept."""


class Witness:
    """The receipts of other services, in a directory. For any thread; methods raise UnavailableError."""

    def __init__(self, directory: Path, pinned: PinnedSigners) -> None:
        self._pinned = pinned
        self._database = Database(directory / "witness.db", _SCHEMA)

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self._database.close()

    def probe(self) -> None:
        """Raise UnavailableError unless a receipt can be stored next."""
        self._database.probe()

    def take(self, texts: Iterable[str]) -> int:
        """Store receipts that are newer than the stored ones; returns how many were. Those by other keys are ignored.

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
                owner = receipt.signer, receipt.key
                counts = dict(connection.execute(_FIND, owner).fetchall())
                newest = counts.get(receipt.ledger)
                if len(counts) < _MOST_CHAINS if newest is None else receipt.head.count > newest:
                    connection.execute(_KEEP, (*owner, receipt.ledger, receipt.head.count, receipt.text))
                    n_stored += 1
        return n_stored

    def texts(self) -> list[str]:
        """Return all stored receipts."""
        with self._database.reading() as connection:
            return [text for (text,) in connection.execute(_ALL)]
