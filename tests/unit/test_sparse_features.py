"""Studies of sparse features: how files and records become rows, and what is said of those that do not fit."""

from __future__ import annotations

import gzip
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from parley.common.data.columns import Feature, Label, RealLabel, SparseFeatures
from parley.common.data.records import rows_of
from parley.common.data.sparse import SparseShard
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files.examples import load_examples
from parley.common.files.sparse_examples import libsvm_table
from parley.common.files.studies import read_study
from parley.party.data.owner_data import load_apart
from parley.party.settings import Data

ENTRIES = SparseFeatures(name="entries", columns=5, entries=3, bound=2)
LABEL = Label(name="label", values=("-1", "1"))
PLACES, VALUES = [[1, 3], [2], [], [5, 1]], [[2.0, -1.0], [0.5], [], [1.0, 1.0]]
LABELS = [1, -1, 1, -1]
TEXT = "+1 1:2 3:-1\n-1 2:0.5 # a comment\n\n+1\n-1 5:1 1:1\n"


def study(**terms: Any) -> Study:  # noqa: ANN401 -- all that a study takes
    return Study(**({"name": "s", "features": (ENTRIES,), "label": LABEL} | terms))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    table = {"index": pa.array(PLACES, pa.list_(pa.int32())), "value": pa.array(VALUES, pa.list_(pa.float32()))}
    parquet.write_table(pa.table(table | {"label": LABELS}), tmp_path / "rows.parquet")
    (tmp_path / "rows.svm").write_text(TEXT)
    return {kind: tmp_path / f"rows.{kind}" for kind in ("parquet", "svm")}


@pytest.mark.parametrize("kind", ["parquet", "svm"])
def test_a_file_becomes_rows_divided_by_their_norms(files: dict[str, Path], kind: str) -> None:
    shard = load_examples(files[kind], study()).shard
    assert isinstance(shard, SparseShard)
    raw = np.array([[1, 0, -0.5, 0, 0, 1], [0, 0.25, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0.5, 1]])
    assert np.abs(shard.X - raw / np.linalg.norm(raw, axis=1, keepdims=True)).max() < 2.0**-15
    assert shard.y.tolist() == LABELS
    assert study().row_entries == 4
    assert study().n_features == 6
    assert study().column_names == ()
    assert study().table_names == ("index", "value", "label")


def test_by_the_max_norm_nothing_is_divided_and_by_the_largest_all_are_alike(files: dict[str, Path]) -> None:
    shard = load_examples(files["svm"], study(norm="max")).shard
    assert shard.X[0].tolist() == [1, 0, -0.5, 0, 0, 1]
    shard = load_examples(files["svm"], study(row_norm="largest", intercept=False)).shard
    assert shard.X[0] == pytest.approx(np.array([1, 0, -0.5, 0, 0]) / 3**0.5, abs=2.0**-15)


