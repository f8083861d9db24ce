from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import SecureSumError
from parley.common.secure_sum import errors
from parley.common.secure_sum.envelope import Signed, frame, public_hex, unframe
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.messages import (
    MAX_BODY,
    MAX_KEY_HOLDERS,
    MAX_TEXT,
    Contribution,
    Message,
    Open,
    Opened,
    Roster,
    RosterKeyHolder,
    RosterParty,
    SumQuery,
    set_digest,
)
from parley.common.secure_sum.packing import MAX_CONTRIBUTORS
from parley.common.secure_sum.paillier import MAX_KEY_BITS

Refused = Callable[[Reason], AbstractContextManager[object]]
HASH = "ab" * 32
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
QUERY = SumQuery("01" * 16, HASH, 1, "gradient", HASH, 1, 0.5, 2_000_000_000)
MESSAGES: list[Message] = [
    QUERY,
    Contribution("01" * 16, HASH, 1, HASH, "party-1", 5, (HASH, HASH), HASH),
    Open("01" * 16, HASH, 1, HASH, (HASH,)),
    Opened("01" * 16, HASH, 1, HASH, HASH),
]


def spell(fields: dict[str, Any]) -> bytes:
    return canonical(fields)


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_survive_the_wire(message: Message) -> None:
    signed = Signed.from_bytes(message.sign(KEY, [b"attached", b""]).to_bytes())
    assert type(message).read(signed, public_hex(KEY)) == message
    assert signed.attachments == (b"attached", b"")
    assert signed.head.attachments == ()


def test_rosters_survive_the_wire(start: Callable[..., LocalSession]) -> None:
    roster = start().roster
    assert Roster.parse(roster.body) == roster


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_are_frozen_and_slotted(message: Message) -> None:
    with pytest.raises(FrozenInstanceError):
        message.round = 2  # type: ignore[attr-defined]
    assert not hasattr(message, "__dict__")


NEVER: tuple[object, ...] = (None, True, [], [1], ["x"], {}, float("inf"), 2**64, "x" * 101)
NO_NUMBER = (-1, 1.0, "1")
NO_NAME = ("", "a b", "-a", 1)
NO_HASH = ("", "AB" * 32, "z" * 64, "ab" * 33, 1)
NO_HASHES = ("ab" * 32, ["AB" * 32], 1)
WRONG: dict[str, tuple[object, ...]] = {
    "round": NO_NUMBER,
    "d": NO_NUMBER,
    "deadline": NO_NUMBER,
    "step": NO_NAME,
    "party": NO_NAME,
    "clip": (),
    "noise": (),
    "blobs": NO_HASHES,
    "contributions": NO_HASHES,
}


@pytest.mark.parametrize("message", MESSAGES)
def test_every_field_is_checked(message: Message, refused: Refused) -> None:
    fields = asdict(message)
    for name in fields:
        for wrong in (*NEVER, *WRONG.get(name, NO_HASH)):
            with refused(Reason.WRONG_FIELD):
                type(message).from_json(fields | {name: wrong})


@pytest.mark.parametrize("message", MESSAGES)
def test_missing_and_further_fields_are_refused(message: Message, refused: Refused) -> None:
    fields = asdict(message)
    with refused(Reason.WRONG_FIELD):
        type(message).parse(spell(fields | {"further": 1}))
    for name in fields:
        with refused(Reason.WRONG_FIELD):
            type(message).parse(spell({key: value for key, value in fields.items() if key != name}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        json.dumps(asdict(QUERY)).encode(),  # spaces
        QUERY.body + b" ",
        QUERY.body.replace(b'"clip":1,', b'"clip":2,"clip":1,'),  # a key twice
        QUERY.body.replace(b'"noise":0.5', b'"noise":0.50'),
        QUERY.body.replace(b"gradient", b"\\u0067radient"),
    ],
)
def test_another_spelling_is_refused(body: bytes, refused: Refused) -> None:
    assert body != QUERY.body
    with refused(Reason.NOT_CANONICAL):
        SumQuery.parse(body)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str, refused: Refused) -> None:
    with refused(Reason.WRONG_FIELD):
        SumQuery.parse(QUERY.body.replace(b"0.5", number.encode()))


@given(st.integers(0, len(QUERY.body) - 1), st.integers(0, 255))
def test_an_altered_body_is_refused_or_another_message(position: int, byte: int) -> None:
    body = bytearray(QUERY.body)
    body[position] = byte
    try:
        message = SumQuery.parse(bytes(body))
    except SecureSumError:
        return
    assert message.body == bytes(body)
    assert (message == QUERY) == (bytes(body) == QUERY.body)


