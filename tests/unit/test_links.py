"""Old links are thinned out, and what is left proves every record of a chain as all of them did."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import LedgerError
from parley.common.protocol.receipts import Head
from parley.common.storage import chain as module
from parley.common.storage.chain import FIRST, LINK_BYTES, NEWEST, SPACING, Chain, Links, chain_schema

COUNT, REMEMBERED = 100, 32


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    """A chain of `COUNT` records that remembers the links of 65 to 100, and of 1, 17, 33, 49."""
    monkeypatch.setattr(module, "NEWEST", REMEMBERED)
    chain = Chain(tmp_path / "log", chain_schema("log of tests", 0x7E57), lambda *_: None)
    with chain.transaction() as appending:
        for number in range(1, COUNT + 1):
            appending.append({"a": number}, {"body": b"%d" % number})
    with closing(chain):
        yield chain


def rows_of(directory: Path) -> dict[int, tuple[bytes, bytes]]:
    with closing(sqlite3.connect(directory / "log.db")) as connection:
        return {row[0]: row[1:] for row in connection.execute("SELECT number, record, link FROM entries")}


def put(directory: Path, number: int, record: bytes, link: bytes) -> None:
    with closing(sqlite3.connect(directory / "log.db")) as connection, connection:
        connection.execute("UPDATE entries SET record = ?, link = ? WHERE number = ?", (record, link, number))


@pytest.mark.parametrize("count", [1, 2, SPACING, NEWEST, 2 * NEWEST - 1, 2 * NEWEST, 2 * NEWEST + 1, 5 * NEWEST + 7])
def test_the_newest_links_are_remembered_and_each_sixteenth_of_the_older(count: int) -> None:
    links, by_number = Links(), [FIRST]
    for number in range(1, count + 1):
        by_number.append(hashlib.sha256(b"%d" % number).digest())
        links.add(by_number[-1])
    assert links.head == Head(count, by_number[-1].hex())
    for number in range(count + 1):
        remembered = number == 0 or number > count - NEWEST or number % SPACING == 1
        assert links.find(number) == by_number[number] or not remembered
        if number:
            following, link = links.following(number)
            assert number <= following < number + SPACING
            assert link == by_number[following]
    assert len(links._older) + len(links._newest[1]) <= LINK_BYTES * (2 * NEWEST + count / SPACING)


def test_all_records_and_heads_are_there_though_few_links_are(chain: Chain) -> None:
    records = [(number, canonical(chain.record(number))) for number in range(1, COUNT + 1)]
    assert list(chain.records()) == records
    link = FIRST
    for number, record in records:
        link = hashlib.sha256(link + record).digest()
        assert chain.read(number, "body")[1] == b"%d" % number
        assert chain.holds(Head(number, link.hex()))
        assert not chain.holds(Head(number, "ab" * LINK_BYTES))
        assert number == COUNT or not chain.holds(Head(number + 1, link.hex()))
    assert chain.origin == hashlib.sha256(FIRST + records[0][1]).hexdigest()
    assert chain._links.find(2) is None, "it was read from the file"


@pytest.mark.parametrize("number", [1, 2, 16, 17, 18, 40, 64, 65])
def test_a_changed_record_is_noticed_for_all_that_may_be_remembered(chain: Chain, tmp_path: Path, number: int) -> None:
    """Also where the links after it are made to fit, up to the next that is remembered or to the last."""
    rows = rows_of(tmp_path)
    put(tmp_path, number, b'{"a":0}', rows[number][1])
    with pytest.raises(LedgerError, match=f"changed at entry {number}$"):
        chain.record(number)
    for last in range(number, COUNT + 1):
        link = rows[number - 1][1] if number > 1 else FIRST
        for each in range(number, last + 1):
            record = b'{"a":0}' if each == number else rows[each][0]
            link = hashlib.sha256(link + record).digest()
        put(tmp_path, last, b'{"a":0}' if last == number else rows[last][0], link)
        for read in (lambda: chain.record(number), lambda: chain.read(number, "body"), lambda: list(chain.records())):
            with pytest.raises(LedgerError, match="changed at entry"):
                read()


@pytest.mark.parametrize("number", [2, 10, 16, 50])
@pytest.mark.parametrize("moved", [-1, 1, 7])
def test_bytes_do_not_pass_from_a_record_to_the_link_before_it(
    chain: Chain, tmp_path: Path, number: int, moved: int
) -> None:
    """Both are hashed together: the hash is the same wherever the border is."""
    rows = rows_of(tmp_path)
    both, border = rows[number][1] + rows[number + 1][0], LINK_BYTES + moved
    put(tmp_path, number, rows[number][0], both[:border])
    put(tmp_path, number + 1, both[border:], rows[number + 1][1])
    for read in (number, number + 1):
        with pytest.raises(LedgerError, match="changed at entry"):
            chain.record(read)


@pytest.mark.parametrize("number", [2, 3, 16, 17, 18, 40])
def test_a_record_that_is_gone_is_noticed(chain: Chain, tmp_path: Path, number: int) -> None:
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection, connection:
        connection.execute("DELETE FROM entries WHERE number = ?", (number,))
    with pytest.raises(LedgerError, match=f"changed at entry {number}$"):
        chain.record(number)
    with pytest.raises(LedgerError, match="changed at entry"):
        list(chain.records())


def test_a_head_whose_records_were_changed_is_an_error_and_no_other_chain(chain: Chain, tmp_path: Path) -> None:
    """Or the chain would be taken for an old copy, and refuse for ever."""
    rows = rows_of(tmp_path)
    put(tmp_path, 10, b'{"a":0}', rows[10][1])
    with pytest.raises(LedgerError, match="changed at entry 10"):
        chain.holds(Head(8, rows[8][1].hex()))
