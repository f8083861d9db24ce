"""What a file says of its size, before any of it is decoded; what it says wrong is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from parley.common.errors import InvalidDataError
from parley.common.files.tables import TableSize, size_of


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a,b,c\n1,2,3\n4,5,6\n", TableSize(2, 4)),
        (b"a,b,c\n1,2,3\n4,5,6", TableSize(2, 4)),
        (b"a,b\r1,2\r3,4\r", TableSize(2, 4)),
        (b"a,b\r\n1,2\r\n", TableSize(1, 2)),
        (b'a,b\n1,"x\ny"\n', TableSize(2, 4)),  # at most
        (b"a,b\n" + b"1,2\n" * 2**19, TableSize(2**19, 2**20)),
    ],
)
@pytest.mark.long
def test_counts_lines_of_a_csv(content: bytes, expected: TableSize, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    assert size_of(tmp_path / "rows.csv", {"a", "b", "z"}) == expected


def test_counts_cells_of_wanted_columns_and_items_of_lists(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"a": np.zeros(1000), "b": ["x"] * 1000, "lists": [[1.0, 2.0, 3.0]] * 999 + [None]})
    write_table(table, path, row_group_size=300, compression="zstd")
    assert size_of(path, {"a"}) == TableSize(1000, 1000)
    assert size_of(path, {"a", "lists"}) == TableSize(1000, 1000 + 3 * 999 + 1)


def test_refuses_a_file_whose_counts_contradict_each_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_table(pa.table({"a": np.zeros(1000)}), path)
    content = path.read_bytes()
    many, few = (bytes([0x16, (2 * n) & 0x7F | 0x80, 2 * n >> 7]) for n in (1000, 900))  # a field of 64 bits
    assert content.count(many) > 1
    path.write_bytes(content.replace(many, few, 1))
    with pytest.raises(InvalidDataError, match="no Parquet file, or a part of one"):
        size_of(path, {"a"})