def roster_faults(roster: Roster) -> list[dict[str, object]]:
    first, second, third = roster.parties
    (holder,) = roster.key_holders
    return [
        {"minimum_contributors": 1},
        {"minimum_contributors": 4},
        {"colluders": 2},
        {"parties": (first, second, replace(third, name=first.name))},
        {"parties": (first, second, replace(third, key=first.key))},
        {"parties": (first, second, replace(third, key=roster.learner))},
        {"parties": (first, second, replace(third, name=holder.name))},
        {"parties": ()},
        {"parties": (first, second, "party-3")},
        {"key_holders": ()},
        {"key_holders": (replace(holder, modulus="0" + holder.modulus),)},
        {"key_holders": (replace(holder, modulus=f"{holder.n >> 1 | 1:x}"),)},
        {"key_holders": (replace(holder, modulus=f"{holder.n - 1:x}"),)},
        {"key_bits": 3072},
        {"key_bits": 1024},
        {"version": 2},
        {"lane_bits": 32},
        {"guard_bits": 9},
        {"fraction_bits": 54},
        {"d": 0},
    ]


def test_rosters_that_make_no_sense_are_refused(start: Callable[..., LocalSession], refused: Refused) -> None:
    roster = start().roster
    for fault in roster_faults(roster):
        with refused(Reason.WRONG_FIELD):
            replace(roster, **fault)  # type: ignore[arg-type]


def test_a_signature_is_for_one_tag_and_body(refused: Refused) -> None:
    signed = QUERY.sign(KEY)
    other = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"!")
    with refused(Reason.BAD_SIGNATURE):
        signed.verify(Open.TAG, public_hex(KEY))
    with refused(Reason.BAD_SIGNATURE):
        signed.verify(SumQuery.TAG, public_hex(other))
    with refused(Reason.BAD_SIGNATURE):
        replace(signed, body=signed.body + b" ").verify(SumQuery.TAG, public_hex(KEY))
    with refused(Reason.BAD_SIGNATURE):
        replace(signed, signature=b"").verify(SumQuery.TAG, public_hex(KEY))


def test_tags_differ_and_hold_no_zero() -> None:
    tags = [kind.TAG for kind in (Roster, SumQuery, Contribution, Open, Opened)]
    assert len(set(tags)) == len(tags)
    assert not any("\0" in tag for tag in tags)


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_frames_come_apart_as_they_were(parts: list[bytes]) -> None:
    assert unframe(frame(parts)) == parts


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\x02a", frame([b"body"]), frame([b"a", b"b"])[:-1]])
def test_torn_frames_are_refused(data: bytes, refused: Refused) -> None:
    with refused(Reason.WRONG_FRAME):
        Signed.from_bytes(data)


def test_a_set_has_no_order() -> None:
    assert set_digest(["a", "b"]) == set_digest(["b", "a"]) != set_digest(["a"])


def test_every_reason_has_its_own_word_and_every_family_its_status() -> None:
    assert len({reason.value for reason in Reason}) == len(Reason)
    families = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SecureSumError)]
    assert all(400 <= family.status < 600 for family in families)


def test_a_body_longer_than_any_is_refused_before_it_is_verified_or_parsed(refused: Refused) -> None:
    bomb = Signed(b"[" * (MAX_BODY + 1), b"")
    with refused(Reason.WRONG_LENGTH):
        Open.parse(bomb.body)
    with refused(Reason.WRONG_LENGTH):
        Open.read(bomb, public_hex(KEY))


def test_the_largest_messages_are_not_too_long() -> None:
    name, modulus = "n" * 96, f"{2 ** (MAX_KEY_BITS - 1) + 1:x}"
    parties = tuple(
        RosterParty(f"{name}{i:04}", f"{i:064x}", "\x01" * MAX_TEXT) for i in range(1, MAX_CONTRIBUTORS + 1)
    )
    holders = tuple(RosterKeyHolder(f"{name}{i:04}", f"{i:064x}", modulus) for i in range(2000, 2000 + MAX_KEY_HOLDERS))
    roster = Roster("01" * 16, 2**24, MAX_KEY_BITS, 2, 1, HASH, parties, holders)
    assert Roster.parse(roster.body) == roster
    largest = Open("01" * 16, HASH, 1, HASH, (HASH,) * MAX_CONTRIBUTORS)
    assert Open.parse(largest.body) == largest