@pytest.mark.slow
def test_a_child_reads_the_same_rows(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(study(hold_out=0.5).model_dump_json())
    terms = read_study(path)
    here, apart = (
        load_examples(files["svm"], terms).shard,
        load_apart(Data(source=str(files["svm"])), terms).shard,
    )
    assert (here.X == apart.X).all()
    assert (here.y == apart.y).all()
    assert here.y.tolist() == [1, 1, -1, -1]  # rows 1 and 3 are held out, and come last


BAD = "+1 1:2 1:-1\n2 9:0.5\n+1 1:x 2:3 0:1\n-1 1:1 2:1 3:1 4:1\nfoo 2.5:1\n+1 2\n"


def test_every_fault_is_counted_and_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.libsvm").write_text(BAD)
    with pytest.raises(InvalidDataError) as refused:
        load_examples(tmp_path / "bad.libsvm", study())
    words = str(refused.value)
    for each in (
        "unknown label in 2 rows", "place out of range in 2 rows", "no whole number as a place in 1 row",
        "place repeated in 1 row", "too many entries in 1 row", "not numeric in 2 rows", "beyond the bounds in 1 row",
    ):  # fmt: skip
        assert each in words
    assert "foo" not in words
    assert "2.5" not in words


def test_an_entry_of_two_colons_is_not_taken_for_two(tmp_path: Path) -> None:
    for text, rows in (("+1 1:2:3\n-1 5\n", "2 rows"), ("+1 1:2:3 4\n", "1 row")):
        (tmp_path / "odd.svm").write_text(text)
        with pytest.raises(InvalidDataError, match=f"not numeric in {rows}"):
            load_examples(tmp_path / "odd.svm", study())


@pytest.mark.parametrize("label", [LABEL, RealLabel(name="label", lower=-1, upper=1)])
def test_a_row_that_begins_with_an_entry_misses_its_label(label: Label | RealLabel, tmp_path: Path) -> None:
    (tmp_path / "none.svm").write_text("1:2 3:1\n+1 1:1\n")
    with pytest.raises(InvalidDataError, match="column 'label': label missing in 1 row"):
        load_examples(tmp_path / "none.svm", study(label=label))
    loaded = load_examples(tmp_path / "none.svm", study(label=label, missing="drop"))
    assert loaded.missing == {"label": 1}


def test_what_is_beyond_the_bound_is_clipped_where_its_owner_says_so(tmp_path: Path) -> None:
    (tmp_path / "far.svm").write_text("+1 1:20 2:-1\n")
    loaded = load_examples(tmp_path / "far.svm", study(norm="max"), clip=True)
    assert loaded.shard.X[0].tolist() == [1, -0.5, 0, 0, 0, 1]
    assert loaded.clipped_share == 0.5
    assert loaded.clipped == {"entries": 0.5}, "of two entries, in one row"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"index": [[1], None], "value": [[1.0], [1.0]]}, "missing in 1 row"),
        ({"index": [[1, 2], [1]], "value": [[1.0], [1.0]]}, "places and values unequal in number in 1 row"),
        ({"index": [[1], [2]], "value": [[1.0], [None]]}, "not numeric in 1 row"),
        ({"index": [1, 2], "value": [[1.0], [1.0]]}, "column 'index' must hold lists of numbers"),
        ({"index": [["a"], ["b"]], "value": [[1.0], [1.0]]}, "column 'index' must hold lists of numbers"),
        ({"index": [[True], [True]], "value": [[1.0], [1.0]]}, "column 'index' must hold lists of numbers"),
        ({"value": [[1.0], [1.0]]}, "column 'index': absent"),
    ],
)
def test_faulty_lists_are_reported(columns: dict[str, Any], words: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table(columns | {"label": [1, -1]}), tmp_path / "rows.parquet")
    with pytest.raises(InvalidDataError, match=words):
        load_examples(tmp_path / "rows.parquet", study())


@pytest.mark.parametrize("cells", [["1"], [True], [[1]], "1", 1, None])
def test_what_a_party_takes_for_no_list_of_numbers_is_none_of_a_record(cells: object) -> None:
    for wrong in ({"index": cells, "value": [1.0]}, {"index": [1], "value": cells}):
        with pytest.raises(InvalidInputError, match="record 0: 'index' and 'value' must be lists of numbers"):
            rows_of(study(), [wrong])


