"""Documents that others hand over, small as bytes, or deep: one clear error, no matter what they are taken for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley.common.errors import InvalidInputError, LedgerError, TooLargeError
from parley.common.files.studies import read_study
from parley.common.runs.model_document import FORMAT, read_document
from parley.common.service.http.bodies import strict_json
from parley.common.storage.handed_files import read_handed
from parley.common.wire.membership import Invitation
from parley.learner.models.model_files import read_model_file
from parley.party.ledger.audit import lines_of, verify

pytestmark = pytest.mark.long

BOMBS = {
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "lists in lists": b'{"signature":[' + (b"[" * 14 + b"]" * 14 + b",") * 60_000 + b"[]]}",
    "many lists": b"[" + b"[]," * 2**20 + b"[]]",
    "a long number": b'{"weights": ' + b"9" * 100_000 + b"}",
    "deep and signed": b'{"signature": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "many names": b'{"signature": {' + b",".join(b'"%d":0' % i for i in range(400_000)) + b"}}",
    "many names within": b'{"invitation": {'
    + b",".join(b'"%d":0' % i for i in range(120_000))
    + b"}, "
    + b'"signature": "00"}',
    "many objects": b"[" + b'{"a":0},' * 300_000 + b"0]",
    "no text": b"\0" * 10_000,
    "a long line": b'{"weights": [\n' + b"0," * 2**23 + b"0\n]}",
}
READERS: dict[str, Callable[[Path], object]] = {
    "a study": read_study,
    "a model": lambda path: read_document(read_model_file(path)),
    "an invitation": lambda path: Invitation.opened(read_handed(path), datetime.now(UTC)),
    "an audit": lambda path: verify(lines_of(path), "ab" * 32),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("reader", READERS)
def test_a_document_that_is_a_bomb_is_refused(name: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(BOMBS[name])
    with pytest.raises((InvalidInputError, LedgerError)) as refused:
        READERS[reader](path)
    assert len(refused.value.detail) < 1000


def test_a_document_of_many_objects_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(BOMBS["many objects"])
    for reader in ("a study", "an invitation"):
        tracemalloc.start()
        with pytest.raises(InvalidInputError):
            READERS[reader](path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**27, reader


def test_no_more_is_read_than_such_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    with path.open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(InvalidInputError, match=r"study.json cannot be read: it may have at most 8,388,608 bytes"):
        read_study(path)
    with pytest.raises(InvalidInputError, match="bytes in a line"):
        read_model_file(path)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"[" + (b"[" * 14 + b"]" * 14 + b",") * 60_000 + b"[]]", "393216 arrays and objects"),
        (b"[" + b"[]," * 2**20 + b"[]]", "1048576 values"),
    ],
)
def test_a_body_of_many_objects_is_refused_before_it_is_parsed(body: bytes, word: str) -> None:
    with pytest.raises(TooLargeError, match=word):
        strict_json(body)


@pytest.mark.parametrize("body", [b"9" * 4000, b"-" + b"1" * 321, b"[" + b"9" * 400 + b"]"])
def test_a_whole_number_has_no_more_digits_than_a_real_one(body: bytes) -> None:
    with pytest.raises(ValueError, match="not strict JSON"):
        strict_json(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights", ["x"] * 1_000_000),
        ("contributors", [0] * 1_000_000),
        ("guarantees", [{}] * 390_000),
        ("chosen", {str(i): 0 for i in range(100_000)}),
    ],
)
def test_of_a_million_faults_few_are_told(field: str, value: object) -> None:
    document = {"format": FORMAT, "kind": "linear", "weights": [0.1]} | {field: value}
    tracemalloc.start()
    with pytest.raises(InvalidInputError) as refused:
        read_document(document)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(refused.value.detail) < 5000
    assert peak < 2**24
