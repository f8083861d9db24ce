"""Two ledgers become one that charges what both had spent; both end, and no kill loses a charge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.errors import ConflictError, InvalidInputError, LedgerError
from parley.common.privacy.account import Account, Cost, Price
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import verify_receipt
from parley.common.secure_sum.session import Identity
from parley.party.ledger import audit
from parley.party.ledger.ledger import Ask, Ledger, LedgerChain, OneTimeNoise, create_ledger
from parley.party.ledger.merging import Owned, check_merged, merge
from parley.party.ledger.records import Begun, Ended, Merged
from parley.party.ledger.recovery import recover
from tests.support.interrupting import KILLED, ended_before
from tests.support.ledgers import KEY
from tests.support.nightly import repeats

LIMIT = Account(100, 50, composition="basic")
OURS, THEIRS = Identity("ours", KEY), Identity("theirs", Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))


def answer(_: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
    return b"answer", {}


def made(directory: Path, identity: Identity, spent: int, adjacency: Adjacency = "replace_one", **groups: int) -> Owned:
    """A ledger with so much spent of each account, and a run that has 20 reserved."""
    costs = {"": Cost(1, 0), **{people: Cost(spent, 0) for people, spent in groups.items()}}
    create_ledger(directory, identity, adjacency, costs=costs)
    with Ledger(directory, identity, replace(LIMIT, adjacency=adjacency)) as store:
        price = Price((spent - 1, spent + 19), (0, 0), (0, 0), (0, 0), adjacency)
        store.consents.begin_own("run", "leader", b"terms", 2, price)
        store.rounds.answer(Ask("(owner)", "run", 1, "query"), answer)
    return Owned(directory, identity)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Owned, Owned]:
    return made(tmp_path / "ours", OURS, 5), made(tmp_path / "theirs", THEIRS, 11, ward=4)


def spent(owned: Owned, *, to_read: bool = False) -> Mapping[str, Cost]:
    with Ledger(owned.directory, owned.identity, LIMIT, to_read=to_read) as store:
        return {people: account.spent + account.reserved for people, account in store.books.accounts.items()}


def test_the_new_ledger_charges_the_sum_and_both_old_ones_end(pair: tuple[Owned, Owned]) -> None:
    ours, theirs = pair
    total = {"": Cost(16, 0), "ward": Cost(4, 0)}
    planned = merge(ours, theirs, "replace_one", commit=False)
    assert planned.costs == total
    assert spent(ours)[""] == Cost(25, 0), "nothing was changed"
    merger = merge(ours, theirs, "replace_one")
    assert merger == planned
    assert spent(ours) == total, "what was reserved is free"
    with Ledger(ours.directory, OURS, LIMIT) as store:
        begun, lines = store.books.begun, list(audit.export(store))
        assert store.books.runs.unended() == []
    assert begun is not None
    assert [item["party"] for item in begun.merged] == ["ours", "theirs"]
    assert {*begun.recovered} == {*merger.ledgers}
    entries, _ = audit.verify(iter(lines), OURS.key)
    assert len(entries) == 3
    with pytest.raises(LedgerError, match=r"merged into that of ours.* It can be read still"):
        Ledger(theirs.directory, THEIRS, LIMIT)
    with pytest.raises(LedgerError, match="merged into that of ours"):
        recover(theirs.directory, THEIRS, LIMIT, [], [])
    with Ledger(theirs.directory, THEIRS, LIMIT, to_read=True) as store:
        ended, last = store.entries()[-2:]
        assert (ended.record, last.record) == (Ended("(owner)", "run", "owner"), Merged("ours", OURS.key, begun.nonce))
        assert store.account().spent == Cost(11, 0)
        audit.verify(audit.export(store), THEIRS.key)
        head = store.chain.head
    assert verify_receipt(begun.merged[1]["receipt"], "theirs", THEIRS.key).head == head
    aside = Owned(ours.directory / "replaced-1", OURS)
    with pytest.raises(LedgerError, match="merged into that of ours"):
        Ledger(aside.directory, OURS, LIMIT)


def test_a_merge_that_is_done_changes_nothing_and_one_more_counts_all(
    pair: tuple[Owned, Owned], tmp_path: Path
) -> None:
    ours, theirs = pair
    merger = merge(ours, theirs, "replace_one")
    assert merge(ours, theirs, "replace_one") == merger
    assert not (ours.directory / "replaced-2").exists()
    third = made(tmp_path / "third", replace_key(3), 7)
    merge(ours, third, "replace_one")
    assert spent(ours) == {"": Cost(23, 0), "ward": Cost(4, 0)}
    with pytest.raises(ConflictError, match="ledger of theirs was merged or replaced before: that of ours accounts"):
        merge(ours, theirs, "replace_one")


def replace_key(number: int) -> Identity:
    return Identity("third", Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


def test_what_cannot_be_merged_is_refused_by_name(pair: tuple[Owned, Owned], tmp_path: Path) -> None:
    ours, theirs = pair
    with pytest.raises(InvalidInputError, match="both ledgers are the one in"):
        merge(ours, ours, "replace_one")
    shutil.copytree(ours.directory, tmp_path / "copy")
    with pytest.raises(InvalidInputError, match="both ledgers are copies of one"):
        merge(ours, Owned(tmp_path / "copy", OURS), "replace_one")
    with pytest.raises(LedgerError, match="is one of theirs with another key"):
        merge(ours, Owned(theirs.directory, OURS), "replace_one")
    with pytest.raises(LedgerError, match="there is no ledger"):
        merge(ours, Owned(tmp_path / "none", THEIRS), "replace_one")
    for used in pair:
        with Ledger(used.directory, used.identity, LIMIT), pytest.raises(ConflictError, match="is in use: stop the"):
            merge(ours, theirs, "replace_one")
    with pytest.raises(InvalidInputError, match="protect one record each: they cannot count"):
        merge(ours, theirs, "whole_party")
    with pytest.raises(InvalidInputError, match="which is one account, and w have one of their own that was charged"):
        made(tmp_path / "b", replace_key(9), 3, "whole_party", w=1)
    hiding = [made(tmp_path / "a", replace_key(9), 3, "whole_party"), Owned(tmp_path / "b", replace_key(9))]
    with pytest.raises(InvalidInputError, match=r"accounts of people of their own \(w\)"):
        merge(hiding[0], hiding[1], "whole_party")
    shutil.copytree(theirs.directory, tmp_path / "before")
    third = made(tmp_path / "third", replace_key(3), 7)
    merge(ours, theirs, "replace_one")
    with pytest.raises(ConflictError, match="ledger of theirs was merged before, into that of ours"):
        merge(third, theirs, "replace_one")
    with pytest.raises(ConflictError, match="ledger of theirs was merged before, into that of ours"):
        merge(theirs, third, "replace_one")
    with pytest.raises(ConflictError, match="ledger of theirs was merged or replaced before"):
        merge(ours, Owned(tmp_path / "before", THEIRS), "replace_one")
    assert spent(third)[""] == Cost(27, 0), "nothing was changed"


def test_what_hides_all_that_a_party_holds_stays_so(tmp_path: Path) -> None:
    first, other = (made(tmp_path / name, replace_key(at), 3, "whole_party") for at, name in enumerate("ab"))
    merge(first, other, "whole_party")
    with Ledger(first.directory, first.identity, replace(LIMIT, adjacency="whole_party")) as store:
        assert (store.books.hides(), store.account().spent) == ("whole_party", Cost(6, 0))


def test_a_new_ledger_that_charges_less_than_it_joins_is_found_out(pair: tuple[Owned, Owned]) -> None:
    ours, theirs = pair
    merge(ours, theirs, "replace_one")
    with closing(LedgerChain(ours.directory, OURS)) as chain:
        begun = chain.books.begun
    assert begun is not None
    check_merged(begun)
    known = {ledger: list(until) for ledger, until in begun.recovered.items()}
    (first, (n_entries, at)), *_ = known.items()
    for changed, words in (
        ({"spent": Cost(15, 0)}, "does not charge what"),
        ({"groups": {}}, "does not charge what"),
        ({"merged": begun.merged[:1]}, "does not charge what"),
        ({"recovered": known | {first: [n_entries - 1, at]}}, "does not account for all"),
        ({"recovered": {}}, "cannot be read"),
        ({"merged": [{"party": "ours"}]}, "cannot be read"),
        ({"merged": [{**begun.merged[0], "key": THEIRS.key}]}, "not signed with the key"),
    ):
        with pytest.raises(LedgerError, match=words):
            check_merged(replace(begun, **changed))
    check_merged(Begun("party", "key", "nonce", {}, Cost(0, 0), "replace_one"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_merge_that_was_killed_goes_on_when_it_is_called_again(tmp_path: Path) -> None:
    """Meanwhile no ledger counts less than it did, and only the first may still answer, as it was."""
    made(tmp_path / "old" / "ours", OURS, 5)
    made(tmp_path / "old" / "theirs", THEIRS, 11, ward=4)
    n_kills, seen = 0, set[str]()
    for step in count(1, repeats(9, 1)):
        directory = tmp_path / str(step)
        shutil.copytree(tmp_path / "old", directory)
        ours, theirs = Owned(directory / "ours", OURS), Owned(directory / "theirs", THEIRS)
        ended = ended_before(step, partial(merge, ours, theirs, "replace_one"), {"execute", "pwrite"})
        seen |= {"".join(states(ours, theirs))}
        merge(ours, theirs, "replace_one")
        assert spent(ours) == {"": Cost(16, 0), "ward": Cost(4, 0)}, step
        with pytest.raises(LedgerError, match="can be read still"):
            Ledger(theirs.directory, THEIRS, LIMIT)
        shutil.rmtree(directory)
        if ended != KILLED:
            break
        n_kills += 1
    assert seen == {"both as before", "first as before", "none", "new one"}
    print(json.dumps({"kills": n_kills, "sums lost": 0}))


def states(ours: Owned, theirs: Owned) -> Iterator[str]:
    """What can be opened after a kill."""
    opens = list[Cost | None]()
    for owned in (ours, theirs):
        try:
            opens.append(spent(owned)[""])
        except LedgerError:
            opens.append(None)
    if opens[1] is not None:
        assert opens == [Cost(25, 0), Cost(31, 0)]
        yield "both as before"
    elif opens[0] == Cost(25, 0):
        yield "first as before"
    else:
        assert opens[0] in {None, Cost(16, 0)}
        yield "none" if opens[0] is None else "new one"
