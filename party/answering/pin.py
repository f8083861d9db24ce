"""What a ledger keeps of the data that its answers are about, so that a change is noticed when the party starts."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.files.sources import PostgresTable
from parley.party.ledger.records import DataPin
from parley.party.settings import PartySettings

if TYPE_CHECKING:
    from parley.party.data.owner_data import Holding


def pin_of(settings: PartySettings, holding: Holding) -> DataPin:
    """The data that a party has loaded, as its ledger pins them."""
    data = settings.data
    tables = {name: at if isinstance(at, str) else _spelt(at) for name, at in sorted(data.tables.items())}
    return DataPin(data.source, tables, holding.study.digest, digest_rows(holding.shard))


def digest_rows(shard: Shard) -> bytes:
    """SHA-256 of a shard: its shape, and its numbers in the order of its rows, without a copy.

    It is as secret as the rows: who knows all but one finds that one by it.
    """
    if isinstance(shard, SparseShard):
        arrays = {"data": shard.rows.data, "indices": shard.rows.indices, "indptr": shard.rows.indptr, "y": shard.y}
    else:
        arrays = {"X": shard.X, "y": shard.y}
    head = {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}
    found = hashlib.sha256(json.dumps([head, shard.shape, shard.norm]).encode())
    for array in arrays.values():
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()


def _spelt(at: PostgresTable) -> str:
    """A table of PostgreSQL: its name and where the secret is, never the secret."""
    return f"{at.postgres} {at.table}"
