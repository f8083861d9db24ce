"""A new ledger in the place of one that is lost, damaged or an old copy: it charges the worst that may have been spent.

What may have been released follows from what is left of the old ledger, and from the receipts that learners and
witnesses hold. Each says what was spent and what was reserved for approved runs by then; the worst of all is charged at
once, reserved or not. A released answer is in a receipt of the learner that got it. So the worst is known only if each
of the party's learners has shown its newest receipt; otherwise the whole budget counts as spent.

A copy that was put back may have been used before anybody noticed. Then there are two histories, and what both cost is
charged. Their links distinguish them if one of the ledgers can be read. Otherwise the times of their last entries do:
a copy that was used has later ones than the receipts from before. So a party's clock must not have been set back. With
receipts alone, one that is both longer and later counts as one that includes all that the other says.

A learner's receipt states all of this in a part that is sealed with the party's identity key (`sealing`). If that key
is lost, the receipt counts as not shown.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import get_args

from parley.common.errors import LedgerError, ParleyError
from parley.common.privacy.account import Account, Cost, larger
from parley.common.privacy.guarantee import Adjacency, weakest
from parley.common.protocol.receipts import Receipt, read_receipt, verify_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import finish_beginning, salvage, salvage_attachment, unused
from parley.party.ledger.books import ALL, NOTHING, Books, is_accounted
from parley.party.ledger.ledger import SALT, SaltedPin, create_ledger, ended_in_words
from parley.party.ledger.records import from_json
from parley.party.ledger.sealing import Seal

Costs = Mapping[str, Cost]
"""What was spent and reserved, in the account of each group of people, by the owner's word for them."""


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
    costs: Costs = field(hash=False)
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
"""By ledger, the count of entries that are accounted for, and the time of the last."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a new ledger begins with, and the learners without whose receipts the whole budget counts as spent.

    ``unreadable`` are those among them whose receipt was sealed with an identity key that is lost.
    """

    costs: Costs
    adjacency: Adjacency
    recovered: Accounted
    missing: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


def plan(  # noqa: PLR0913, PLR0917 -- all that a new ledger depends on
    old: Books | None,
    evidence: Sequence[Evidence],
    shown_by: Collection[str],
    limit: Account,
    learners: Collection[str],
    people: Collection[str] = (),
) -> Recovery:
    """Return what a new ledger must begin with; ``shown_by`` are those of the ``learners`` that showed a receipt.

    ``limit`` is the budget of each account: that of all, and those of ``people`` that the settings name.
    """
    missing = tuple(sorted(set(learners) - set(shown_by)))
    recovered: Accounted = {}
    if old and old.begun:
        recovered = {ledger: (count, at) for ledger, (count, at) in old.begun.recovered.items()}
    worst = worst_of([item for item in evidence if not is_accounted(recovered, item.ledger, item.count, item.at)])
    if missing:
        whole = Cost(limit.epsilon_limit, limit.delta_limit, slack=limit.delta_limit)
        accounts = {ALL, *people, *(old.accounts if old else ()), *(name for item in evidence for name in item.costs)}
        worst = each_account(larger, [worst, dict.fromkeys(sorted(accounts), whole)])
    for item in evidence:
        count, at = recovered.get(item.ledger, (0, 0))
        recovered[item.ledger] = max(count, item.count), max(at, item.at)
    hidden = weakest([limit.adjacency, *(item.adjacency for item in evidence)])
    return Recovery(worst, hidden, recovered, missing)


def worst_of(evidence: Sequence[Evidence]) -> dict[str, Cost]:
    """Return the worst that ledgers may have cost each account: the largest of one history, the sum of several."""
    histories: dict[str, list[Evidence]] = {}
    for item in dict.fromkeys(evidence):
        histories.setdefault(item.ledger, []).append(item)
    costs: list[Costs] = []
    for history in histories.values():
        forked = any(one.contradicts(other) for one, other in combinations(history, 2))
        costs.append(each_account(operator.add if forked else larger, [item.costs for item in history]))
    return {ALL: NOTHING} | each_account(operator.add, costs)


def each_account(merge: Callable[[Cost, Cost], Cost], costs: Sequence[Costs]) -> dict[str, Cost]:
    """Merge the costs of each account, by its people."""
    accounts = dict.fromkeys(people for item in costs for people in item)
    return {people: reduce(merge, [item[people] for item in costs if people in item]) for people in accounts}


