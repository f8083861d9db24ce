"""What a service holds of others' chains: the newest receipt of each, so that it can tell when one was set back.

Only receipts of those whose public key the service knows by itself are kept. Where a signer has begun a new chain, the
newest receipt of each of its chains is kept, up to a few: which replaces which, it alone can say.
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
_SCHEMA = Schema("receipts of others", application=0x50_57_49_54, version=1, tables=_TABLES)  # which spells PWIT
_MOST_CHAINS = 16
_FIND = "SELECT ledger, count FROM receipts WHERE signer = ? AND key = ?"
_KEEP = """
    INSERT INTO receipts (signer, key, ledger, count, text) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (signer, key, ledger) DO UPDATE SET count = excluded.count, text = excluded.text"""
_ALL = "SELECT text FROM receipts ORDER BY signer, key, count"

KnownKeys = Callable[[], Collection[tuple[str, str]]]
"""The services, each with its public key, whose receipts are kept."""


class Witness:
    """The receipts of others in a directory. For any thread; methods raise UnavailableError."""

    def __init__(self, directory: Path, known: KnownKeys) -> None:
        self._known = known
        self._database = Database(directory / "witness.db", _SCHEMA)

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self._database.close()

    def probe(self) -> None:
        """Raise UnavailableError unless a receipt can be kept next."""
        self._database.probe()

    def take(self, texts: Iterable[str]) -> int:
        """Keep what is newer than what is held; how many were. Those of services without a known key are passed over.

        Raises InvalidReceiptError, and keeps nothing, where one is no receipt or was not signed with the key it names.
        """
        known, receipts = self._known(), [read_receipt(text) for text in texts]
        for receipt in receipts:
            verify_receipt(receipt.text, receipt.signer, receipt.key)
        found = [receipt for receipt in receipts if (receipt.signer, receipt.key) in known]
        if not found:
            return 0
        with self._database.transaction() as connection:
            kept = 0
            for receipt in found:
                owner = receipt.signer, receipt.key
                counts = dict(connection.execute(_FIND, owner).fetchall())
                newest = counts.get(receipt.ledger)
                if len(counts) < _MOST_CHAINS if newest is None else receipt.head.count > newest:
                    connection.execute(_KEEP, (*owner, receipt.ledger, receipt.head.count, receipt.text))
                    kept += 1
        return kept

    def texts(self) -> list[str]:
        """All receipts that are kept."""
        with self._database.reading() as connection:
            return [text for (text,) in connection.execute(_ALL)]
