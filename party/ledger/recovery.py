"""A new ledger in the place of one that is lost, damaged or an old copy: it charges the worst that may have been spent.

What may have been released is known from what is left of the old ledger and from the receipts that learners and
witnesses hold. Each says what was spent and what was reserved for approved runs by then; the worst of all is charged at
once, reserved or not. An answer that was released is in a receipt of the learner that got it: so only where each of the
party's learners has shown its newest one is the worst known. Where one has not, the whole budget counts as spent.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from common.errors import InvalidInputError, LedgerError, ParleyError
from common.privacy.account import Account, Cost
from common.privacy.guarantee import Adjacency
from common.protocol.receipts import Receipt, read_receipt, verify_receipt
from common.secure_sum.session import Identity
from common.storage.chain import next_link
from common.storage.keys import read_private, write_private
from party.ledger.books import NOTHING, Books
from party.ledger.ledger import check_exists, create_ledger
from party.ledger.records import from_json

_FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.head")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What somebody knows of a ledger: its first link, its count of entries, and what it may have cost by then."""

    ledger: str
    count: int
    cost: Cost
    adjacency: Adjacency


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a new ledger begins with; ``missing`` are the learners whose receipts were not shown."""

    spent: Cost
    adjacency: Adjacency
    recovered: dict[str, int]
    missing: tuple[str, ...]


def plan(
    old: Books | None, evidence: Sequence[Evidence], shown: Collection[str], limit: Account, learners: Collection[str]
) -> Recovery:
    """What a new ledger must begin with: ``shown`` are the learners who have shown a receipt, of all ``learners``."""
    missing = tuple(sorted(set(learners) - set(shown)))
    costs = [each.cost for each in evidence]
    if missing:
        costs.append(Cost(limit.epsilon_limit, limit.delta_limit, slack=limit.delta_limit))
    worst = Cost(*map(max, zip(NOTHING.units, *(cost.units for cost in costs), strict=True)))
    counts: dict[str, int] = dict(old.begun.recovered) if old and old.begun else {}
    for each in evidence:
        counts[each.ledger] = max(each.count, counts.get(each.ledger, 0))
    is_weaker = any(each.adjacency == "replace_one" for each in evidence)
    hides: Adjacency = "replace_one" if is_weaker else limit.adjacency
    return Recovery(worst, hides, counts, missing)


def recover(  # noqa: PLR0913 -- its evidence, by name
    directory: Path,
    identity: Identity,
    limit: Account,
    learners: Collection[str],
    receipts: Sequence[str],
    *,
    backup: Path | None = None,
    commit: bool = True,
) -> Recovery:
    """Put a new ledger in a directory, and what is there aside; see the module. Without ``commit`` it is only planned.

    ``backup`` is a directory with an old ledger. Raises LedgerError for a receipt that is none of this party's.
    """
    shown = [_checked(text, identity) for text in receipts]
    found = [read_books(where / "ledger.db") for where in (directory, backup) if where]
    books = [known for known in found if known is not None]
    evidence = [of_receipt(receipt) for receipt in shown] + [of_books(*known) for known in books]
    old = max(books, key=lambda known: known[2], default=None)
    recovery = plan(old[0] if old else None, evidence, {receipt.to for receipt in shown}, limit, learners)
    if not commit:
        return recovery
    set_aside(directory)
    create_ledger(directory, identity, recovery.adjacency, spent=recovery.spent, recovered=recovery.recovered)
    return recovery


def read_books(path: Path) -> tuple[Books, str, int] | None:
    """What can be read of a ledger's file, up to the first entry that was changed: its books, first link and count."""
    books, link, origin, count = Books(), bytes(32), "", 0
    for number, record, stored in _rows(path):
        try:
            link = next_link(link, record)
            if number != count + 1 or link != stored:
                break
            books.tell(from_json(number, json.loads(record)))
        except (ParleyError, ValueError, TypeError, KeyError):
            break
        count, origin = number, origin or link.hex()
    return (books, origin, count) if count else None


def of_books(books: Books, origin: str, count: int) -> Evidence:
    """What a ledger's entries say."""
    account = books.account
    return Evidence(origin, count, account.spent + account.reserved, books.hides())


def of_receipt(receipt: Receipt) -> Evidence:
    """What a receipt says; raises LedgerError where its totals are not a party's."""
    try:
        spent, reserved = Cost(*receipt.totals["spent"]), Cost(*receipt.totals["reserved"])
        adjacency: Adjacency = "whole_party" if receipt.totals["adjacency"] == "whole_party" else "replace_one"
    except (TypeError, KeyError, ParleyError):
        raise LedgerError("a receipt without a party's totals") from None
    return Evidence(receipt.ledger, receipt.head.count, spent + reserved, adjacency)


def set_aside(directory: Path) -> None:
    """Move what there is of a ledger into a folder of its own."""
    present = [directory / name for name in _FILES if (directory / name).exists()]
    if not present:
        return
    number = 1
    while (aside := directory / f"replaced-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    for path in present:
        path.rename(aside / path.name)


def back_up(state: Path, directory: Path) -> None:
    """Copy a ledger, its head file and the identity key into a new directory; raises LedgerError, InvalidInputError."""
    check_exists(state)
    try:
        directory.mkdir(mode=0o700, parents=True)
        with (
            closing(sqlite3.connect(state / "ledger.db")) as source,
            closing(sqlite3.connect(directory / "ledger.db")) as copy,
        ):
            source.backup(copy)
        for name in ("ledger.head", "identity.key"):
            if (state / name).exists():
                write_private(directory / name, (state / name).read_bytes())
    except sqlite3.Error:
        raise LedgerError("the ledger cannot be copied: it is damaged or cannot be read") from None
    except OSError as error:
        raise InvalidInputError(f"{directory}: {error.strerror}") from None


def restore_key(directory: Path, state: Path) -> None:
    """Put a backup's identity key back where there is none; raises OwnKeyError."""
    if (directory / "identity.key").exists():
        write_private(state / "identity.key", read_private(directory / "identity.key"))


def _rows(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """The rows of a file's chain, as far as SQLite can read them."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            yield from connection.execute("SELECT number, record, link FROM entries ORDER BY number")
    except sqlite3.DatabaseError:
        return


def _checked(text: str, identity: Identity) -> Receipt:
    """A receipt of this party's, by the key that it has now or, where that was lost, by the one it had."""
    return verify_receipt(text, identity.name, read_receipt(text).key)
