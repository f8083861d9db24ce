"""What a new ledger must charge: the worst of all that is left and was shown, to the unit."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.errors import InvalidReceiptError, LedgerError
from parley.common.privacy.account import Account, Cost, Price
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.receipts import Head, Receipt, read_receipt, write_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import Chain, set_aside
from parley.party.ledger.books import Books
from parley.party.ledger.ledger import LEDGER, Ledger, check_exists, create_ledger
from parley.party.ledger.records import Approved, Begun, Entry, to_json
from parley.party.ledger.recovery import (
    Evidence,
    Recovery,
    of_books,
    of_receipt,
    plan,
    read_books,
    recover,
    worst_of,
)
from tests.support.ledgers import KEY, open_ledger

PARTY = Identity("party", KEY)
LIMIT = Account(100, 12, composition="basic")
ONE, OTHER = "ab" * 32, "cd" * 32


def begun(recovered: dict[str, tuple[int, int]]) -> Books:
    books = Books()
    books.add(Entry(1, 0, Begun("party", "key", "nonce", recovered, Cost(0, 0), "replace_one")))
    return books


def evidence(cost: Cost, ledger: str = ONE, count: int = 5, adjacency: Adjacency = "whole_party") -> Evidence:
    return Evidence(ledger, count, f"{count:064x}", 10 * count, {"": cost}, adjacency)


def receipt(
    count: int = 5, to: str = "ann", key: Ed25519PrivateKey = KEY, signer: str = "party", **totals: object
) -> str:
    """A party's receipt, (1, 2, 3, 4) spent and (10, 0, 0, 0) reserved."""
    said = {"spent": [1, 2, 3, 4], "reserved": [10, 0, 0, 0], "adjacency": "whole_party", "at": 50} | totals
    return write_receipt(key, signer=signer, ledger=ONE, head=Head(count, OTHER), to=to, totals=said).text


# ── the plan ─────────────────────────────────────────────────────────────────


def test_the_worst_of_each_unit_is_charged() -> None:
    known = [evidence(Cost(9, 1, 5, 0)), evidence(Cost(1, 7, 2, 3), count=7), evidence(Cost(1, 0), OTHER, 2)]
    made = plan(None, known, {"ann", "bob"}, LIMIT, ["ann"])
    assert made == Recovery({"": Cost(10, 7, 5, 3)}, "replace_one", {ONE: (7, 70), OTHER: (2, 20)}, ())


@pytest.mark.parametrize(
    ("limit", "hides", "shown", "adjacency"),
    [
        ("replace_one", "whole_party", True, "replace_one"),
        ("replace_one", "replace_one", True, "replace_one"),
        ("replace_one", "whole_party", False, "replace_one"),
        ("whole_party", "whole_party", True, "whole_party"),
        ("whole_party", "replace_one", True, "replace_one"),
        ("whole_party", "replace_one", False, "replace_one"),
        ("whole_party", "whole_party", False, "whole_party"),
    ],
)
def test_what_hid_a_record_before_never_hides_all_after(
    limit: Adjacency, hides: Adjacency, adjacency: Adjacency, *, shown: bool
) -> None:
    known = [evidence(Cost(1, 1)), evidence(Cost(1, 1), adjacency=hides)]
    made = plan(None, known, {"ann"} if shown else set(), replace(LIMIT, adjacency=limit), ["ann"])
    assert made.adjacency == adjacency


def history(count: int, link: str, at: int, cost: int, ledger: str = "a") -> Evidence:
    return Evidence(ledger, count, link, at, {"": Cost(cost, 0, cost)}, "replace_one")


def test_of_two_histories_both_are_charged() -> None:
    early, late = history(5, "x", 100, 3), history(9, "y", 200, 7)
    assert worst_of([early, late, late]) == late.costs, "one history: the later has all"
    for same in (late, early, history(5, "x", 200, 3), history(12, "z", 200, 3)):
        assert not same.contradicts(late), "entries of one second follow each other, too"
        assert not late.contradicts(same)
    forks = {
        "the same count with another link": history(9, "z", 200, 4),
        "fewer entries, written later": history(7, "z", 300, 4),
        "more entries, written earlier": history(12, "z", 150, 4),
    }
    for name, fork in forks.items():
        assert fork.contradicts(late), name
        assert late.contradicts(fork), name
        assert worst_of([late, fork])[""] == late.costs[""] + fork.costs[""], name
    other = history(2, "w", 50, 5, ledger="b")
    assert worst_of([late, other])[""] == late.costs[""] + other.costs[""], "of two ledgers too"
    assert worst_of([]) == {"": Cost(0, 0)}


