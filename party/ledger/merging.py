"""Two ledgers of the same people become one: a new ledger charges what both have spent, and both end.

An owner that kept a ledger for each study has given the same people several budgets, and nobody has added up what they
lost. The new ledger takes the place of the first; what each account of either had spent counts in the account of the
same people. So more may be spent than the budget allows: then nothing is left. What open runs had reserved is free,
since nobody answers them any more.

Each of the two ends with a record that names the new one by its nonce, and can be read from then on, never opened to
answer. The new one begins with the receipts of both, by which anyone can check what was joined.

The other ledger ends first, then the first, then the new one begins. So what was spent never counts less than before,
and a merge that was interrupted goes on when it is called again.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.common.errors import ConflictError, InvalidInputError, LedgerError
from parley.common.privacy.guarantee import UNIT_NAMES, Adjacency, hides, weakest
from parley.common.protocol.receipts import read_receipt, verify_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import unused
from parley.party.ledger.ledger import BUDGETED, LedgerChain, check_exists, create_ledger
from parley.party.ledger.records import Begun, Merged
from parley.party.ledger.recovery import Accounted, Costs, each_account, of_receipt


@dataclass(frozen=True, slots=True)
class Owned:
    """A party's ledger in a directory, and the identity by which it signs."""

    directory: Path
    identity: Identity


@dataclass(frozen=True, slots=True)
class Merger:
    """What the new ledger charges, by people, and the first links of the two that it joins."""

    costs: Costs
    ledgers: tuple[str, ...]


def merge(first: Owned, other: Owned, adjacency: Adjacency, *, commit: bool = True) -> Merger:
    """Join two ledgers in a new one in the place of the first; without ``commit``, only say what it would charge.

    ``adjacency`` is that of the owner's budget from now on. If it was interrupted, it goes on; if it was completed, it
    changes nothing. Raises ConflictError while a process uses either ledger, or if either was merged with another;
    InvalidInputError for one ledger given twice, or charges that the budget cannot count; LedgerError for one that is
    damaged, an old copy, or not its party's.
    """
    if first.directory.resolve() == other.directory.resolve():
        raise InvalidInputError(f"both ledgers are the one in {first.directory}: name the settings of another party")
    with _opened(first) as ours, _opened(other) as theirs:
        begun, ended = _begun(ours), theirs.books.merged
        if ended is not None and begun.nonce == ended.nonce:
            return Merger(begun.costs, tuple(read_receipt(item["receipt"]).ledger for item in begun.merged))
        ending = _ending(ours, theirs, first.identity)
        costs = each_account(operator.add, [_spent(ours), _spent(theirs)])
        _check_adjacency(adjacency, costs, weakest([ours.books.hides(), theirs.books.hides()]))
        merger = Merger(costs, (ours.origin, theirs.origin))
        if not commit:
            return merger
        for chain in (theirs, ours):
            chain.end(ending)
        content: dict[str, Any] = {
            "costs": costs,
            "recovered": _accounted(ours) | _accounted(theirs),
            "merged": [_evidence(chain) for chain in (ours, theirs)],
            "pins": [*theirs.salted_pins(), *ours.salted_pins()],
            "nonce": ending.nonce,
        }
    with unused(first.directory / "ledger.head"):  # it has ended, so nobody has written to it meanwhile
        create_ledger(first.directory, first.identity, adjacency, **content)
    return merger


def check_merged(begun: Begun) -> None:
    """Raise LedgerError unless a new ledger charges what the receipts of the ledgers that it joins say was spent."""
    if not begun.merged:
        return
    try:
        receipts = [verify_receipt(item["receipt"], item["party"], item["key"]) for item in begun.merged]
        accounted = [tuple(begun.recovered[receipt.ledger]) for receipt in receipts]
    except (KeyError, TypeError, AttributeError):
        raise LedgerError("entry 1 joins ledgers in a way that cannot be read") from None
    if accounted != [(receipt.head.count, receipt.totals.get("at")) for receipt in receipts]:
        raise LedgerError("entry 1 does not account for all of the ledgers that it joins")
    if each_account(operator.add, [of_receipt(receipt).costs for receipt in receipts]) != begun.costs:
        raise LedgerError("entry 1 does not charge what the ledgers that it joins had spent")


@contextmanager
def _opened(owned: Owned) -> Iterator[LedgerChain]:
    """Open a ledger that no other process may use meanwhile."""
    check_exists(owned.directory)
    chain = LedgerChain(owned.directory, owned.identity, alone=True)
    try:
        chain.check_owner()
        yield chain
    finally:
        chain.close()


def _ending(ours: LedgerChain, theirs: LedgerChain, identity: Identity) -> Merged:
    """Return the record by which both end: a new one, or that of a merge that was interrupted.

    Raises InvalidInputError or ConflictError where they cannot be merged.
    """
    if ours.origin == theirs.origin:
        raise InvalidInputError("both ledgers are copies of one: what it has spent is not added to itself")
    for one, another in ((ours, theirs), (theirs, ours)):
        if another.origin in _begun(one).recovered:
            raise ConflictError(
                f"the ledger of {_begun(another).party} was merged or replaced before: that of {_begun(one).party} "
                "accounts for it already"
            )
    fresh = Merged(identity.name, identity.key, secrets.token_hex(32))
    ending = theirs.books.merged or fresh
    is_here = (ending.into, ending.key) == (identity.name, identity.key)
    for chain, is_continued in ((theirs, is_here), (ours, ours.books.merged == ending)):
        merged = chain.books.merged
        if merged is not None and not is_continued:
            raise ConflictError(f"the ledger of {_begun(chain).party} was merged before, into that of {merged.into}")
    return ending


def _check_adjacency(adjacency: Adjacency, costs: Costs, charged: Adjacency) -> None:
    """Raise InvalidInputError where a budget for more cannot count what was charged, which hides so much at least."""
    if not hides(charged, adjacency):
        raise InvalidInputError(
            f"policy.adjacency is {adjacency}, and answers in these ledgers protect one {UNIT_NAMES[charged]} each: "
            f"they cannot count against a budget for {BUDGETED[adjacency]}; say {charged} to merge them"
        )
    if adjacency == "whole_party" and len(costs) > 1:
        raise InvalidInputError(
            "policy.adjacency is whole_party, which is one account, and one of these ledgers has accounts of people of "
            f"their own ({', '.join(filter(None, costs))}); say replace_one to merge them"
        )


def _spent(chain: LedgerChain) -> Costs:
    return {people: account.spent for people, account in chain.books.accounts.items()}


def _begun(chain: LedgerChain) -> Begun:
    assert chain.books.begun is not None  # noqa: S101 -- a ledger that opens has begun
    return chain.books.begun


def _accounted(chain: LedgerChain) -> Accounted:
    """Return what a new ledger accounts for that takes the place of this one."""
    before = {ledger: (count, at) for ledger, (count, at) in _begun(chain).recovered.items()}
    return before | {chain.origin: (chain.head.count, chain.books.at)}


def _evidence(chain: LedgerChain) -> dict[str, str]:
    """Return whose ledger it was, and what it says of itself, signed."""
    begun = _begun(chain)
    return {"party": begun.party, "key": begun.key, "receipt": chain.receipt()}
