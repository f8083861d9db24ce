"""Ledgers for tests: made where there is none, opened under a fixed identity."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.privacy.account import Account
from parley.common.secure_sum.session import Identity
from parley.party.ledger.ledger import Ledger, create_ledger
from parley.party.ledger.records import Answered, from_json
from parley.party.settings import PartySettings

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def party_identity(settings: PartySettings) -> Identity:
    """Who a party of these settings is."""
    return Identity(settings.name, settings.signing_key())


def make_ledger(settings: PartySettings) -> PartySettings:
    """The settings, whose ledger there is from now on."""
    if not (settings.state / "ledger.db").exists():
        create_ledger(settings.state, party_identity(settings), settings.policy.adjacency)
    return settings


def stored_answers(state: Path, run: str) -> list[tuple[Answered, bytes]]:
    """A run's answers in a party's state directory, with their bodies, by round."""
    entries = []
    with closing(sqlite3.connect(state / "ledger.db")) as connection:
        for number, record in connection.execute("SELECT number, record FROM entries ORDER BY number").fetchall():
            entry = from_json(number, json.loads(record))
            if isinstance(entry.record, Answered) and entry.record.run == run:
                question = "SELECT value FROM attachments WHERE number = ? AND name = 'body'"
                entries.append((entry.record, bytes(connection.execute(question, (number,)).fetchone()[0])))
    return entries


def open_ledger(directory: Path, limit: Account, name: str = "party", *, reservation_days: float = 30) -> Ledger:
    """A ledger in a directory, made where there is none, of a party with a key of its own."""
    identity = Identity(name, KEY)
    if not (directory / "ledger.db").exists():
        create_ledger(directory, identity, limit.adjacency)
    return Ledger(directory, identity, limit, reservation_days=reservation_days)