def test_a_copy_that_was_written_on_further_is_known_by_its_links() -> None:
    """Longer and later than what it has forgotten, as a ledger that has forgotten nothing is."""
    forgotten, chain = history(5, "x", 100, 3), ("a", "b", "c", "d", "e", "f")
    for links, forked in ((chain, True), ((*chain[:4], "x", "f"), False), (("x", *chain[1:]), True)):
        ledger = replace(history(6, "f", 200, 4), links=links)
        assert forgotten.contradicts(ledger) is ledger.contradicts(forgotten) is forked
        total = ledger.costs[""] + (forgotten.costs[""] if forked else Cost(0, 0))
        assert worst_of([ledger, forgotten])[""] == total
    early = replace(history(3, "c", 300, 2), links=chain[:3])
    assert early.contradicts(forgotten), "the shorter one's links say nothing: it was written later"
    said = history(6, "f", 200, 4)
    assert worst_of([replace(said, links=chain), said]) == said.costs, "a receipt of the ledger as it stands"


def test_recovery_charges_what_a_copy_forgot_however_far_it_was_written_on(tmp_path: Path) -> None:
    state, old = tmp_path / "state", tmp_path / "old"
    ledger_of(state).close()
    shutil.copytree(state, old)
    with ledger_of(state) as store:
        store.consents.begin_own("first", "leader", b"terms", 1, Price((7,), (1,), (0,), (0,)))
        forgotten = store.chain.receipt("ann")
    shutil.rmtree(state)
    shutil.copytree(old, state)
    with ledger_of(state, 3) as store:
        store.consents.begin_own("second", "leader", b"terms", 1, Price((5,), (1,), (0,), (0,)))
    made = recover(state, PARTY, LIMIT, ["ann"], [forgotten], commit=False)
    assert made.costs[""] == Cost(12, 2)


def test_a_learner_who_shows_nothing_may_have_had_the_whole_budget() -> None:
    known = [evidence(Cost(9, 1, 5, 0))]
    made = plan(None, known, {"bob", "stranger"}, LIMIT, ["carl", "ann", "bob"])
    assert (made.costs[""], made.missing) == (Cost(100, 12, 5, 12), ("ann", "carl"))
    assert plan(None, known, {"ann"}, LIMIT, ["ann"]).costs[""] == Cost(9, 1, 5, 0)
    assert plan(None, [], set(), LIMIT, []) == Recovery({"": Cost(0, 0)}, "replace_one", {}, ())


def test_each_account_is_charged_by_itself() -> None:
    both = replace(evidence(Cost(1, 0)), costs={"": Cost(1, 0), "ward": Cost(8, 2)})
    later = replace(evidence(Cost(5, 0), count=7), costs={"": Cost(5, 0), "ward": Cost(2, 4)})
    other = replace(evidence(Cost(3, 0), OTHER), costs={"": Cost(3, 0), "home": Cost(1, 0)})
    made = plan(None, [both, later, other], {"ann"}, LIMIT, ["ann"], ["third"])
    assert made.costs == {"": Cost(8, 0), "ward": Cost(8, 4), "home": Cost(1, 0)}
    whole = Cost(100, 12, slack=12)
    made = plan(None, [both, later, other], (), LIMIT, ["ann"], ["third"])
    assert made.costs == dict.fromkeys(("", "ward", "home", "third"), whole), "of all people that anybody knows of"


def test_what_was_accounted_for_before_stays_so() -> None:
    old = begun({ONE: (9, 90), OTHER: (3, 30), "ef" * 32: (1, 10)})
    known = [evidence(Cost(1, 1), ONE, 5), evidence(Cost(1, 1), OTHER, 4), evidence(Cost(1, 1), "00" * 32, 0)]
    made = plan(old, known, set(), LIMIT, [])
    assert made.recovered == {ONE: (9, 90), OTHER: (4, 40), "ef" * 32: (1, 10), "00" * 32: (0, 0)}
    assert made.costs[""] == Cost(2, 2), "what was accounted for is not charged again"
    assert plan(Books(), known[:1], set(), LIMIT, []).recovered == {ONE: (5, 50)}
    for late in (replace(known[0], at=91), replace(known[0], count=10)):
        assert plan(old, [late], set(), LIMIT, []).costs[""] == Cost(1, 1)
    assert plan(old, [replace(known[0], count=9, at=90)], set(), LIMIT, []).costs[""] == Cost(0, 0)