def recover(  # noqa: PLR0913 -- its evidence, by name
    directory: Path,
    identity: Identity,
    limit: Account,
    learners: Collection[str],
    receipts: Sequence[str],
    *,
    people: Collection[str] = (),
    backup: Path | None = None,
    commit: bool = True,
) -> Recovery:
    """Begin a new ledger in a directory and put aside what is there; without ``commit``, only plan it.

    ``people`` are the words for those who have accounts of their own by the settings. ``backup`` is a directory with an
    old ledger. Raises LedgerError for a receipt that is not of this party, and ConflictError while a process uses the
    ledger.
    """

    def planned(copies: Sequence[_Copy]) -> Recovery:
        keys = {copy.books.begun.key for copy in copies if copy.books.begun}
        opened = [_checked(text, identity, keys) for text in receipts]
        sealed = [receipt for receipt in opened if receipt.sealed]
        readable = [receipt for receipt in opened if not receipt.sealed]
        evidence = [of_books(copy.books, copy.links) for copy in copies] + [of_receipt(receipt) for receipt in readable]
        if ended := next((copy.books.merged for copy in copies if copy.books.merged), None):
            raise LedgerError(ended_in_words(ended, identity))
        longest = max(copies, key=lambda copy: len(copy.links), default=None)
        unreadable = {receipt.to for receipt in sealed}
        shown_by = {receipt.to for receipt in readable} - unreadable
        made = plan(longest.books if longest else None, evidence, shown_by, limit, unreadable.union(learners), people)
        for receipt in sealed:  # the learner's own chain is all that they name
            count, at = made.recovered.get(receipt.ledger, (0, 0))
            made.recovered[receipt.ledger] = max(count, receipt.head.count), at
        return replace(made, unreadable=tuple(sorted(unreadable)))

    paths = [folder / "ledger.db" for folder in (directory, backup) if folder]
    finish_beginning(directory / "ledger")
    if not commit:
        return planned(_copies(paths))
    with unused(directory / "ledger.head"):
        copies = _copies(paths)
        recovery = planned(copies)
        pins = _salted_pins(copies)
        create_ledger(
            directory, identity, recovery.adjacency, costs=recovery.costs, recovered=recovery.recovered, pins=pins
        )
    return recovery


@dataclass(frozen=True, slots=True)
class _Copy:
    """What can be read of a ledger's file: its books, and the links of its entries."""

    path: Path
    books: Books
    links: list[str]


def _copies(paths: Sequence[Path]) -> list[_Copy]:
    """Read ledgers' files, as far as they can be read."""
    return [_Copy(path, *contents) for path in paths if (contents := read_books(path)) is not None]


def _salted_pins(copies: Sequence[_Copy]) -> list[SaltedPin]:
    """Return what the copy that was written to last says of the data that were pinned, as far as it can be read."""
    if not copies:
        return []
    newest = max(copies, key=lambda copy: copy.books.at)
    salted = [(pinned, salvage_attachment(newest.path, number, SALT)) for number, pinned in newest.books.pinned]
    return [(pinned, salt) for pinned, salt in salted if salt is not None]


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
    costs = {people: account.spent + account.reserved for people, account in books.accounts.items()}
    return Evidence(links[0], len(links), links[-1], books.at, costs, books.hides(), tuple(links))


def of_receipt(receipt: Receipt) -> Evidence:
    """Return the evidence in a receipt. Raises LedgerError where its totals are not a party's."""
    try:
        accounts = {ALL: receipt.totals, **receipt.totals.get("people", {})}
        costs = {
            people: Cost.of_units(totals["spent"]) + Cost.of_units(totals["reserved"])
            for people, totals in accounts.items()
        }
        stated, at = receipt.totals["adjacency"], int(receipt.totals["at"])
        adjacency: Adjacency = stated if stated in get_args(Adjacency) else "replace_one"
    except (TypeError, ValueError, KeyError, ParleyError):
        raise LedgerError("the receipt has no party's totals") from None
    return Evidence(receipt.ledger, receipt.head.count, receipt.head.link, at, costs, adjacency)


def _checked(text: str, identity: Identity, keys: Collection[str]) -> Receipt:
    """Verify a receipt of this party, signed with its present key or with one of the ``keys`` in its old ledgers.

    If no ledger is left, any key is accepted: the key that the party had may be lost. What is sealed with the present
    key is opened.
    """
    signed_with = read_receipt(text).key
    is_trusted = not keys or signed_with in keys
    receipt = verify_receipt(text, identity.name, signed_with if is_trusted else identity.key)
    is_sealed_here = receipt.sealed and receipt.key == identity.key
    return Seal(identity.signing_key).open(receipt) if is_sealed_here else receipt
