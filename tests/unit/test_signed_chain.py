"""A chain that signs its head stands by its own receipts and by those it replaced, and by no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import Answer, Binding, Head, Receipt, read_receipt, write_receipt
from parley.common.secure_sum.session import Identity
from parley.common.storage import chain as chains
from parley.common.storage.chain import SignedChain, chain_schema

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ANSWER = Binding("run", 3, "12" * 32, "34" * 32)
NAME = "log of tests"


class Log(SignedChain):
    """A chain that says ``sums`` in its receipts, and has ``replaced`` what these say."""

    sums: Mapping[str, Any] = MappingProxyType({})
    replaced: Receipt | None = None

    def totals(self) -> dict[str, Any]:
        return dict(self.sums)

    def has_replaced(self, receipt: Receipt) -> bool:
        return receipt == self.replaced


def open_chain(directory: Path) -> Log:
    return Log(directory / "log", chain_schema(NAME, 0x7E57), lambda *_: None, Identity("party", KEY), "Go on.")


def add(chain: SignedChain, number: int) -> None:
    with chain.transaction() as appending:
        appending.append({"a": number})


def test_a_receipt_says_all_that_it_is_asked_to_say(tmp_path: Path) -> None:
    chain = open_chain(tmp_path)
    add(chain, 1)
    first = chain.receipt("", None)
    assert first == write_receipt(KEY, signer="party", ledger=chain.head.link, head=chain.head).text
    add(chain, 2)
    chain.sums = {"spent": [1]}
    text = chain.receipt("ann", read_receipt(first), ANSWER)
    assert read_receipt(text) == Receipt(
        "party", Identity("party", KEY).key, chain.origin, chain.head, "ann", Head(1, chain.origin), ANSWER,
        {"spent": [1]}, text,
    )  # fmt: skip
    chain.close()


def test_a_receipt_is_taken_for_what_it_says_whichever_was_written_last(tmp_path: Path) -> None:
    chain = open_chain(tmp_path)
    add(chain, 1)
    texts = [chain.receipt("ann", None), chain.receipt("bob", None)]
    add(chain, 2)
    for text in (*texts, chain.receipt("eve", None), *texts):
        assert chain.check_receipt(text) == read_receipt(text)
    with pytest.raises(LedgerError, match="cannot be read"):
        chain.check_receipt("none")
    chain.close()


def test_the_receipt_written_last_is_known_without_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = open_chain(tmp_path)
    add(chain, 1)
    text = chain.receipt("ann", None)
    expected = read_receipt(text)
    monkeypatch.setattr(chains, "read_receipt", None)
    assert chain.check_receipt(text, "ann") == expected
    chain.close()


def test_what_another_process_wrote_is_looked_up_before_anyone_is_accused(tmp_path: Path) -> None:
    one = open_chain(tmp_path)
    add(one, 1)
    other = open_chain(tmp_path)
    add(other, 2)
    text = other.receipt("ann", None)
    assert one.head != other.head
    assert one.check_receipt(text) == read_receipt(text)
    assert one.head == other.head
    for chain in (one, other):
        chain.close()


@pytest.mark.parametrize("ledger", [None, "ab" * 32])
@pytest.mark.parametrize("head", [Head(0, "00" * 32), Head(1, "cd" * 32), Head(2, "00" * 32)])
def test_any_other_receipt_of_the_keepers_shows_an_old_copy(tmp_path: Path, ledger: str | None, head: Head) -> None:
    """Of another chain, also where that one was empty; of this chain, where the head is none that it had."""
    chain = open_chain(tmp_path)
    add(chain, 1)
    receipt = write_receipt(KEY, signer="party", ledger=ledger or chain.origin, head=head)
    if ledger is None and head.count == 0:
        assert chain.check_receipt(receipt.text) == receipt, "every chain was empty once"
        chain.close()
        return
    chain.replaced = receipt
    assert chain.check_receipt(receipt.text) == receipt, "it is accounted for"
    chain.replaced = None
    with pytest.raises(LedgerError) as caught:
        chain.check_receipt(receipt.text)
    assert str(caught.value) == (
        f"a receipt shows that this {NAME} had entries that it does not hold: it is an old copy. Go on."
    )
    with pytest.raises(LedgerError, match="older than the one last written"):
        add(chain, 2)
    assert (tmp_path / "log.head").read_bytes() == b"%020d %s\n" % (head.count, head.link.encode())
    chain.close()


def test_a_receipt_that_the_keeper_did_not_sign_forbids_nothing(tmp_path: Path) -> None:
    chain = open_chain(tmp_path)
    add(chain, 1)
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    for key, signer in ((stranger, "party"), (KEY, "other")):
        text = write_receipt(key, signer=signer, ledger=chain.origin, head=Head(9, "cd" * 32)).text
        with pytest.raises(LedgerError, match=r"not signed with the key of party|not of party"):
            chain.check_receipt(text)
    add(chain, 2)
    chain.close()


def test_a_chain_has_no_sums_and_has_replaced_no_other_unless_it_says_so(tmp_path: Path) -> None:
    chain = SignedChain(tmp_path / "log", chain_schema(NAME, 0x7E57), lambda *_: None, Identity("party", KEY), "Go on.")
    add(chain, 1)
    assert read_receipt(chain.receipt()).totals == {}
    other = write_receipt(KEY, signer="party", ledger="ab" * 32, head=chain.head)
    with pytest.raises(LedgerError, match="an old copy"):
        chain.check_receipt(other.text)
    chain.close()


def test_work_is_done_for_who_shows_a_receipt_of_the_chain_and_the_next_one_names_both(tmp_path: Path) -> None:
    chain = open_chain(tmp_path)
    add(chain, 1)
    shown = chain.receipt("ann")
    add(chain, 2)
    value, text = chain.witnessed("ann", shown, lambda: Answer(b"body", ANSWER))
    assert value == Answer(b"body", ANSWER)
    receipt = read_receipt(text)
    assert (receipt.to, receipt.shown, receipt.answer) == ("ann", read_receipt(shown).head, ANSWER)
    none, text = chain.witnessed("bob", None, lambda: None)
    receipt = read_receipt(text)
    assert (none, receipt.to, receipt.shown, receipt.answer) == (None, "bob", None, None)
    with pytest.raises(LedgerError):
        chain.witnessed("ann", "none", pytest.fail)
    chain.close()
