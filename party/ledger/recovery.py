"""A new ledger in the place of one that is lost, damaged or an old copy: it charges the worst that may have been spent.

What may have been released follows from what is left of the old ledger, and from the receipts that learners and
witnesses hold. Each says what was spent and what was reserved for approved runs by then; the worst of all is charged at
once, reserved or not. A released answer is in a receipt of the learner that got it. So the worst is known only if each
of the party's learners has shown its newest receipt; otherwise the whole budget counts as spent.

A copy that was put back may have been used before anybody noticed. Then there are two histories, and what both cost is
charged. Their links distinguish them if one of the ledgers can be read. Otherwise the times of their last entries do:
a copy that was used has later ones than the receipts from before. So a party's clock must not have been set back. With
receipts alone, one that is both longer and later counts as one that includes all that the other says.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from pathlib import Path

from parley.common.errors import LedgerError, ParleyError
from parley.common.privacy.account import Account, Cost
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import Receipt, read_receipt, verify_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import finish_beginning, salvage, unused
from parley.party.ledger.books import NOTHING, Books, is_accounted
from parley.party.ledger.ledger import create_ledger
from parley.party.ledger.records import from_json


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a ledger, which began with the link ``ledger``, may have cost up to one of its entries.

    That head had ``count`` entries and this ``link``; the last was written ``at``, in seconds since 1970. ``links`` are
    those of all entries, if the ledger itself was read.
    """

    ledger: str
    count: int
    link: str
    at: int
    cost: Cost
    adjacency: Adjacency
    links: tuple[str, ...] = field(default=(), compare=False)

    def contradicts(self, other: Evidence) -> bool:
        """Say whether two heads belong to different histories: a copy was put back and used."""
        if self.count == other.count:
            return self.link != other.link
        shorter, longer = sorted((self, other), key=lambda head: head.count)
        if longer.links:
            return longer.links[shorter.count - 1] != shorter.link
        return shorter.at > longer.at


Accounted = dict[str, tuple[int, int]]
"""For each ledger, by its first link: the count of entries, and the time of the last, that are accounted for."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a new ledger begins with; ``missing`` are the learners whose receipts were not shown."""

    spent: Cost
    adjacency: Adjacency
    recovered: Accounted
    missing: tuple[str, ...]


def plan(
    old: Books | None,
    evidence: Sequence[Evidence],
    shown_by: Collection[str],
    limit: Account,
    learners: Collection[str],
) -> Recovery:
    """Return what a new ledger must begin with; ``shown_by`` are those of the ``learners`` that showed a receipt."""
    missing = tuple(sorted(set(learners) - set(shown_by)))
    recovered: Accounted = {}
    if old and old.begun:
        recovered = {ledger: (count, at) for ledger, (count, at) in old.begun.recovered.items()}
    worst = worst_of([item for item in evidence if not is_accounted(recovered, item.ledger, item.count, item.at)])
    if missing:
        worst = _larger(worst, Cost(limit.epsilon_limit, limit.delta_limit, slack=limit.delta_limit))
    for item in evidence:
        count, at = recovered.get(item.ledger, (0, 0))
        recovered[item.ledger] = max(count, item.count), max(at, item.at)
    is_weaker = any(item.adjacency == "replace_one" for item in evidence)
    hides: Adjacency = "replace_one" if is_weaker else limit.adjacency
    return Recovery(worst, hides, recovered, missing)


def worst_of(evidence: Sequence[Evidence]) -> Cost:
    """Return the worst that ledgers may have cost: the largest of one history, the sum of several."""
    histories: dict[str, list[Evidence]] = {}
    for item in dict.fromkeys(evidence):
        histories.setdefault(item.ledger, []).append(item)
    total = NOTHING
    for history in histories.values():
        forked = any(one.contradicts(other) for one, other in combinations(history, 2))
        total += reduce(operator.add if forked else _larger, [item.cost for item in history])
    return total


def _larger(one: Cost, other: Cost) -> Cost:
    """Return the larger of two costs, in each unit."""
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
    """Begin a new ledger in a directory and put aside what is there; without ``commit``, only plan it.

    ``backup`` is a directory with an old ledger. Raises LedgerError for a receipt that is not of this party, and
    ConflictError while a process uses the ledger.
    """

    def planned() -> Recovery:
        copies = [read_books(where / "ledger.db") for where in (directory, backup) if where]
        books = [copy for copy in copies if copy is not None]
        keys = {copy[0].begun.key for copy in books if copy[0].begun}
        shown_receipts = [_checked(text, identity, keys) for text in receipts]
        evidence = [of_books(*copy) for copy in books] + [of_receipt(receipt) for receipt in shown_receipts]
        old = max(books, key=lambda copy: len(copy[1]), default=None)
        return plan(old[0] if old else None, evidence, {receipt.to for receipt in shown_receipts}, limit, learners)

    finish_beginning(directory / "ledger")
    if not commit:
        return planned()
    with unused(directory / "ledger.head"):
        recovery = planned()
        create_ledger(directory, identity, recovery.adjacency, spent=recovery.spent, recovered=recovery.recovered)
    return recovery


def read_books(path: Path) -> tuple[Books, list[str]] | None:
    """Read a ledger's file up to the first changed entry; return its books and links, None if nothing can be read."""
    books, links = Books(), list[str]()
    for number, record, link in salvage(path):
        try:
            books.add(from_json(number, json.loads(record)))
        except (ParleyError, ValueError, TypeError, KeyError):
            break
        links.append(link.hex())
    return (books, links) if links else None


def of_books(books: Books, links: Sequence[str]) -> Evidence:
    """Return the evidence in a ledger's books; ``links`` are those of its entries."""
    cost = books.account.spent + books.account.reserved
    return Evidence(links[0], len(links), links[-1], books.at, cost, books.hides(), tuple(links))


def of_receipt(receipt: Receipt) -> Evidence:
    """Return the evidence in a receipt. Raises LedgerError where its totals are not a party's."""
    try:
        spent, reserved = Cost(*receipt.totals["spent"]), Cost(*receipt.totals["reserved"])
        adjacency: Adjacency = "whole_party" if receipt.totals["adjacency"] == "whole_party" else "replace_one"
        at = int(receipt.totals["at"])
    except (TypeError, ValueError, KeyError, ParleyError):
        raise LedgerError("the receipt has no party's totals") from None
    return Evidence(receipt.ledger, receipt.head.count, receipt.head.link, at, spent + reserved, adjacency)


def _checked(text: str, identity: Identity, keys: Collection[str]) -> Receipt:
    """Verify a receipt of this party, signed with its present key or with one of the ``keys`` in its old ledgers.

    If no ledger is left, any key is accepted: the key that the party had may be lost.
    """
    signed_with = read_receipt(text).key
    is_trusted = not keys or signed_with in keys
    return verify_receipt(text, identity.name, signed_with if is_trusted else identity.key)
