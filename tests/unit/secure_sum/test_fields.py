"""What a field of a message may hold, to the letter: one case on each side of every bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from parley.common.secure_sum import messages
from parley.common.secure_sum.messages import RosterKeyHolder, RosterParty

Check = Callable[[object], bool]
HASH = "0a" * 32
PARTY = RosterParty("party-1", "0a" * 32, noise="1")
HOLDER = RosterKeyHolder("holder", "0b" * 32, "ff")


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (
            lambda: messages._checked(messages._is_hex, 2),
            ["00af", "ffff"],
            ["00a", "00aff", "00AF", "00ag", "00a\n", b"00af", ["0"] * 4, None, ""],
        ),
        (lambda: messages._checked(messages._is_hex), ["0", "abc"], ["", "ABC", "xyz", "a\n", 10, None]),
        (
            lambda: messages._checked(messages._is_name),
            ["a", "A1._-", "x" * 100],
            ["", "-a", "a b", "x" * 101, "a\n", 1],
        ),
        (lambda: messages._integer(2, 5), [2, 3, 5], [1, 6, True, 3.0, "3", None]),
        (lambda: messages._integer(0, 1), [0, 1], [False, True, -1, 2]),
        (
            lambda: messages._hashes(2),
            [(HASH,), (HASH, HASH)],
            [(), (HASH,) * 3, [HASH], HASH, ("00",), (HASH, "00"), None],
        ),
        (
            lambda: messages._records(RosterParty, 2),
            [(PARTY,), (PARTY, PARTY)],
            [(), (PARTY,) * 3, [PARTY], (HOLDER,), (PARTY, HOLDER), None],
        ),
    ],
)
def test_a_field_holds_what_it_says_and_nothing_else(
    field: Callable[[], dict[str, Any]], good: list[object], bad: list[object]
) -> None:
    check: Check = field()["check"]  # made in here, not when this file is imported: `make mutants` changes it later
    assert all(check(value) for value in good)
    assert not any(check(value) for value in bad)


def test_a_field_of_records_names_its_record() -> None:
    assert messages._records(RosterParty, 2)["entry"] is RosterParty


def test_a_scalar_is_a_finite_number_or_a_short_text() -> None:
    good = ["", "x" * 100, 0.0, -1e308, 0, 2**63 - 1, 1 - 2**63]
    bad = ["x" * 101, math.inf, -math.inf, math.nan, 2**63, -(2**63), True, None, b"", (1,)]
    assert all(map(messages._is_scalar, good))
    assert not any(map(messages._is_scalar, bad))
