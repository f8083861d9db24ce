"""A chain names all that it holds by its links, and notices what was changed, set back, or never was its own."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import LedgerError, UnavailableError, VersionError
from parley.common.protocol.receipts import Head
from parley.common.storage.chain import Chain, ChainRecord, HeadFile, attachment_digests, chain_schema, next_link

NAME, KIND = "log of tests", 0x7E57
EMPTY = Head(0, "00" * 32)


class Book:
    """A chain in a directory, and what it told."""

    def __init__(self, directory: Path) -> None:
        self.told: list[tuple[int, ChainRecord]] = []
        self.chain = Chain(directory / "log", chain_schema(NAME, KIND), lambda *record: self.told.append(record))

    def add(self, *records: ChainRecord, **attachments: bytes) -> None:
        with self.chain.transaction() as appending:
            for record in records:
                appending.append(record, attachments)


def by_definition(*records: ChainRecord) -> list[str]:
    """The links after each of some records."""
    links, link = [], bytes(32)
    for record in records:
        link = hashlib.sha256(link + canonical(record)).digest()
        links.append(link.hex())
    return links


def change(directory: Path, statement: str, *values: int) -> None:
    with closing(sqlite3.connect(directory / "log.db")) as connection, connection:
        connection.execute(statement, values)


def test_a_chain_that_a_process_opens_twice_keeps_its_log(tmp_path: Path) -> None:
    """Another process that opens and closes the files last must not take the log away under those who write."""
    first, second = Book(tmp_path), Book(tmp_path)
    first.add({"a": 1})
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM entries'); c.close()"
    subprocess.run([sys.executable, "-c", look, tmp_path / "log.db"], check=True)
    assert (tmp_path / "log.db-wal").exists()
    second.add({"b": 2})
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)


def test_links_are_by_definition_and_records_are_told_in_order(tmp_path: Path) -> None:
    book = Book(tmp_path)
    records: list[ChainRecord] = [{"a": 1}, {"b": "é"}, {"a": 1}]
    links = by_definition(*records)
    assert book.chain.head == EMPTY
    with book.chain.transaction() as appending:
        assert [appending.append(record) for record in records[:2]] == [1, 2]
        assert appending.head == Head(2, links[1])
        assert (book.chain.head, book.told) == (EMPTY, []), "nothing is told before it is committed"
    book.add(records[2])
    assert book.told == list(enumerate(records, 1))
    assert (book.chain.head, book.chain.origin) == (Head(3, links[2]), links[0])
    assert next_link(bytes.fromhex(links[1]), canonical(records[2])).hex() == links[2]
    assert list(book.chain.records()) == [(number, canonical(record)) for number, record in enumerate(records, 1)]
    assert [book.chain.record(number) for number in (1, 2, 3)] == records
    book.chain.close()
    again = Book(tmp_path)
    assert (again.told, again.chain.head) == (book.told, Head(3, links[2]))
    again.chain.close()


def test_what_another_process_appends_as_a_chain_is_opened_is_no_old_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, read = Book(tmp_path), HeadFile.read
    book.add({"a": 1})

    def append_and_read(file: HeadFile) -> Head | None:
        book.add({"a": 2})
        return read(file)

    monkeypatch.setattr(HeadFile, "read", append_and_read)
    with closing(Book(tmp_path).chain) as chain:
        assert chain.head.count == 2
    book.chain.close()


def test_a_chain_holds_its_own_heads_and_no_others(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"a": 1}, {"a": 2})
    links = by_definition({"a": 1}, {"a": 2})
    assert all(map(book.chain.holds, (EMPTY, Head(1, links[0]), Head(2, links[1]))))
    others = (
        Head(0, links[0]),
        Head(1, links[1]),
        Head(2, links[0]),
        Head(3, links[1]),
        Head(-1, links[1]),
        Head(3, ""),
    )
    assert not any(map(book.chain.holds, others))
    assert not book.chain.holds(Head(-1, links[0])), "counts are not taken from the end"
    book.chain.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    book = Book(tmp_path)
    with pytest.raises(TypeError):
        book.add({"a": 1}, {"a": object()}, body=b"x")
    assert (book.chain.head, book.told) == (EMPTY, [])
    book.add({"a": 2})
    assert book.told == [(1, {"a": 2})]
    book.chain.close()


def test_attachments_are_compared_with_their_digests(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"a": 1}, body=b"one", other=b"")
    book.add({"a": 2})
    whole = {
        "a": 1,
        "attached": {"body": hashlib.sha256(b"one").hexdigest(), "other": hashlib.sha256(b"").hexdigest()},
    }
    assert whole["attached"] == attachment_digests({"body": b"one", "other": b""})
    assert book.told == [(1, whole), (2, {"a": 2})]
    assert (book.chain.attachment(1, "body"), book.chain.attachment(1, "other")) == (b"one", b"")
    assert book.chain.read(1, "body") == (whole, b"one")
    with pytest.raises(LedgerError, match="changed at entry 1"):
        book.chain.attachment(1, "no such")
    change(tmp_path, "UPDATE attachments SET value = x'00' WHERE name = 'body'")
    with pytest.raises(LedgerError, match=f"the {NAME} was changed at entry 1"):
        book.chain.attachment(1, "body")
    assert book.chain.attachment(1, "other") == b""
    change(tmp_path, "UPDATE attachments SET name = 'more' WHERE name = 'other'")
    with pytest.raises(LedgerError, match="changed at entry 1"):
        book.chain.attachment(1, "more")
    change(tmp_path, "UPDATE attachments SET number = 2")
    with pytest.raises(LedgerError, match="changed at entry 2"):
        book.chain.attachment(2, "more")  # whose record names no attachment at all
    book.chain.close()


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_a_chain_without_that_record_has_no_attachments_of_it(tmp_path: Path, number: int) -> None:
    book = Book(tmp_path)
    with pytest.raises(LedgerError, match=f"changed at entry {number}"):
        book.chain.read(number, "body")
    book.add({"a": 1}, body=b"one")
    if number != 1:
        with pytest.raises(LedgerError, match=f"changed at entry {number}"):
            book.chain.read(number, "body")
    book.chain.close()


def test_what_is_erased_is_gone_and_its_digest_stays(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"a": 1}, seed=b"secret", sum=b"5")
    book.add({"a": 2}, seed=b"secret")
    with book.chain.transaction() as appending:
        appending.erase(1, "seed")
    with pytest.raises(LedgerError, match="changed at entry 1"):
        book.chain.attachment(1, "seed")
    assert (book.chain.attachment(1, "sum"), book.chain.attachment(2, "seed")) == (b"5", b"secret")
    assert book.chain.record(1)["attached"]["seed"] == hashlib.sha256(b"secret").hexdigest()
    book.chain.close()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET record = x'7b7d' WHERE number = ?",
        "UPDATE entries SET link = zeroblob(32) WHERE number = ?",
        "UPDATE entries SET number = 9 WHERE number = ?",
    ],
)
def test_a_changed_record_is_noticed_while_the_chain_is_open_and_after(
    tmp_path: Path, number: int, statement: str
) -> None:
    book = Book(tmp_path)
    book.add({"a": 1}, {"a": 2}, {"a": 3})
    change(tmp_path, statement, number)
    with pytest.raises(LedgerError, match=f"the {NAME} was changed at entry {number}"):
        book.chain.record(number)
    with pytest.raises(LedgerError):
        list(book.chain.records())
    if number == 3:
        with pytest.raises(LedgerError, match="older than the one last written"):
            book.add({"a": 4})
    book.chain.close()
    with pytest.raises(LedgerError):
        Book(tmp_path)


@pytest.mark.parametrize(("column", "kind"), [("record", "TEXT"), ("record", "INTEGER"), ("link", "INTEGER")])
def test_a_value_whose_type_was_changed_is_noticed(tmp_path: Path, column: str, kind: str) -> None:
    """As a bit that flips in the file may do, which no constraint of a table holds off."""
    book = Book(tmp_path)
    book.add({"a": 1}, {"a": 2}, body=b"one")
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')")
    for table, what in (("attachments", "value"), ("entries", column)):
        change(tmp_path, f"UPDATE {table} SET {what} = CAST({what} AS {kind}) WHERE number = 2")  # noqa: S608
    with pytest.raises(LedgerError, match="changed at entry 2"):
        book.chain.record(2)
    with pytest.raises(LedgerError, match="changed at entry 2"):
        book.chain.attachment(2, "body")
    with pytest.raises(LedgerError, match="older than the one last written"):
        book.add({"a": 3})
    book.chain.close()
    with pytest.raises(LedgerError, match="changed at entry 2"):
        Book(tmp_path)


def test_a_record_of_another_chain_is_noticed(tmp_path: Path) -> None:
    """Its own link fits; the link before it does not."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        book = Book(tmp_path / name)
        book.add({"of": name}, {"a": 2})
        book.chain.close()
    with closing(sqlite3.connect(tmp_path / "two" / "log.db")) as connection:
        record, link = connection.execute("SELECT record, link FROM entries WHERE number = 2").fetchone()
    with closing(sqlite3.connect(tmp_path / "one" / "log.db")) as connection, connection:
        connection.execute("UPDATE entries SET record = ?, link = ? WHERE number = 2", (record, link))
    with pytest.raises(LedgerError, match="changed at entry 2"):
        Book(tmp_path / "one")


