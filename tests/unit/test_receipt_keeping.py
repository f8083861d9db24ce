"""What an asker believes of a service's receipts."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import (
    Binding,
    Head,
    Receipt,
    ReceiptKeeper,
    read_receipt,
    verify_receipt,
    write_receipt,
)
from parley.common.secure_sum.envelope import public_hex

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([seed] * 32)) for seed in (1, 2))
LEDGER, ANOTHER = "a" * 64, "b" * 64
QUERY = ("run", 2, "c" * 64)


def head(count: int, branch: str = "0") -> Head:
    return Head(count, f"{count:063x}{branch}")


def receipt(count: int, shown: Head | None = None, **changes: Any) -> str:  # noqa: ANN401 -- any part of a claim
    """The text of a receipt over so many entries."""
    parts: dict[str, Any] = {"signer": "party-1", "ledger": LEDGER, "head": head(count), "shown": shown}
    return write_receipt(changes.pop("key", KEY), **(parts | changes)).text


def keeper(known: int | None = None) -> ReceiptKeeper:
    """Somebody who pins the key, and perhaps knows a receipt."""
    newest = None if known is None else read_receipt(receipt(known))
    return ReceiptKeeper("party-1", public_hex(KEY), newest)


def test_a_receipt_goes_on_from_the_one_before() -> None:
    mine = keeper()
    first = mine.take(receipt(3), None)
    second = mine.take(receipt(5, first.head), first)
    assert mine.newest == second
    late = mine.take(receipt(4, first.head), first)  # of a request that was sent before the last came back
    assert (late.head.count, mine.newest) == (4, second)


KNOWN = read_receipt(receipt(5))
REFUSED: dict[str, tuple[str | None, Receipt | None]] = {
    "none": (None, KNOWN),
    "a count that falls": (receipt(4, KNOWN.head), KNOWN),
    "a head that says nothing of what was shown": (receipt(7), KNOWN),
    "a head that goes on from another": (receipt(7, head(5, "1")), KNOWN),
    "the same count with another link": (receipt(5, KNOWN.head, head=head(5, "1")), KNOWN),
    "another key": (receipt(7, KNOWN.head, key=OTHER), KNOWN),
    "another signer": (receipt(7, KNOWN.head, signer="party-2"), KNOWN),
    "a text": ("not a receipt", KNOWN),
    "a long text": ("A" * 5000, KNOWN),
    "an absurd count": (receipt(10**30, KNOWN.head), KNOWN),
    "a count below nothing": (receipt(7, KNOWN.head, head=Head(-1, "0" * 64)), KNOWN),
    "a count that is no number": (receipt(7, KNOWN.head, head=Head("7", "0" * 64)), KNOWN),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("text", "shown"), REFUSED.values(), ids=REFUSED)
def test_what_contradicts_what_is_known_is_refused(text: str | None, shown: Receipt | None) -> None:
    mine = keeper(5)
    with pytest.raises(LedgerError):
        mine.take(text, shown)
    assert mine.newest == KNOWN, "and nothing is learned of it"


def test_an_answer_is_bound_to_run_round_question_and_bytes() -> None:
    binding = Binding.of(*QUERY, b"answer")
    assert keeper().take(receipt(3, answer=binding), None, QUERY, b"answer").answer == binding
    others = [
        replace(binding, run="other"),
        replace(binding, round=1),
        replace(binding, query="d" * 64),
        Binding.of("run", 2, "c" * 64, b"another"),
        None,
    ]
    for other in others:
        with pytest.raises(LedgerError, match="not to what it was asked"):
            keeper().take(receipt(3, answer=other), None, QUERY, b"answer")


def test_without_a_pin_the_first_key_is_kept() -> None:
    mine = ReceiptKeeper("party-1")
    first = mine.take(receipt(3), None)
    assert mine.key == public_hex(KEY)
    with pytest.raises(LedgerError, match="not signed with the key"):
        mine.take(receipt(4, first.head, key=OTHER), first)
    assert ReceiptKeeper("party-1", newest=first).key == public_hex(KEY)


def test_a_ledger_that_replaces_another_must_say_so() -> None:
    mine = keeper(5)
    with pytest.raises(LedgerError):
        mine.take(receipt(1, ledger=ANOTHER), KNOWN)
    replaced = mine.take(receipt(1, KNOWN.head, ledger=ANOTHER), KNOWN)
    assert mine.newest == replaced, "it has accounted for what was shown"


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    text = receipt(3, totals={"spent": [1, 2, 3, 4]})
    whole = b"".join(base64.b64decode(part) for part in text.split("."))
    parts = [bytearray(base64.b64decode(part)) for part in text.split(".")]
    part = parts[0] if (place := at % len(whole)) < len(parts[0]) else parts[1]
    part[place - (0 if part is parts[0] else len(parts[0]))] ^= 1 << bit
    flipped = ".".join(base64.b64encode(bytes(part)).decode() for part in parts)
    with pytest.raises(LedgerError):
        verify_receipt(flipped, "party-1", public_hex(KEY))


@given(claim=st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_any_other_claim_is_no_receipt(claim: object) -> None:
    text = f"{base64.b64encode(json.dumps(claim).encode()).decode()}.{base64.b64encode(bytes(64)).decode()}"
    with pytest.raises(LedgerError):
        read_receipt(text)


def test_what_is_written_is_read() -> None:
    bound = Binding("run", 1, "c" * 64, "d" * 64)
    text = receipt(3, head(2), to="learner", answer=bound, totals={"spent": [0, 0, 0, 0]})
    found = verify_receipt(text, "party-1", public_hex(KEY))
    assert (found.head, found.shown, found.to, found.answer) == (head(3), head(2), "learner", bound)
    assert (found.totals, found.ledger, found.text) == ({"spent": [0, 0, 0, 0]}, LEDGER, text)
