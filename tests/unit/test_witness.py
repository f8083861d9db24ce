"""Receipts at second hand: what an asker makes of those that others hold, and what a witness keeps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.errors import InvalidReceiptError, LedgerError
from parley.common.protocol.receipts import Head, ReceiptKeeper, read_receipt, write_receipt
from parley.common.secure_sum.envelope import public_hex
from parley.common.storage.witness import Witness

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
MINE = public_hex(KEY)


def digest(*what: object) -> str:
    return sha256(repr(what).encode()).hexdigest()


def receipt(  # noqa: PLR0913 -- a receipt's parts, by name
    count: int,
    ledger: str = "A",
    *,
    shown: str | None = None,
    signer: str = "party",
    key: Ed25519PrivateKey = KEY,
    branch: int = 0,
    sealed: str = "",
) -> str:
    """A receipt of a ledger with so many entries."""
    head = Head(count, digest(ledger, count, branch))
    found = read_receipt(shown).head if shown else None
    return write_receipt(key, signer=signer, ledger=digest(ledger), head=head, shown=found, sealed=sealed).text


def keeper(newest: str | None = None) -> ReceiptKeeper:
    return ReceiptKeeper("party", MINE, read_receipt(newest) if newest else None)


@pytest.mark.parametrize(
    ("known", "learnt"),
    [
        (receipt(5), receipt(9)),  # later: the asker was set back itself, or another has asked meanwhile
        (receipt(5), receipt(3)),  # earlier, and perhaps of another history
        (receipt(5), receipt(5, branch=1)),  # of another history for sure
        (receipt(5, "B"), receipt(9, "A")),  # of another ledger: replaced, or put in its place
        (None, receipt(1)),
    ],
)
def test_what_another_holds_is_put_to_the_service_before_anything_else(known: str | None, learnt: str) -> None:
    receipts = keeper(known)
    receipts.learn(learnt)
    (unsettled,) = receipts.unsettled.values()
    assert unsettled.text == learnt
    assert receipts.newest == (read_receipt(known) if known else None), "only the service itself says what is newest"
    receipts.settle(receipt(10, "B", shown=learnt), unsettled)
    receipts.learn(learnt)
    assert not receipts.unsettled, "it is asked once"


def test_what_the_service_has_said_itself_is_not_put_to_it() -> None:
    receipts = keeper()
    first = receipts.take(receipt(4), None)
    receipts.take(receipt(7, shown=receipt(4)), first)
    for count in (4, 7):
        receipts.learn(receipt(count))
    assert not receipts.unsettled


def test_what_the_service_did_not_sign_is_passed_over() -> None:
    receipts = keeper(receipt(5))
    for forged in (receipt(9, key=OTHER), receipt(9, signer="another"), receipt(9)[:-8] + "AAAAAAA=", "", "e30=.e30="):
        receipts.learn(forged)
    unpinned = ReceiptKeeper("party")
    unpinned.learn(receipt(9))
    assert not receipts.unsettled
    assert not unpinned.unsettled
    assert unpinned.key is None, "hearsay pins no key"


def test_a_service_that_does_not_account_for_its_receipt_is_not_believed() -> None:
    receipts = keeper(receipt(5))
    receipts.learn(receipt(9))
    (unsettled,) = receipts.unsettled.values()
    for answer in (None, receipt(6), receipt(6, shown=receipt(5)), receipt(10, shown=receipt(9), key=OTHER)):
        with pytest.raises(LedgerError):
            receipts.settle(answer, unsettled)
    assert receipts.unsettled


def test_a_service_puts_a_new_ledger_in_the_place_of_an_old_one_by_its_own_word() -> None:
    receipts = keeper(receipt(5, "A"))
    assert receipts.newest is not None
    receipts.take(receipt(2, "B", shown=receipt(5, "A")), receipts.newest)
    assert receipts.newest.ledger == digest("B")
    receipts.learn(receipt(6, "A"))
    assert receipts.unsettled, "more than it has accounted for"


def test_a_witness_keeps_the_newest_of_those_it_knows(tmp_path: Path) -> None:
    with closing(Witness(tmp_path, lambda: {("party", MINE)}, ())) as witness:
        assert witness.take([receipt(3), receipt(5), receipt(4), receipt(9, key=OTHER)], "ann") == 2
        assert witness.take([receipt(5), receipt(9, signer="another")], "ann") == 0
        for none in ("junk", receipt(9)[:-8] + "AAAAAAA=", receipt(9, key=OTHER)[:-8] + "AAAAAAA="):
            with pytest.raises(InvalidReceiptError):
                witness.take([receipt(7), none], "ann")
        assert witness.texts() == [receipt(5)]
        assert witness.take([receipt(1, "B")], "ann") == 1
    with closing(Witness(tmp_path, lambda: {("party", MINE)}, ())) as witness:
        assert sorted(witness.texts()) == sorted([receipt(5), receipt(1, "B")]), "of both ledgers, after a restart too"
        witness.take([receipt(1, str(number)) for number in range(100)], "ann")
        assert len(witness.texts()) == 64, "nobody fills its disk"


def test_of_one_head_the_later_receipt_counts_if_a_part_is_sealed(tmp_path: Path) -> None:
    """The signer's whole chain may have grown while its recipient's own did not."""
    receipts = keeper()
    first = receipts.take(receipt(5, sealed="AAAA"), None)
    for text in (receipt(5, sealed="BBBB", shown=first.text), receipt(5, shown=first.text)):
        receipts.take(text, first)
    assert receipts.newest == read_receipt(receipt(5, sealed="BBBB", shown=first.text))
    receipts.learn(receipt(5, sealed="BBBB"))
    assert not receipts.unsettled
    receipts.learn(receipt(5, sealed="CCCC"))
    assert len(receipts.unsettled) == 1, "of the same head, and perhaps of another state of the whole chain"
    with closing(Witness(tmp_path, lambda: {("party", MINE)}, ())) as witness:
        witness.take([receipt(5, sealed="AAAA"), receipt(5, sealed="BBBB"), receipt(5)], "ann")
        assert witness.texts("ann") == [receipt(5, sealed="BBBB")]


def test_what_a_caller_handed_on_is_shown_to_no_other(tmp_path: Path) -> None:
    with closing(Witness(tmp_path, lambda: {("party", MINE)}, {"ann", "bob"})) as witness:
        witness.take([receipt(5)], "ann")
        witness.take([receipt(3)], "bob")
        witness.take([receipt(1, str(number)) for number in range(100)], "eve")
        assert (witness.texts("ann"), witness.texts("bob"), witness.texts("")) == ([receipt(5)], [receipt(3)], [])
        assert len(witness.texts()) == 66, "its owner sees all"
        witness.take([receipt(4)], "bob")
        assert witness.texts("bob") == [receipt(4)], "though ann handed on a newer one"


@pytest.mark.parametrize(("callers", "shown"), [(("ann",), [receipt(5)]), (("ann", "bob"), []), ((), [])])
def test_what_an_older_version_stored_is_shown_to_the_only_caller(
    tmp_path: Path, callers: tuple[str, ...], shown: list[str]
) -> None:
    """Which caller handed it on was not noted then."""
    with closing(sqlite3.connect(tmp_path / "witness.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE receipts (signer TEXT NOT NULL, key TEXT NOT NULL, ledger TEXT NOT NULL, "
            "count INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (signer, key, ledger)) STRICT"
        )
        connection.execute("INSERT INTO receipts VALUES (?, ?, ?, ?, ?)", ("party", MINE, digest("A"), 5, receipt(5)))
        connection.execute(f"PRAGMA application_id = {0x50_57_49_54}")
        connection.execute("PRAGMA user_version = 1")
    for _ in range(2):
        with closing(Witness(tmp_path, lambda: {("party", MINE)}, callers)) as witness:
            assert (witness.texts("ann"), witness.texts()) == (shown, [receipt(5)])
    with closing(Witness(tmp_path, lambda: {("party", MINE)}, ("ann", "bob"))) as witness:
        assert witness.texts("ann") == shown, "also once others are served"