# ── evidence ─────────────────────────────────────────────────────────────────


def test_a_receipt_counts_what_was_reserved_as_spent() -> None:
    assert of_receipt(read_receipt(receipt())) == Evidence(ONE, 5, OTHER, 50, {"": Cost(11, 2, 3, 4)}, "whole_party")
    for other in ("replace_one", "anything", None):
        assert of_receipt(read_receipt(receipt(adjacency=other))).adjacency == "replace_one"


@pytest.mark.parametrize("totals", [{"spent": [1]}, {"spent": None}, {"reserved": [-1, 0]}, {"reserved": "text"}])
def test_a_receipt_without_totals_is_no_evidence(totals: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match="has no party's totals"):
        of_receipt(read_receipt(receipt(**totals)))
    for missing in ("spent", "reserved", "adjacency", "at"):
        given = read_receipt(receipt())
        with pytest.raises(LedgerError, match="has no party's totals"):
            of_receipt(replace(given, totals={name: v for name, v in given.totals.items() if name != missing}))


def ledger_of(directory: Path, refusals: int = 0, adjacency: Adjacency = "replace_one") -> Ledger:
    """A ledger of 2 entries and some refusals."""
    store = open_ledger(directory, replace(LIMIT, adjacency=adjacency))
    for number in range(refusals):
        store.consents.refuse("ann", f"run-{number}", "dp_gd", "rule", "reason")
    return store


def test_a_file_is_read_up_to_the_first_entry_that_was_changed(tmp_path: Path) -> None:
    with ledger_of(tmp_path, 3) as store:
        known = read_receipt(store.chain.receipt())
        origin = known.ledger
    found = read_books(tmp_path / "ledger.db")
    assert found is not None
    books, links = found
    assert (links[0], len(links), books.account.epsilon_limit) == (origin, 5, 100)
    assert Head(5, links[-1]) == known.head
    made = of_books(books, links)
    assert made == Evidence(origin, 5, known.head.link, books.at, {"": Cost(0, 0)}, "whole_party")
    assert made.links == tuple(links)
    for statement, left in (
        ("UPDATE entries SET record = x'7b7d' WHERE number = 5", 4),
        ("UPDATE entries SET link = zeroblob(32) WHERE number = 4", 3),
        ("DELETE FROM entries WHERE number = 2", 1),
        ("UPDATE entries SET number = 9 WHERE number = 1", None),
    ):
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
            connection.execute(statement)
        now = read_books(tmp_path / "ledger.db")
        assert (now and (now[1][0], len(now[1]))) == (left and (origin, left))
    assert read_books(tmp_path / "none.db") is None
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_bytes(b"no database" * 1000)
    assert read_books(tmp_path / "text.db") is None


def test_a_file_is_read_up_to_the_first_entry_that_nobody_understands(tmp_path: Path) -> None:
    """Its links fit: somebody else's program wrote it."""
    ledger_of(tmp_path).close()
    approved = Approved("ann", "run", "", "", "s", "dp_gd", "", "none", 1, Cost(7, 1), "replace_one", 50)
    chain = Chain(tmp_path / "ledger", LEDGER, lambda *_: None)
    with chain.transaction() as appending:
        appending.append(to_json(approved, 5))
        appending.append({"kind": "unheard of", "at": 5})
        appending.append(to_json(replace(approved, run="later"), 5))
    chain.close()
    books = read_books(tmp_path / "ledger.db")
    assert books is not None
    assert (len(books[1]), books[0].runs["ann", "run"].number, books[0].account.reserved) == (3, 3, Cost(7, 1))


def test_books_count_what_is_reserved_as_spent() -> None:
    books = begun({})
    books.accounts[""] = replace(books.account, spent=Cost(1, 2), reserved=Cost(10, 0, 1))
    assert of_books(books, [ONE, ONE, OTHER]) == Evidence(ONE, 3, OTHER, 0, {"": Cost(11, 2, 1)}, "whole_party")


