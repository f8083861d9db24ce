"""A new ledger in the place of one that is lost, damaged or an old copy: it charges the worst that may have been spent.

What may have been released is known from what is left of the old ledger and from the receipts that learners and
witnesses hold. Each says what was spent and what was reserved for approved runs by then; the worst of all is charged at
once, reserved or not. An answer that was released is in a receipt of the learner that got it: so only where each of the
party's learners has shown its newest one is the worst known. Where one has not, the whole budget counts as spent.

A copy that was put back may have been written on before anybody noticed: then there are two histories, and what both
cost is charged. They are told apart by their links, as far as there is a ledger to read; else by the time of their last
entries, which a copy that is written on has later than the receipts from before: so a party's clock must not have been
set back. Of receipts alone, one that is both longer and later passes for one that tells of all that the other does.
"""

from __future__ import annotations

import json
import operator
import shutil
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from pathlib import Path

from parley.common.errors import InvalidInputError, LedgerError, ParleyError, UnavailableError
from parley.common.privacy.account import Account, Cost
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import Receipt, read_receipt, verify_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import finish_beginning, salvage, unused
from parley.common.storage.keys import read_private, write_private, writing
from parley.common.storage.sqlite import is_full
from parley.party.ledger.books import NOTHING, Books, is_accounted
from parley.party.ledger.ledger import check_exists, create_ledger
from parley.party.ledger.records import from_json


@dataclass(frozen=True, slots=True)
class Evidence:
    """What somebody knows of a ledger that began with the link ``ledger``: what it may have cost by then.

    Its head had ``count`` entries and this ``link``; the last was written ``at``, in seconds since 1970. ``links`` are
    those of all its entries, of a ledger that was read.
    """

    ledger: str
    count: int
    link: str
    at: int
    cost: Cost
    adjacency: Adjacency
    links: tuple[str, ...] = field(default=(), compare=False)

    def contradicts(self, other: Evidence) -> bool:
        """Whether two heads are not of one history: a copy was put back, and written on."""
        if self.count == other.count:
            return self.link != other.link
        shorter, longer = sorted((self, other), key=lambda each: each.count)
        if longer.links:
            return longer.links[shorter.count - 1] != shorter.link
        return shorter.at > longer.at


Accounted = dict[str, tuple[int, int]]
"""By first link: the count of entries, and the time of the last, up to which a ledger's cost is accounted for."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a new ledger begins with; ``missing`` are the learners whose receipts were not shown."""

    spent: Cost
    adjacency: Adjacency
    recovered: Accounted
    missing: tuple[str, ...]


def plan(
    old: Books | None, evidence: Sequence[Evidence], shown: Collection[str], limit: Account, learners: Collection[str]
) -> Recovery:
    """What a new ledger must begin with: ``shown`` are the learners who have shown a receipt, of all ``learners``."""
    missing = tuple(sorted(set(learners) - set(shown)))
    recovered: Accounted = {}
    if old and old.begun:
        recovered = {ledger: (count, at) for ledger, (count, at) in old.begun.recovered.items()}
    worst = worst_of([each for each in evidence if not is_accounted(recovered, each.ledger, each.count, each.at)])
    if missing:
        worst = _larger(worst, Cost(limit.epsilon_limit, limit.delta_limit, slack=limit.delta_limit))
    for each in evidence:
        count, at = recovered.get(each.ledger, (0, 0))
        recovered[each.ledger] = max(count, each.count), max(at, each.at)
    is_weaker = any(each.adjacency == "replace_one" for each in evidence)
    hides: Adjacency = "replace_one" if is_weaker else limit.adjacency
    return Recovery(worst, hides, recovered, missing)


def worst_of(evidence: Sequence[Evidence]) -> Cost:
    """The worst that ledgers may have cost: of one history the largest, of several what they come to together."""
    histories: dict[str, list[Evidence]] = {}
    for each in dict.fromkeys(evidence):
        histories.setdefault(each.ledger, []).append(each)
    total = NOTHING
    for known in histories.values():
        forked = any(one.contradicts(other) for one, other in combinations(known, 2))
        total += reduce(operator.add if forked else _larger, [each.cost for each in known])
    return total


