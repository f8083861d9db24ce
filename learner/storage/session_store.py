"""Stores secure sums: what the learner needs to take the same steps again after a crash, in the same bytes.

A session's roster is stored before anybody is asked to sign it, the round's deadline before a party is asked, and the
contributions before a key holder is asked to open their sum: the set that is stored is the only one ever opened. The
rest of what a round sends follows from these, from the run's specification and from its log.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from parley.common.runs.certificate import SignedSum, SignedSums
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Roster
from parley.common.storage.sqlite import Database
from parley.learner.runs.run import decoding_row
from parley.learner.storage import statements as sql


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A run's session: the roster and, once all have signed it, their signatures by name."""

    roster: Roster
    signatures: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Round:
    """A round in progress: when its answers are due, in seconds since 1970, and the set to be opened once it is chosen.

    ``contributions`` are by party, empty until then; ``silent`` has the reasons of the parties not among them.
    ``is_new`` unless it was begun before, by this process or an earlier one.
    """

    deadline: int
    contributions: Mapping[str, Signed]
    silent: Mapping[str, str]
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Opening:
    """A round that was opened: the indices of its contributors, and each key holder's receipt by name."""

    round: int
    contributors: tuple[int, ...]
    receipts: Mapping[str, Signed]


class SessionStore:
    """The tables of secure sums in the learner's database.

    Methods may be called from any thread, and raise UnavailableError while the database cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, run: str, session: str) -> None:
        """Note that key holders will be asked for keys: from now on they must be informed when the run has ended."""
        with self._database.transaction() as connection:
            connection.execute(sql.BEGIN_SESSION, (run, session))

    def draft(self, run: str, roster: Roster) -> None:
        """Store the roster that all will be asked to sign."""
        names = json.dumps([holder.name for holder in roster.key_holders])
        with self._database.transaction() as connection:
            connection.execute(sql.DRAFT_ROSTER, (roster.body, names, run))

    def sign(self, run: str, signatures: Mapping[str, bytes]) -> None:
        """Store the signatures of all, by name."""
        text = json.dumps({name: signature.hex() for name, signature in signatures.items()})
        with self._database.transaction() as connection:
            connection.execute(sql.SIGN_ROSTER, (text, run))

    def find(self, run: str) -> StoredSession | None:
        """Return a run's session; None before its roster is drafted."""
        with self._database.reading() as connection:
            row = connection.execute(sql.FIND_SESSION, (run,)).fetchone()
        if row is None:
            return None
        with decoding_row("sessions", run):
            signatures = {name: bytes.fromhex(value) for name, value in json.loads(row["signatures"]).items()}
            return StoredSession(Roster.parse(row["roster"]), signatures)

    def ask(self, run: str, round: int, deadline: int) -> Round:
        """Return the round in progress, or begin it with this ``deadline``, in seconds since 1970."""
        with self._database.transaction() as connection:
            is_new = connection.execute(sql.BEGIN_ROUND, (run, round, deadline)).rowcount > 0
            row = connection.execute(sql.FIND_ROUND, (run, round)).fetchone()
            rows = connection.execute(sql.CONTRIBUTIONS, (run,)).fetchall()
        with decoding_row("contributions", run):
            contributions = {party: Signed.from_bytes(frame) for party, frame in rows}
        with decoding_row("rounds", run):  # where another round is in progress, there is none of this number
            return Round(row["deadline"], contributions, dict(json.loads(row["silent"])), is_new)

    def choose(self, run: str, contributions: Mapping[str, Signed], silent: Mapping[str, str]) -> None:
        """Store the set that will be opened in the round in progress, and the reasons of the ``silent`` parties."""
        rows = [(run, party, signed.to_bytes()) for party, signed in contributions.items()]
        with self._database.transaction() as connection:
            connection.executemany(sql.ADD_CONTRIBUTION, rows)
            connection.execute(sql.SET_SILENT, (json.dumps(dict(silent)), run))

    def openings(self, run: str) -> list[Opening]:
        """Return all rounds that were opened, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(sql.OPENINGS, (run,)).fetchall()
        with decoding_row("openings", run):
            "".join(row["key_holder"] for row in rows).encode()  # raises for bytes that are no UTF-8
            return [
                Opening(
                    round,
                    tuple(json.loads(contributors)),
                    {row["key_holder"]: Signed.from_bytes(row["receipt"]) for row in group},
                )
                for (round, contributors), group in groupby(rows, lambda row: (row["round"], row["contributors"]))
            ]

    def signed(self, run: str) -> SignedSums | None:
        """Return the members' signatures of a run's roster and the key holders' of its last sum; None without a sum."""
        if (session := self.find(run)) is None or not (openings := self.openings(run)):
            return None
        with decoding_row("openings", run):
            return SignedSums(
                roster=session.roster.body.decode(),
                signatures={name: signature.hex() for name, signature in session.signatures.items()},
                opened={
                    name: SignedSum(statement=receipt.body.decode(), signature=receipt.signature.hex())
                    for name, receipt in openings[-1].receipts.items()
                },
            )

    def forget(self, run: str) -> None:
        """Delete the round in progress and the pads' seeds: nothing will be opened any more."""
        with self._database.transaction() as connection:
            connection.execute(sql.FORGET_ROUND, (run,))

    def end(self, run: str) -> None:
        """Note that all key holders know that the session has ended."""
        with self._database.transaction() as connection:
            connection.execute(sql.END_SESSION, (run,))

    def session(self, run: str) -> str | None:
        """Return the name of a run's session if key holders may still have keys for it, otherwise None."""
        with self._database.reading() as connection:
            row = connection.execute(sql.FIND_UNENDED, (run,)).fetchone()
        return None if row is None else str(row["session"])

    def unended(self) -> list[str]:
        """Return the runs that have ended while their key holders may still have keys."""
        with self._database.reading() as connection:
            return [row["id"] for row in connection.execute(sql.UNENDED_SESSIONS)]


def close_round(connection: sqlite3.Connection, run: str, round: int, opened: Mapping[str, Signed]) -> None:
    """Keep the receipts of a round that was opened, and forget its contributions, within a transaction."""
    rows: list[tuple[Any, ...]] = [(run, round, name, receipt.to_bytes()) for name, receipt in opened.items()]
    connection.executemany(sql.ADD_OPENING, rows)
    connection.execute(sql.FORGET_ROUND, (run,))