def test_who_has_no_ledger_or_an_old_one_is_told_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(LedgerError) as refused:
        check_exists(tmp_path)
    assert refused.value.detail == (
        f"there is no ledger in {tmp_path}: make a new party's with parley-party init; if there was one, run "
        "parley-party recover, or parley-party restore where there is a backup, for what it had spent stays spent"
    )
    with ledger_of(tmp_path) as store:
        check_exists(tmp_path)
        later = replace(read_receipt(store.chain.receipt()), head=Head(99, OTHER))
        text = write_receipt(KEY, signer="party", ledger=later.ledger, head=later.head).text
        with pytest.raises(LedgerError, match=r"an old copy. Run parley-party recover"):
            store.chain.check_receipt(text)
    (tmp_path / "ledger.head").unlink()
    with pytest.raises(LedgerError) as refused:
        check_exists(tmp_path)
    assert refused.value.detail == f"of the ledger in {tmp_path} only ledger.db is left: run parley-party recover"


def test_a_learners_receipt_is_evidence_to_who_has_the_identity_key_alone(tmp_path: Path) -> None:
    lost, directory = Identity("party", Ed25519PrivateKey.from_private_bytes(bytes(32))), tmp_path / "lost"
    texts, known = list[str](), list[Receipt]()
    for identity, where in ((PARTY, tmp_path / "held"), (lost, directory)):
        create_ledger(where, identity, "replace_one", costs={"": Cost(3, 1), "ward": Cost(2, 0)})
        with Ledger(where, identity, LIMIT) as store:
            store.consents.begin_own("run", "leader", b"terms", 1, Price((7,), (1,), (0,), (0,)))
            texts.append(store.chain.receipt("ann"))
            known.append(read_receipt(store.chain.receipt()))
    new = tmp_path / "new"
    made = recover(new, PARTY, LIMIT, ["ann"], texts[:1])
    assert (made.costs, made.missing, made.unreadable) == ({"": Cost(10, 2), "ward": Cost(2, 0)}, (), ())
    assert made.recovered == {known[0].ledger: (known[0].head.count, known[0].totals["at"])}
    with Ledger(new, PARTY, LIMIT) as store:
        assert store.books.accounts["ward"].spent == Cost(2, 0)
        assert store.chain.check_receipt(texts[0]).text == texts[0]
    for learners in (["ann"], []):  # a learner that the settings do not name any more as well
        made = recover(tmp_path / "other", PARTY, LIMIT, learners, texts[1:], people=["ward"], commit=False)
        assert (made.missing, made.unreadable) == (("ann",), ("ann",))
        assert made.costs == dict.fromkeys(("", "ward"), Cost(100, 12, slack=12))
    own = read_receipt(texts[1])
    assert made.recovered == {own.ledger: (own.head.count, 0)}
    with pytest.raises(InvalidReceiptError, match="did not seal"):
        recover(new, PARTY, LIMIT, [], [sealed_by_none()], commit=False)


def sealed_by_none() -> str:
    return write_receipt(KEY, signer="party", ledger=ONE, head=Head(1, ONE), to="ann", sealed="AAAA").text


# ── the deed ─────────────────────────────────────────────────────────────────


def test_a_new_ledger_begins_with_what_was_planned(tmp_path: Path) -> None:
    with ledger_of(tmp_path, 3) as store:
        origin = read_receipt(store.chain.receipt()).ledger
    planned = recover(tmp_path, PARTY, LIMIT, ["ann"], [receipt()], commit=False)
    assert (planned.costs[""], planned.adjacency, planned.missing) == (Cost(11, 2, 3, 4), "replace_one", ())
    assert {ledger: count for ledger, (count, _) in planned.recovered.items()} == {ONE: 5, origin: 5}
    assert not (tmp_path / "replaced-1").exists(), "only planned"
    assert recover(tmp_path, PARTY, LIMIT, ["ann"], [receipt()]) == planned
    assert sorted(path.name for path in (tmp_path / "replaced-1").iterdir()) == ["ledger.db", "ledger.head"]
    assert (tmp_path / "replaced-1").stat().st_mode & 0o777 == 0o700
    with Ledger(tmp_path, PARTY, LIMIT) as store:
        began = store.entries()[0].record
        assert isinstance(began, Begun)
        assert (began.spent, began.adjacency) == (planned.costs[""], "replace_one")
        assert {ledger: tuple(known) for ledger, known in began.recovered.items()} == planned.recovered
        assert store.chain.check_receipt(receipt()).head.count == 5
    again = recover(tmp_path, PARTY, LIMIT, ["ann", "bob"], [receipt(7)])
    assert (again.costs[""], again.missing) == (Cost(100, 12, 6, 12), ("bob",))
    assert {count for ledger, (count, _) in again.recovered.items() if ledger == ONE} == {7}
    assert again.recovered.keys() > planned.recovered.keys()
    assert (tmp_path / "replaced-2" / "ledger.db").exists()