def test_two_processes_tell_each_other(tmp_path: Path) -> None:
    one, two = Book(tmp_path), Book(tmp_path)
    one.add({"by": 1})
    with two.chain.transaction() as appending:
        assert two.told == [(1, {"by": 1})], "told before more is appended"
        appending.append({"by": 2})
    one.add({"by": 3}, {"by": 4})
    two.add()
    assert one.told == two.told == list(enumerate(({"by": 1}, {"by": 2}, {"by": 3}, {"by": 4}), 1))
    assert one.chain.head == two.chain.head
    for book in (one, two):
        book.chain.close()


@pytest.mark.parametrize("loss", ["DELETE FROM entries WHERE number = 2", "DELETE FROM entries"])
def test_a_chain_that_is_set_back_while_it_is_open_is_refused(tmp_path: Path, loss: str) -> None:
    book = Book(tmp_path)
    book.add({"a": 1}, {"a": 2})
    change(tmp_path, loss)
    with pytest.raises(LedgerError, match=f"the {NAME} on disk is older"):
        book.add({"a": 2})
    book.chain.close()
    with pytest.raises(LedgerError, match=f"the {NAME} on disk is older"):
        Book(tmp_path)


def test_the_head_file_follows_each_commit(tmp_path: Path) -> None:
    book = Book(tmp_path)
    assert (tmp_path / "log.head").read_bytes() == b"%020d %064d\n" % (0, 0)
    book.add({"a": 1})
    head = (tmp_path / "log.head").read_bytes()
    assert head == b"%020d %s\n" % (1, by_definition({"a": 1})[0].encode())
    book.add()
    assert (tmp_path / "log.head").read_bytes() == head
    book.chain.close()
    (tmp_path / "log.head").write_bytes(b"")
    with pytest.raises(LedgerError, match=f"the {NAME}'s head file is missing"):
        Book(tmp_path)
    (tmp_path / "log.head").write_bytes(b"%020d %064d\n" % (0, 0))
    Book(tmp_path).chain.close()
    assert (tmp_path / "log.head").read_bytes() == head, "what lagged behind is written again"


