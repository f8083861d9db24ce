"""Tables that are small as bodies and large as tables are refused: before they are decoded, or by a child's bounds."""

from __future__ import annotations

import asyncio
import io
import threading
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table
from starlette.requests import Request

from parley.common.arrays import FloatArray
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, TooLargeError, UnavailableError
from parley.common.files.tables import TableSize
from parley.common.service.problems import of_error
from parley.learner.api import tables, uploads
from parley.learner.api.table_task import TableTask
from tests.support.cluster import Cluster, asgi_cluster

STUDY = Study(
    name="ward",
    features=(Feature(name="age", lower=0, upper=100), Category(name="ward", values=("east", "west"))),
    label=Label(name="ill", values=("no", "yes")),
)
FILE = {"Content-Type": "application/octet-stream"}
HEAD = b"age,ward,ill\n"
LONG = "7" * 120_000_000


def parquet(ages: pa.Array | FloatArray | list[float], wards: pa.Array | list[str], **options: object) -> bytes:
    buffer = io.BytesIO()
    write_table(pa.table({"age": ages, "ward": wards, "ill": ["no"] * len(ages)}), buffer, **options)
    return buffer.getvalue()


def nested(depth: int) -> pa.Array:
    """An array of one number in so many lists."""
    array = pa.array([1.0])
    for _ in range(depth):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    return array


def many_rows() -> bytes:
    wards = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int8), ["east"])
    return parquet(np.zeros(1_000_000), wards, compression="zstd")


def long_cell(codec: str, *, dictionary: bool = True) -> bytes:
    return parquet([1.0], [LONG], compression=codec, use_dictionary=dictionary)


BOMBS = {
    "a million rows": (many_rows, 413, "it has 1,000,000 rows, of 4 numbers"),
    "a list of millions": (
        lambda: parquet(pa.array([[0.0] * 3_000_000]), ["east"], compression="zstd"), 413, "3,000,002 cells"),
    "a long cell, brotli": (lambda: long_cell("brotli"), 413, "takes more than 112 MB or 3 seconds"),
    "a long cell, gzip": (lambda: long_cell("gzip", dictionary=False), 413, "takes more than 112 MB or 3 seconds"),
    "a long cell, zstd": (lambda: long_cell("zstd"), 413, "takes more than 112 MB or 3 seconds"),
    "deep lists": (lambda: parquet(nested(2000), ["east"]), 422, "the body cannot be read"),
    "a length of its footer that lies": (
        lambda: parquet([1.0], ["east"])[:-8] + b"\xff\xff\xff\x7fPAR1", 422, "the body cannot be read"),
    "a CSV of line ends": (lambda: HEAD + b"\n" * 15_000_000, 413, "15,000,000 rows"),
    "a CSV of zeros": (lambda: HEAD + b"0,0,0\n" * 2_500_000, 413, "2,500,000 rows"),
    "a quote that is never closed": (lambda: HEAD + b'"' + b"0,0\n" * 400_000, 422, "the body cannot be read"),
    "a long line": (lambda: b"0," * 7_000_000, 422, "the body"),
    "gzip": (lambda: zlib.compressobj(9, wbits=31).compress(HEAD * 100_000), 422, "the body"),
}  # fmt: skip


SLOW = {"a long cell, brotli", "a long cell, gzip", "a CSV of line ends"}
"""Those that take a second or two to make."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in BOMBS])
async def test_refuses_a_small_body_that_is_a_large_table(name: str, tmp_path: Path) -> None:
    make, status, words = BOMBS[name]
    columns = {"age": np.array([1.0, 2.0]), "ward": np.array(["east", "west"]), "ill": np.array(["no", "yes"])}
    async with asgi_cluster(Cluster(tmp_path, given=(STUDY, [columns]))) as client:
        refused = await client.put("/v1/public?study=ward", content=make(), headers=FILE)
        assert (refused.status_code, words in refused.text) == (status, True), refused.text
        assert (await client.get("/v1/public")).json()["rows"] == []


ROWS = HEAD + b"0,east,no\n100,west,yes\n200,east,no\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three rows, one beyond the bounds."""
    (path := tmp_path / "rows.csv").write_bytes(ROWS)
    return path