def test_the_longer_of_two_ledgers_says_what_was_accounted_for_and_both_what_was_spent(tmp_path: Path) -> None:
    for name, recovered, spent, refusals in (
        ("now", {OTHER: (1, 9)}, Cost(3, 0), 0),
        ("old", {OTHER: (8, 9)}, Cost(1, 7), 2),
    ):
        create_ledger(tmp_path / name, PARTY, "replace_one", costs={"": spent}, recovered=recovered)
        ledger_of(tmp_path / name, refusals).close()
    made = recover(tmp_path / "now", PARTY, LIMIT, [], [], backup=tmp_path / "old", commit=False)
    assert (made.costs[""], made.recovered[OTHER], len(made.recovered)) == (Cost(4, 7), (8, 9), 3)


def test_where_nothing_is_left_receipts_are_all_there_is(tmp_path: Path) -> None:
    made = recover(tmp_path, PARTY, replace(LIMIT, adjacency="whole_party"), ["ann"], [receipt()])
    assert made == Recovery({"": Cost(11, 2, 3, 4)}, "whole_party", {ONE: (5, 50)}, ())
    assert not (tmp_path / "replaced-1").exists()


@pytest.mark.parametrize(
    "text",
    [
        receipt(signer="other"),
        receipt().replace(".", "x"),
        write_receipt(KEY, signer="party", ledger=ONE, head=Head(1, ONE)).text,
    ],
)
def test_what_is_no_receipt_of_this_partys_recovers_nothing(tmp_path: Path, text: str) -> None:
    with pytest.raises(LedgerError):
        recover(tmp_path, PARTY, LIMIT, [], [text])
    assert list(tmp_path.iterdir()) == []


def test_a_receipt_by_the_key_that_was_lost_counts(tmp_path: Path) -> None:
    lost = Ed25519PrivateKey.from_private_bytes(bytes(32))
    assert recover(tmp_path, PARTY, LIMIT, [], [receipt(key=lost)]).costs[""] == Cost(11, 2, 3, 4)


def test_a_receipt_that_anybody_could_sign_does_not_count_while_the_key_is_known(tmp_path: Path) -> None:
    """It would say that another learner has shown what it holds, and that all of an old ledger is accounted for."""
    ledger_of(tmp_path / "old", 2).close()
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    forged = receipt(10**9, to="bob", key=stranger, spent=[0, 0, 0, 0], reserved=[0, 0, 0, 0], at=10**10)
    for directory, backup in ((tmp_path / "old", None), (tmp_path / "new", tmp_path / "old")):
        with pytest.raises(LedgerError, match="not signed with the key of party"):
            recover(directory, PARTY, LIMIT, ["ann", "bob"], [receipt(), forged], backup=backup, commit=False)
        made = recover(directory, PARTY, LIMIT, ["ann", "bob"], [receipt()], backup=backup, commit=False)
        assert made.missing == ("bob",)
    new = Identity("party", stranger)  # whose key before is in what is left
    made = recover(tmp_path / "old", new, LIMIT, ["ann", "bob"], [receipt(), receipt(to="bob", key=stranger)])
    assert made.missing == ()


def test_each_replaced_ledger_has_a_folder_of_its_own(tmp_path: Path) -> None:
    set_aside(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []
    for number in (1, 2, 3):
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.head", "identity.key"):
            (tmp_path / name).write_text(str(number))
        set_aside(tmp_path / "ledger")
        aside = tmp_path / f"replaced-{number}"
        assert {path.name: path.read_text() for path in aside.iterdir()} == dict.fromkeys(
            ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.head"), str(number)
        )
        assert (tmp_path / "identity.key").exists()