def test_what_is_forbidden_stays_so_after_a_restart(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"a": 1})
    book.chain.forbid(Head(5, "ab" * 32))
    for _ in range(2):
        with pytest.raises(LedgerError, match="older than the one last written"):
            book.add({"a": 2})
    book.chain.close()
    with pytest.raises(LedgerError, match="older than the one last written"):
        Book(tmp_path)


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    Book(tmp_path).chain.close()
    with pytest.raises(VersionError, match="is not a ledger"):
        Chain(tmp_path / "log", chain_schema("ledger", KIND + 1), lambda *_: None)
    change(tmp_path, "PRAGMA user_version = 2")
    with pytest.raises(VersionError, match=f"is a {NAME} of version 2; this Parley reads 1 to 1. Nothing in it was"):
        Book(tmp_path)


@pytest.mark.parametrize("use", [lambda book: book.add({"a": 1}), lambda book: book.chain.probe(0)])
def test_a_chain_that_is_closed_is_unavailable(tmp_path: Path, use: Callable[[Book], None]) -> None:
    book = Book(tmp_path)
    book.chain.probe(0)
    book.chain.close()
    with pytest.raises(UnavailableError):
        use(book)
    with pytest.raises(OSError, match="descriptor"):
        book.chain._file.sync()


def test_a_file_that_is_damaged_is_no_file_to_try_again_later(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"a": 1})
    book.chain.close()
    (tmp_path / "log.db").write_bytes(b"no database " * 1000)
    with pytest.raises(LedgerError, match=f"the {NAME}'s database is damaged"):
        Book(tmp_path)


def test_what_a_chain_refuses_when_it_opens_leaves_no_file_open(tmp_path: Path) -> None:
    Book(tmp_path).chain.close()
    (tmp_path / "log.head").write_bytes(b"damaged")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(LedgerError, match="head file is damaged"):
            Book(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_records_are_canonical_json(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.add({"b": 1, "a": [1, 2]})
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        ((record,),) = connection.execute("SELECT record FROM entries").fetchall()
    assert (record, json.loads(record)) == (b'{"a":[1,2],"b":1}', {"a": [1, 2], "b": 1})
    book.chain.close()
