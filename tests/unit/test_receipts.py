"""A receipt says who said what about which chain to whom; anything signed otherwise or malformed is none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import LedgerError
from parley.common.protocol.receipts import Binding, Head, read_receipt, verify_receipt, write_receipt
from parley.common.secure_sum.envelope import Signed, public_hex

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
TAG = "parley-receipt-1"
HEAD, SHOWN = Head(7, "ab" * 32), Head(5, "cd" * 32)
ANSWER = Binding("run", 3, "12" * 32, "34" * 32)
CLAIM: dict[str, Any] = {
    "signer": "party",
    "key": public_hex(KEY),
    "ledger": "ef" * 32,
    "head": asdict(HEAD),
    "to": "ann",
    "shown": asdict(SHOWN),
    "answer": asdict(ANSWER),
    "totals": {"spent": [1, 2, 3, 4]},
}


def signed(claim: object, key: Ed25519PrivateKey = KEY, tag: str = TAG) -> str:
    """A claim as a receipt spells it."""
    seal = Signed.seal(tag, canonical(claim), key)
    return f"{base64.b64encode(seal.body).decode()}.{base64.b64encode(seal.signature).decode()}"


def test_a_receipt_is_read_as_it_was_written() -> None:
    written = write_receipt(
        KEY,
        signer="party",
        ledger="ef" * 32,
        head=HEAD,
        to="ann",
        shown=SHOWN,
        answer=ANSWER,
        totals={"spent": [1, 2, 3, 4]},
    )
    text = written.text
    assert text == signed(CLAIM)
    assert written == read_receipt(text), "its writer knows what its readers do"
    receipt = verify_receipt(text, "party", public_hex(KEY))
    assert asdict(receipt) == CLAIM | {"text": text, "sealed": ""}
    assert (receipt.head, receipt.shown, receipt.answer) == (HEAD, SHOWN, ANSWER)


def test_what_is_not_said_is_empty() -> None:
    written = write_receipt(KEY, signer="party", ledger="ef" * 32, head=HEAD)
    receipt = read_receipt(written.text)
    assert written == receipt
    assert (receipt.to, receipt.shown, receipt.answer, receipt.totals) == ("", None, None, {})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("ledger",), "ef" * 31),
        (("ledger",), list("ef" * 32)),
        (("head", "link"), "ab" * 33),
        (("head", "link"), ["x"] * 64),
        (("head", "count"), -1),
        (("head", "count"), 2**53 + 1),
        (("head", "count"), True),
        (("head", "count"), "7"),
        (("shown", "count"), -1),
        (("shown", "link"), "cd"),
        (("answer",), {"run": "run"}),
        (("totals",), 5),
        (("totals",), None),
    ],
)
def test_a_claim_that_is_none_is_refused_though_it_is_signed(path: tuple[str, ...], value: object) -> None:
    claim = json.loads(json.dumps(CLAIM))
    place = claim
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(LedgerError, match="cannot be read"):
        read_receipt(signed(claim))


@pytest.mark.parametrize("name", sorted(CLAIM))
def test_each_part_is_needed(name: str) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        read_receipt(signed({key: value for key, value in CLAIM.items() if key != name}))


@pytest.mark.parametrize("count", [0, 2**53])
def test_counts_may_be_none_at_all_and_as_large_as_json_is_exact(count: int) -> None:
    claim = CLAIM | {"head": {"count": count, "link": "ab" * 32}}
    assert read_receipt(signed(claim)).head.count == count


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[1:],
        lambda text: text.replace(".", "", 1),
        lambda text: "!" + text,
        lambda text: text + "!",
        lambda text: text.split(".")[0],
        lambda text: text + "." + text,
        lambda text: "é" + text,
        lambda text: "[" * 4000,
    ],
)
def test_what_is_no_receipt_is_refused(damage: Callable[[str], str]) -> None:
    with pytest.raises(LedgerError):
        verify_receipt(damage(signed(CLAIM)), "party", public_hex(KEY))


def test_a_receipt_has_at_most_4096_characters() -> None:
    texts = [signed(CLAIM | {"to": "x" * extra}) for extra in range(3000)]
    longest = max((text for text in texts if len(text) <= 4096), key=len)
    next_one = min((text for text in texts if len(text) > 4096), key=len)
    assert (len(longest), len(next_one)) == (4093, 4097)  # base64 and a dot make one more than a multiple of four
    assert read_receipt(longest).signer == "party"
    with pytest.raises(LedgerError, match="cannot be read"):
        read_receipt(next_one)


def test_a_receipt_is_its_signers_alone() -> None:
    for text in (signed(CLAIM, OTHER), signed(CLAIM, tag="parley-receipt-2")):
        assert read_receipt(text).signer == "party", "reading checks no signature"
        with pytest.raises(LedgerError, match="was not signed with the key of party"):
            verify_receipt(text, "party", public_hex(KEY))
    for claim in (CLAIM | {"signer": "other"}, CLAIM | {"key": public_hex(OTHER)}):
        with pytest.raises(LedgerError, match="not of party"):
            verify_receipt(signed(claim), "party", public_hex(KEY))
