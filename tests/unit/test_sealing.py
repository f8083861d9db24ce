"""What a receipt hides from learners, as this version seals it and as an earlier one did."""

from __future__ import annotations

import struct

import pytest

from parley.common.privacy.account import Account, Cost
from parley.common.protocol.receipts import Head
from parley.party.ledger.sealing import _packed, _unpacked, totals_of

LEDGER, HEAD = "ab" * 32, Head(7, "cd" * 32)
SPENT, RESERVED = Cost(1, 2, 3, 4, 5, 6), Cost(10, 20, 30, 40, 50, 60)


@pytest.mark.parametrize("adjacency", ["replace_one", "person", "whole_party"])
def test_what_is_sealed_is_read_again_with_all_units(adjacency: str) -> None:
    accounts = {"": Account(0, 0, SPENT, RESERVED), "ward": Account(0, 0, SPENT)}
    totals = totals_of(accounts, adjacency, 99)  # type: ignore[arg-type]
    ledger, head, read = _unpacked(_packed(LEDGER, HEAD, totals))
    assert (ledger, head, read["adjacency"], read["at"]) == (LEDGER, HEAD, adjacency, 99)
    assert read["spent"] == list((SPENT + RESERVED).units)
    assert read["people"]["ward"]["spent"] == list(SPENT.units)


@pytest.mark.parametrize("is_weaker", [False, True])
def test_totals_that_an_earlier_version_sealed_count_as_they_did(*, is_weaker: bool) -> None:
    """It sealed four units: mu^2 counts in company as it does alone."""
    begin = struct.pack(">32sQ32sQ?H", bytes.fromhex(LEDGER), 7, bytes.fromhex(HEAD.link), 99, is_weaker, 1)
    units = b"".join(unit.to_bytes(16, "big") for unit in (1, 2, 3, 4))
    content = begin + struct.pack(">H", 0) + units
    ledger, head, read = _unpacked(content + bytes(-len(content) % 512))
    assert (ledger, head, read["at"]) == (LEDGER, HEAD, 99)
    assert read["adjacency"] == ("replace_one" if is_weaker else "whole_party")
    assert read["spent"] == list(Cost(1, 2, 3, 4).units) == [1, 2, 3, 4, 3, 0]