def test_decimals_are_numbers_and_infinity_is_beyond_the_bounds(tmp_path: Path) -> None:
    (tmp_path / "far.svm").write_text("+1 1:inf 2:-inf 3:1\n")
    with pytest.raises(InvalidDataError, match="beyond the bounds in 1 row"):
        load_examples(tmp_path / "far.svm", study(norm="max"))
    shard = load_examples(tmp_path / "far.svm", study(norm="max"), clip=True).shard
    record = {"index": [1, 2, 3], "value": [math.inf, -math.inf, Decimal(1)]}
    assert rows_of(study(norm="max"), [record]).toarray().tolist() == shard.X.tolist() == [[1, -1, 0.5, 0, 0, 1]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(TEXT.encode(), mtime=0), "cannot be read: it is packed: unpack it"),
        (TEXT.encode("utf-16-le"), "cannot be read: it is not UTF-8: save it as such"),
    ],
)
def test_a_file_that_is_no_text_is_reported_in_a_sentence(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_bytes(content)
    for read in (load_examples, libsvm_table):
        with pytest.raises(InvalidDataError, match=words):
            read(path, study())


def test_a_file_with_a_mark_of_utf16_is_read(tmp_path: Path) -> None:
    for name, encoding in (("plain.svm", "utf-8"), ("marked.svm", "utf-16")):
        (tmp_path / name).write_bytes(TEXT.encode(encoding))
    plain, marked = (load_examples(tmp_path / name, study()).shard for name in ("plain.svm", "marked.svm"))
    assert np.array_equal(plain.X, marked.X)
    assert np.array_equal(plain.y, marked.y)


def test_a_missing_list_may_be_dropped(tmp_path: Path) -> None:
    columns = {"index": [[1], None], "value": [[1.0], [1.0]], "label": [1, -1]}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    loaded = load_examples(tmp_path / "rows.parquet", study(missing="drop"))
    assert loaded.dropped_share == 0.5
    assert not loaded.shard.X[1].any()


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("index,value,label\n")
    for kind, way in (("csv", "sparse$"), ("svm.gz", "sparse: unpack it$")):
        with pytest.raises(InvalidDataError, match=rf"\.parquet, \.svm or \.libsvm, as the features are {way}"):
            load_examples(tmp_path / f"rows.{kind}", study())
    with pytest.raises(InvalidDataError, match="missing"):
        load_examples(tmp_path / "none.svm", study())


def test_records_are_rows_and_faulty_ones_are_named() -> None:
    rows = rows_of(study(norm="max"), [{"index": [1, 3], "value": [2, -1]}, {"index": [], "value": []}])
    assert rows.toarray().tolist() == [[1, 0, -0.5, 0, 0, 1], [0, 0, 0, 0, 0, 1]]
    good = {"index": [1], "value": [1]}
    for record, words in (
        ({}, "must be lists"),
        ({"index": [1], "value": []}, "not as many places as values"),
        ({"index": [6], "value": [1]}, "none of the 5 columns"),
        ({"index": [0], "value": [1]}, "none of the 5 columns"),
        ({"index": [1, 1], "value": [1, 1]}, "a place twice"),
        ({"index": [1, 2, 3, 4], "value": [1, 1, 1, 1]}, "more entries than the 3"),
        ({"index": [1], "value": [None]}, "not a number"),
        ({"index": [1], "value": ["a"]}, "must be lists"),
    ):
        with pytest.raises(InvalidInputError, match=f"record 1: .*{words}"):
            rows_of(study(), [good, record])


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"features": (ENTRIES, Feature(name="a", lower=0, upper=1))}, "stand alone"),
        ({"missing": "value"}, "no fill"),
        ({"random_features": {"n": 4, "gamma": 1.0, "seed": 1}}, "take no projection"),
        ({"features": ({"name": "e", "columns": 2**24, "entries": 3},)}, "columns"),
        ({"features": ({"name": "e", "columns": 5, "entries": 0},)}, "entries"),
        ({"features": ({"name": "e", "columns": 5, "entries": 3, "bound": 0},)}, "bound"),
    ],
)
def test_studies_that_make_no_sense_are_refused(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        study(**terms)


def test_real_labels_and_millions_of_columns_are_fine() -> None:
    wide = SparseFeatures(name="urls", columns=3_231_961, entries=256)
    terms = study(features=(wide,), label=RealLabel(name="y", lower=0, upper=1))
    assert terms.n_features == 3_231_962
    assert len(terms.model_dump_json()) < 1000
