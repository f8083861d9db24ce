"""What another service answers in JSON is counted before it is parsed: it may be an adversary."""

from __future__ import annotations

import pytest

from parley.common.client.peer import parse_answer
from parley.common.errors import TooLargeError
from parley.common.protocol.receipts import LONGEST_RECEIPT, MOST_RECEIPTS, HeldReceipts


@pytest.mark.parametrize(
    "content",
    [
        b"{" + b",".join(b'"%d":0' % i for i in range(70_000)) + b"}",
        b'{"receipts": [' + b"[" * 70_000 + b"]" * 70_000 + b"]}",
        b'{"receipts": ["' + b"a" * 2**22 + b'"]}',
    ],
    ids=["many names", "many lists", "a long text"],
)
def test_an_answer_that_is_a_bomb_is_not_parsed(content: bytes) -> None:
    with pytest.raises(TooLargeError):
        parse_answer(HeldReceipts, content)


def test_the_longest_answer_is_parsed() -> None:
    longest = HeldReceipts(receipts=("a" * LONGEST_RECEIPT,) * MOST_RECEIPTS)
    assert parse_answer(HeldReceipts, longest.model_dump_json().encode()) == longest