def _larger(one: Cost, other: Cost) -> Cost:
    """The larger of two costs, in each unit."""
    return Cost(*map(max, one.units, other.units))


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

    ``backup`` is a directory with an old ledger. Raises LedgerError for a receipt that is none of this party's,
    ConflictError while somebody uses the ledger.
    """

    def planned() -> Recovery:
        found = [read_books(where / "ledger.db") for where in (directory, backup) if where]
        books = [known for known in found if known is not None]
        keys = {known[0].begun.key for known in books if known[0].begun}
        shown = [_checked(text, identity, keys) for text in receipts]
        evidence = [of_books(*known) for known in books] + [of_receipt(receipt) for receipt in shown]
        old = max(books, key=lambda known: len(known[1]), default=None)
        return plan(old[0] if old else None, evidence, {receipt.to for receipt in shown}, limit, learners)

    finish_beginning(directory / "ledger")
    if not commit:
        return planned()
    with unused(directory / "ledger.head"):
        recovery = planned()
        create_ledger(directory, identity, recovery.adjacency, spent=recovery.spent, recovered=recovery.recovered)
    return recovery


def read_books(path: Path) -> tuple[Books, list[str]] | None:
    """What can be read of a ledger's file, up to the first entry that was changed: its books, and all links."""
    books, links = Books(), list[str]()
    for number, record, link in salvage(path):
        try:
            books.tell(from_json(number, json.loads(record)))
        except (ParleyError, ValueError, TypeError, KeyError):
            break
        links.append(link.hex())
    return (books, links) if links else None


def of_books(books: Books, links: Sequence[str]) -> Evidence:
    """What a ledger's entries say, whose links these are."""
    cost = books.account.spent + books.account.reserved
    return Evidence(links[0], len(links), links[-1], books.at, cost, books.hides(), tuple(links))


def of_receipt(receipt: Receipt) -> Evidence:
    """What a receipt says; raises LedgerError where its totals are not a party's."""
    try:
        spent, reserved = Cost(*receipt.totals["spent"]), Cost(*receipt.totals["reserved"])
        adjacency: Adjacency = "whole_party" if receipt.totals["adjacency"] == "whole_party" else "replace_one"
        at = int(receipt.totals["at"])
    except (TypeError, ValueError, KeyError, ParleyError):
        raise LedgerError("a receipt without a party's totals") from None
    return Evidence(receipt.ledger, receipt.head.count, receipt.head.link, at, spent + reserved, adjacency)


def back_up(state: Path, directory: Path) -> None:
    """Copy a ledger, its head file and the identity key into a new directory, or leave none.

    Raises LedgerError, InvalidInputError, UnavailableError where there is no room.
    """
    check_exists(state)
    try:
        directory.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise InvalidInputError(f"{directory}: {error.strerror}") from None
    try:
        with writing(directory):
            _copy(state, directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _copy(state: Path, directory: Path) -> None:
    """Copy the files; raises OSError too."""
    (directory / "ledger.db").touch(mode=0o600)
    try:
        with (
            closing(sqlite3.connect(state / "ledger.db")) as source,
            closing(sqlite3.connect(directory / "ledger.db")) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        if is_full(error):
            raise UnavailableError(f"{directory} cannot be written: its disk is full") from None
        raise LedgerError("the ledger cannot be copied: it is damaged or cannot be read") from None
    for name in ("ledger.head", "identity.key"):
        if (state / name).exists():
            write_private(directory / name, (state / name).read_bytes())


def restore_key(directory: Path, state: Path) -> None:
    """Put a backup's identity key back where there is none; raises OwnKeyError."""
    if (directory / "identity.key").exists():
        write_private(state / "identity.key", read_private(directory / "identity.key"))


def _checked(text: str, identity: Identity, keys: Collection[str]) -> Receipt:
    """A receipt of this party's, by the key that it has now, or by one of the ``keys`` of what is left of its ledgers.

    Where nothing is left, by whichever key: the one that it had may be lost, and nobody knows it.
    """
    signed_with = read_receipt(text).key
    known = not keys or signed_with in keys
    return verify_receipt(text, identity.name, signed_with if known else identity.key)
