"""The ledger on disk: what was approved, what was answered, what it cost, and the one-time noise, in one database.

An answer is released only when it is committed: charge, answer, one-time noise and the chain's new link are one
transaction, which is read back before anything is sent. So a crash at any moment leaves either nothing, and the round
may be asked again, or everything, and the same question gets the same bytes for nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from common.encoding.npy import pack_array
from common.errors import ConflictError, InvalidInputError, LedgerError, NotFoundError, UnavailableError
from common.privacy.account import Account, Cost, Price, exhausted
from common.privacy.guarantee import Adjacency
from common.runs.specification import RunSpec
from common.service.sqlite import open_database, transaction
from party.ledger import statements as sql
from party.ledger.hash_chain import Ask, Entry, Head, check_chain, verify_receipt, write_receipt
from party.ledger.head_file import HeadFile

if TYPE_CHECKING:
    from common.wire.party_api import RunProposal

Kept = Mapping[str, npt.NDArray[Any]]
Compute = Callable[[Kept], tuple[bytes, Kept]]
"""One answer: from the one-time noise kept so far to the body, and all one-time noise there is now."""


@dataclass(frozen=True, slots=True)
class Consent:
    """A run that the party approved, and the price it named."""

    spec: RunSpec
    price: Price


@dataclass(frozen=True, slots=True)
class Released:
    """An answer that may be sent: the body, and the receipt that pins the ledger it is written in."""

    body: bytes
    receipt: str


_DAMAGED = "the ledger's database is damaged"
_OLD_COPY = "the ledger on disk is older than the one this party last wrote: a restored copy is refused"


class Ledger:
    """One party's ledger. Its methods are for one thread; several processes may share the directory.

    Every method raises UnavailableError while the database cannot be written, and LedgerError when it is damaged or is
    not the one that the party last wrote.
    """

    def __init__(self, directory: Path, party: str, limit: Account) -> None:
        """Open the ledger in ``directory``, or begin it; ``limit`` is the owner's budget as of now.

        Of a limit below what is spent, what is spent remains: nothing is left then.
        """
        self._party = party
        with _understood():
            self._connection = open_database(directory / "ledger.db")
            self._file = HeadFile(directory / "ledger.head")
        try:
            self._open(limit)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and the head file."""
        self._connection.close()
        self._file.close()

    def approve(self, learner: str, proposal: RunProposal, price: Price) -> Consent:
        """Write the consent to a run down; where there is one already, that one counts.

        Raises BudgetExhaustedError where too little is left.
        """
        spec, totals = proposal.spec.model_dump_json(), json.dumps(asdict(price))
        row = {"learner": learner, "run": proposal.run, "spec": spec, "price": totals}
        with self._transaction() as connection:
            if (known := connection.execute(sql.FIND_CONSENT, row).fetchone()) is None:
                _account(connection).charge(price.whole)  # refuses; the rounds are charged one by one
                connection.execute(sql.ADD_CONSENT, row)
                return Consent(proposal.spec, price)
        return _consent(*known)

    def consent(self, learner: str, run: str) -> Consent | None:
        """The consent to a run, or None."""
        with self._transaction() as connection:
            row = connection.execute(sql.FIND_CONSENT, {"learner": learner, "run": run}).fetchone()
        return _consent(*row) if row else None

    def end(self, learner: str, run: str) -> None:
        """Answer no more rounds of a run; raises NotFoundError if there is no such run."""
        with self._transaction() as connection:
            if connection.execute(sql.END_RUN, {"learner": learner, "run": run}).rowcount == 0:
                raise NotFoundError(f"run {run} is not known here")

    def answer(self, ask: Ask, price: Price, compute: Compute) -> Released:
        """The stored answer to ``ask``, at no cost, or a new one: charged, computed, committed, read back.

        Raises ConflictError if the round was asked something else, is over, or the run has ended; NotFoundError for an
        unknown run; BudgetExhaustedError when the price does not fit. Whatever is raised, nothing was charged.
        """
        key = _record(ask)
        with self._transaction() as connection:
            stored = connection.execute(sql.FIND_ANSWER, key).fetchone()
            if stored is None:
                cost = self._charge(connection, ask, price)
                self._add(connection, ask, cost, price.adjacency, compute)
        if stored is None:
            with _understood():
                stored = self._connection.execute(sql.FIND_ANSWER, key).fetchone()
            self._seen = Head(*stored[2:])
            self._file.write(self._seen)
        query, body, number, link = stored
        if query != ask.query:
            raise ConflictError(f"round {ask.round} of run {ask.run} was asked something else before")
        return Released(body, write_receipt(self._party, Head(number, link), self._adjacency, self._key))

    def join(self, learner: str, run: str, invitation: bytes) -> None:
        """Keep the invitation to a run's secure sum, unless there is one."""
        with self._transaction() as connection:
            connection.execute(sql.JOIN, {"learner": learner, "run": run, "invitation": invitation})

    def invitation(self, learner: str, run: str) -> bytes | None:
        """The invitation to a run's secure sum that was accepted, or None."""
        return self._blob(sql.FIND_INVITATION, learner, run)

    def last_answer(self, learner: str, run: str) -> bytes | None:
        """The answer to the last round that a run was answered, or None."""
        return self._blob(sql.LAST_ANSWER, learner, run)

    def unended(self, most: int) -> list[tuple[str, str]]:
        """The newest runs that have not ended, at most so many, as (learner, run)."""
        with self._transaction() as connection:
            return connection.execute(sql.UNENDED, (most,)).fetchall()

    def joined(self) -> list[tuple[str, str]]:
        """All secure sums that were joined and have not ended, as (learner, run)."""
        with self._transaction() as connection:
            return connection.execute(sql.JOINED).fetchall()

    def account(self) -> Account:
        """What may be spent and what has been."""
        with self._transaction() as connection:
            return _account(connection)

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        with self._transaction() as connection:
            return [Entry(*row[:-1]) for row in connection.execute(sql.ENTRIES)]

    def check_receipt(self, text: str) -> None:
        """Raise LedgerError unless this ledger contains the history that a receipt of this party pins."""
        head = verify_receipt(text, self._party, self._key)
        with self._transaction() as connection:
            self._check_contains(connection, head)

    def _open(self, limit: Account) -> None:
        with self._transaction() as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise LedgerError(_DAMAGED)
            for table in sql.LEDGER_TABLES:
                connection.execute(table)
            beginning = connection.execute(sql.BEGINNING).fetchone()
            if beginning is None:
                beginning = secrets.token_hex(32), secrets.token_bytes(32)
                connection.execute(sql.BEGIN, beginning)
            self._genesis, self._key = Head(0, beginning[0]), beginning[1]
            self._seen = self._checked(connection)
            self._check_adjacency(connection, limit)
            terms = {"epsilon": limit.epsilon_limit, "delta": limit.delta_limit, "adjacency": limit.adjacency}
            connection.execute(sql.SET_LIMIT, terms)

    def _checked(self, connection: sqlite3.Connection) -> Head:
        """The head of the ledger after every check that can be made of it."""
        rows = connection.execute(sql.ENTRIES)
        head = check_chain(self._genesis, ((Entry(*row[:-1]), row[-1]) for row in rows))
        spent = _account(connection)
        if (spent.epsilon_spent, spent.delta_spent) != connection.execute(sql.SUMS).fetchone():
            raise LedgerError("the ledger's account does not add up to its entries")
        if (outside := self._file.read()) is not None:
            self._check_contains(connection, outside)
        elif head.count > 0:
            raise LedgerError("the ledger's head file is missing")
        else:
            self._file.write(head)
            self._file.sync()
        return head

    def _check_adjacency(self, connection: sqlite3.Connection, limit: Account) -> None:
        """Raise InvalidInputError where the limit is to hide whole parties and charges were made that hide less."""
        self._adjacency = limit.adjacency
        (weaker,) = connection.execute(sql.WEAKER_ENTRIES).fetchone()
        if limit.adjacency == "whole_party" and weaker:
            raise InvalidInputError(
                f"policy.adjacency is whole_party, and {weaker} answers in the ledger protect one record each: they "
                "cannot count against a budget for all of the owner's data; keep replace_one, or begin a new ledger"
            )

    def _check_contains(self, connection: sqlite3.Connection, head: Head) -> None:
        """Raise LedgerError unless the ledger once had this head."""
        link = (self._genesis.link,) if head.count == 0 else connection.execute(sql.LINK_AT, (head.count,)).fetchone()
        if link != (head.link,):
            raise LedgerError(_OLD_COPY)

    def _charge(self, connection: sqlite3.Connection, ask: Ask, price: Price) -> Cost:
        """Charge a new round, or raise: see `answer`."""
        row = connection.execute(sql.PROGRESS, _record(ask)).fetchone()
        if row is None:
            raise NotFoundError(f"run {ask.run} is not known here")
        ended, last = row
        if ended:
            raise ConflictError(f"run {ask.run} has ended")
        if ask.round <= last:
            raise ConflictError(f"round {ask.round} of run {ask.run} is over; round {last} was answered")
        cost = price.step(ask.round, last)
        if connection.execute(sql.CHARGE, {"epsilon": cost.epsilon, "delta": cost.delta}).rowcount != 1:
            raise exhausted(_account(connection), cost)
        return cost

    def _add(
        self, connection: sqlite3.Connection, ask: Ask, cost: Cost, adjacency: Adjacency, compute: Compute
    ) -> None:
        """Compute an answer and write it down with its one-time noise and its link."""
        row = connection.execute(sql.LAST_LINK).fetchone()
        head = Head(*row) if row else self._genesis
        if head.count < self._seen.count:
            raise LedgerError(_OLD_COPY)
        key = {"learner": ask.learner, "run": ask.run}
        kept = {
            name: np.load(io.BytesIO(value), allow_pickle=False)
            for name, value in connection.execute(sql.FIND_ONCE, key)
        }
        body, now = compute(kept)
        new = [key | {"name": name, "value": pack_array(value)} for name, value in now.items() if name not in kept]
        connection.executemany(sql.ADD_ONCE, new)
        answer, at = hashlib.sha256(body).hexdigest(), int(time.time())
        price = cost.epsilon, cost.delta, adjacency
        entry = Entry(head.count + 1, ask.learner, ask.run, ask.round, ask.query, answer, *price, at)
        connection.execute(sql.ADD_ENTRY, _record(entry) | {"link": head.follow(entry).link, "body": body})

    def _blob(self, query: str, learner: str, run: str) -> bytes | None:
        """The one blob that a query about a run finds, or None."""
        with self._transaction() as connection:
            row = connection.execute(query, {"learner": learner, "run": run}).fetchone()
        return None if row is None else bytes(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, rolled back by whatever is raised."""
        with _understood(), transaction(self._connection) as connection:
            yield connection


@contextmanager
def _understood() -> Iterator[None]:
    """Turn what SQLite and the file system raise into Parley's errors."""
    try:
        yield
    except sqlite3.OperationalError:
        raise UnavailableError("the ledger is busy or cannot be written") from None
    except sqlite3.DatabaseError:
        raise LedgerError(_DAMAGED) from None
    except OSError as error:
        raise UnavailableError(f"the ledger cannot be opened: {error.strerror}") from None


def _record(values: Ask | Entry) -> dict[str, Any]:
    """A dataclass as a statement's parameters."""
    return {name: getattr(values, name) for name in values.__slots__}


def _account(connection: sqlite3.Connection) -> Account:
    return Account(*connection.execute(sql.ACCOUNT).fetchone())


def _consent(spec: str, price: str) -> Consent:
    totals = json.loads(price)
    due = Price(tuple(totals["epsilon"]), tuple(totals["delta"]), totals["adjacency"])
    return Consent(RunSpec.model_validate_json(spec), due)