def test_a_table_is_read_as_its_task_says(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    monkeypatch.setattr(tables, "allow_seconds", seconds.append)
    d = STUDY.n_features
    rows, labelled, start = (
        tables.read_table(TableTask(path=table, study=STUDY, kind=kind, most=100))
        for kind in ("rows", "labelled", "start")
    )
    assert (rows.shape, labelled.shape, start.shape) == ((3, d), (3, d + 1), (1, d))
    np.testing.assert_array_equal(labelled, np.column_stack([rows, [-1.0, 1.0, -1.0]]))
    assert seconds == [50]
    assert (rows @ start[0] > 0).tolist() == [False, True, False]
    within = table.with_name("within.csv")
    within.write_bytes(ROWS.replace(b"200", b"100"))
    for kind, read in (("rows", rows), ("labelled", labelled), ("start", start)):
        task = TableTask.model_validate({"path": within, "study": STUDY, "kind": kind, "most": 100})
        np.testing.assert_array_equal(tables.read_table(task), read)
    none = table.with_name("none.csv")
    none.write_bytes(HEAD)
    assert tables.read_rows(none, STUDY).shape == (0, d)


def test_a_table_has_as_many_numbers_as_it_may(table: Path) -> None:
    d = STUDY.n_features
    for kind, width in (("rows", d), ("labelled", d + 1)):
        task = TableTask.model_validate({"path": table, "study": STUDY, "kind": kind, "most": 3 * width})
        assert tables.read_table(task).size == 3 * width
        words = f"^the table may have at most {3 * width - 1} numbers: it has 3 rows, of {width} numbers in the study's"
        with pytest.raises(TooLargeError, match=words):
            tables.read_table(task.model_copy(update={"most": 3 * width - 1}))


def test_cells_and_sparse_rows_count_as_what_they_take(table: Path) -> None:
    task, size = TableTask(path=table, study=STUDY, kind="rows", most=10), TableSize(rows=0, cells=10)
    tables._check_size(task, size)
    with pytest.raises(TooLargeError, match="and 11 cells in these"):
        tables._check_size(task, TableSize(rows=0, cells=11))
    sparse = task.model_copy(update={"study": SimpleNamespace(sparse=True, n_features=1000)})
    tables._check_size(sparse, TableSize(rows=10, cells=10))
    with pytest.raises(TooLargeError, match="11 rows, of 1 numbers"):
        tables._check_size(sparse, TableSize(rows=11, cells=10))


def test_rows_of_one_label_teach_nothing(table: Path) -> None:
    table.write_bytes(HEAD + b"0,east,no\n100,west,no\n")
    with pytest.raises(InvalidDataError, match="the rows all have the same label"):
        tables.read_labelled(table, STUDY)


async def test_few_tables_are_read_at_once_and_slow_bodies_keep_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_PATIENCE", 0.01)
    reader, arrives, ends = uploads.Uploads(), asyncio.Event(), threading.Event()

    def read(task: TableTask) -> FloatArray:
        ends.wait(30)
        return np.zeros((1, 1))

    monkeypatch.setattr(uploads, "_read", read)

    async def slowly() -> dict[str, Any]:
        await arrives.wait()
        return {"type": "http.disconnect"}

    async def at_once() -> dict[str, Any]:
        return {"type": "http.request", "body": b"age\n1\n", "more_body": False}

    def reading(receive: Callable[[], Awaitable[dict[str, Any]]]) -> asyncio.Task[FloatArray]:
        headers = [(b"content-type", b"application/octet-stream")]
        request = Request({"type": "http", "method": "PUT", "headers": headers}, receive)
        return asyncio.create_task(reader.read(request, STUDY, "rows"))

    slow = [reading(slowly) for _ in range(3)]
    quick = [reading(at_once) for _ in range(2)]
    while not reader.is_full:  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0.01)
    with pytest.raises(UnavailableError, match="other tables are read at the moment") as refused:
        await reading(at_once)
    assert of_error(refused.value).headers["Retry-After"] == str(refused.value.facts["retry_after"])
    ends.set()
    assert [table.shape for table in await asyncio.gather(*quick)] == [(1, 1)] * 2
    assert (await reading(at_once)).shape == (1, 1), "beside bodies that are still to come"
    arrives.set()
    assert all(isinstance(result, Exception) for result in await asyncio.gather(*slow, return_exceptions=True))
