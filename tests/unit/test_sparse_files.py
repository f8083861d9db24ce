"""Files of sparse features: read as columns by name are, as strictly line by line, and dealt to a simulation."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.datasets import load_svmlight_file

from parley.common.data.auxiliary import with_bounds_of, with_projection_of
from parley.common.data.columns import Feature
from parley.common.data.loading import Loaded, shard_of
from parley.common.data.records import rows_of
from parley.common.data.sparse import SparseShard
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files.examples import load_examples, load_source
from parley.common.files.sources import DataSource
from parley.common.files.study_fit import fit_of_source
from parley.common.strict import faults
from parley.learner.api.requests import PredictionRequest
from parley.learner.experiments.datasets import deal, load_dataset

TERMS: dict[str, Any] = {
    "format": "parley-study-2",
    "name": "urls",
    "features": [{"name": "tokens", "columns": 5, "entries": 3, "bound": 2.0}],
    "label": {"name": "bad", "values": ["-1", "1"]},
}
Row = tuple[Any, list[tuple[Any, Any]]]
Rows = list[Row]
ROWS: Rows = [(1, [(1, 2.0), (4, -1.0)]), (-1, []), (1, [(5, 0.5), (2, 1.0), (3, 0.25)])]


def study(**terms: Any) -> Study:  # noqa: ANN401 -- a study's own
    return Study.model_validate(TERMS | terms)


def tokens(**terms: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- as above
    return [TERMS["features"][0] | terms]


def parquet(folder: Path, rows: Rows, *, label: str = "bad") -> Path:
    path = folder / "rows.parquet"
    lists = [[entry[i] for entry in entries] for i in (0, 1) for _, entries in rows]
    table = {"index": lists[: len(rows)], "value": lists[len(rows) :], label: [label for label, _ in rows]}
    types = {"index": pa.list_(pa.int64()), "value": pa.list_(pa.float64())}
    pq.write_table(pa.table({name: pa.array(column, types.get(name)) for name, column in table.items()}), path)
    return path


def libsvm(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.svm"
    lines = [row if isinstance(row, str) else spelt(*row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def spelt(label: object, entries: list[tuple[Any, Any]]) -> str:
    return " ".join([str(label), *(f"{place}:{value!r}" for place, value in entries)])


def sparse(loaded: Loaded) -> SparseShard:
    assert isinstance(loaded.shard, SparseShard)
    return loaded.shard


def test_bounds_and_projections_are_of_named_columns() -> None:
    for make in (lambda: with_bounds_of(study(), {}, 0.1, "0" * 64), lambda: with_projection_of(study(), {}, 1)):
        with pytest.raises(InvalidInputError, match="features are sparse"):
            make()


COMMON = ("label", "intercept", "row_norm", "norm")
REAL: dict[str, Any] = {"label": {"name": "bad", "lower": -1, "upper": 1}}


@pytest.mark.parametrize("write", [parquet, libsvm])
@pytest.mark.parametrize("terms", [{}, {"intercept": False}, {"row_norm": "largest"}, {"norm": "max"}, REAL])
def test_rows_are_those_of_the_same_columns_by_name(write: Any, terms: dict[str, Any], tmp_path: Path) -> None:  # noqa: ANN401
    whole = study(features=tokens(entries=5), **terms)  # so constants and norms are those of five columns
    names = [f"x{place}" for place in range(1, 6)]
    features = tuple(Feature(name=name, lower=-2, upper=2) for name in names)
    named = Study(**{name: getattr(whole, name) for name in COMMON} | {"name": "named", "features": features})
    dense = np.array([[dict(entries).get(place, 0.0) for place in range(1, 6)] for _, entries in ROWS])
    wanted = shard_of(named, dict(zip(names, dense.T, strict=True)) | {"bad": np.array([1, -1, 1])})
    shard = sparse(load_examples(write(tmp_path, ROWS), whole))
    assert (shard.y == wanted.y).all()
    assert np.abs(shard.X - wanted.X).max() <= 2**-16
    records = [{"index": [p for p, _ in entries], "value": [v for _, v in entries]} for _, entries in ROWS]
    assert (rows_of(whole, records).toarray() == shard.X).all()


@given(
    st.lists(
        st.tuples(
            st.sampled_from([-1, 1]),
            st.lists(st.tuples(st.integers(1, 9), st.floats(-1, 1)), max_size=9, unique_by=lambda entry: entry[0]),
        ),
        min_size=1,
        max_size=9,
    )
)
@pytest.mark.long
def test_libsvm_text_is_read_as_scikit_learn_reads_it(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> None:
    path = libsvm(tmp_path_factory.mktemp("svm"), [(label, sorted(entries)) for label, entries in rows])
    by_max = study(norm="max", intercept=False, features=tokens(columns=9, entries=9, bound=1.0))
    shard = sparse(load_examples(path, by_max))
    X, y = load_svmlight_file(str(path), n_features=9, zero_based=False)
    assert (shard.y == y).all()
    assert (np.trunc(X.toarray() * 2**16) / 2**16 == shard.X).all()


def test_comments_blanks_signs_and_order_do_not_matter(tmp_path: Path) -> None:
    path = libsvm(tmp_path, ["# tokens", "", "+1  4:-1.0\t1:2 # first", "-1.0", "1 5:.5 2:1 3:2.5e-1 "])
    assert (sparse(load_examples(path, study())).X == sparse(load_examples(libsvm(tmp_path, ROWS), study())).X).all()


def test_a_mark_of_the_encoding_is_left_out(tmp_path: Path) -> None:
    shard = sparse(load_examples(libsvm(tmp_path, ["\ufeff1 1:2 4:-1", "-1", "1 2:1 3:.25 5:.5"]), study()))
    assert (shard.X == sparse(load_examples(libsvm(tmp_path, ROWS), study())).X).all()


def test_files_of_a_pattern_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    libsvm(tmp_path, ROWS[1:]).rename(tmp_path / "day2.svm")
    libsvm(tmp_path, ROWS[:1]).rename(tmp_path / "day1.svm")
    data = DataSource(source=f"{tmp_path}/day*.svm")
    together = load_source(data, study()).shard
    alone = load_examples(libsvm(tmp_path, ROWS), study()).shard
    assert (together.X == alone.X).all()
    assert (together.y == alone.y).all()
    (tmp_path / "day3.svm").write_text("1 9:1\n")
    with pytest.raises(InvalidDataError, match=r"place out of range in 1 row; the first file .*day3\.svm; places"):
        load_source(data, study())
    (tmp_path / "day0.svm").write_text("1 1.5:1\n")
    message = fit_of_source(study(), data).lines()
    assert f"  the first file with such rows is {tmp_path}/day0.svm" in message


@pytest.mark.parametrize(
    ("places", "values"),
    [
        (pa.list_(pa.uint8()), pa.list_(pa.decimal128(5, 2))),
        (pa.list_view(pa.int32()), pa.large_list_view(pa.float32())),
        (pa.list_(pa.int64(), 2), pa.list_(pa.float64(), 2)),
    ],
)
def test_lists_of_numbers_may_be_of_any_kind(places: Any, values: Any, tmp_path: Path) -> None:  # noqa: ANN401 -- pyarrow's
    numbers = pa.array([Decimal(each) for each in (2, -1, 1, 1)]).cast(values.value_type).to_pylist()
    lists = {"index": pa.array([[1, 4], [2, 3]], places), "value": pa.array([numbers[:2], numbers[2:]], values)}
    pq.write_table(pa.table(lists | {"bad": pa.array([1, -1])}), tmp_path / "kinds.parquet")
    expected: Rows = [(1, [(1, 2.0), (4, -1.0)]), (-1, [(2, 1.0), (3, 1.0)])]
    one, two = (load_examples(path, study()).shard for path in (tmp_path / "kinds.parquet", libsvm(tmp_path, expected)))
    assert (one.X == two.X).all()


def test_every_fault_of_a_line_is_counted_and_no_value_told(tmp_path: Path) -> None:
    faulty = ["2 1:1", "yes 1:1", "1 0:1", "1 6:1", "1 1.5:1", "1 one:1", "1 1:1 1:2", "1 1:.1 2:.1 3:.1 4:.1",
              "1 1:17", "1 1:nan", "1 1:inf", "1 1:x", "1 1:2:3", "1 2 :1", "1 4", "1 qid:2 1:1"]  # fmt: skip
    with pytest.raises(InvalidDataError) as refused:
        load_examples(
            libsvm(tmp_path, [row if isinstance(row, str) else spelt(row[0], row[1]) for row in faulty]), study()
        )
    words = refused.value.detail
    assert "unknown label in 2 rows" in words
    assert "place out of range in 2 rows" in words
    assert "no whole number as a place in 4 rows" in words
    assert "place repeated in 1 row" in words
    assert "too many entries in 1 row" in words
    assert "not numeric in 5 rows" in words  # nan, x, 2:3, and what has no value at all
    assert "beyond the bounds in 2 rows" in words
    assert not {"17", "yes", "qid", "one"} & set(words.replace(":", " ").split())


def test_entries_of_a_line_are_no_others(tmp_path: Path) -> None:
    """Colons and numbers that add up over lines, and say something else in each."""
    with pytest.raises(InvalidDataError, match="not numeric in 3 rows"):
        load_examples(libsvm(tmp_path, ["1 1:2 3", "1 4 1:2:1", "1 1:2:1 4"]), study())


def test_faults_of_lists_are_counted(tmp_path: Path) -> None:
    table = {
        "index": pa.array([[1, 2], None, [1], [2**60], [None], [2, 2], [-3]], pa.list_(pa.int64())),
        "value": pa.array([[1.0], [1.0], [3.0], [1], [1], [1, 1], [None]], pa.list_(pa.float64())),
        "bad": pa.array([1, 1, -1, None, 1, 1, 1]),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    with pytest.raises(InvalidDataError) as refused:
        load_examples(path, study())
    for words in (
        "places and values unequal in number in 1 row", "column 'tokens': list missing in 1 row",
        "column 'bad': label missing in 1 row", "no whole number as a place in 1 row",
        "beyond the bounds in 1 row", "place out of range in 2 rows", "place repeated in 1 row", "not numeric in 1 row",
    ):  # fmt: skip
        assert words in refused.value.detail
    assert refused.value.detail.count('"missing": "drop"') == 1
    assert '"missing": "value"' not in refused.value.detail, "of lists there is no fill"


def test_a_row_that_misses_a_number_of_its_list_is_kept_as_an_empty_one(tmp_path: Path) -> None:
    """In a file of lists, and in a query's; a text of LIBSVM that is no number stays a fault."""
    table = {
        "index": pa.array([[1, 2], [1, 2], [3], []], pa.list_(pa.int64())),
        "value": pa.array([[1.0, float("nan")], [1.0, -1.0], [None], []], pa.list_(pa.float64())),
        "bad": pa.array([1, -1, 1, -1]),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    source = DataSource(source="SELECT * FROM t", tables={"t": str(path)})
    for loaded in (load_examples(path, study(missing="drop")), load_source(source, study(missing="drop"))):
        assert loaded.dropped_share == 0.5
        assert np.any(sparse(loaded).X, axis=1).tolist() == [False, True, False, True]
    with pytest.raises(InvalidDataError, match="not numeric in 2 rows"):
        load_examples(path, study(missing="refuse"))
    with pytest.raises(InvalidDataError, match="not numeric in 1 row"):
        load_examples(libsvm(tmp_path, ["1 1:x"]), study(missing="drop"))


def test_a_faulty_feature_is_no_empty_list_of_them_besides() -> None:
    with pytest.raises(ValidationError) as refused:
        study(features=tokens(bount=1))
    assert faults(refused.value) == "features.0.sparse.bount: Extra inputs are not permitted"
    with pytest.raises(ValidationError) as refused:
        study(features=[])
    assert faults(refused.value) == "features: Tuple should have at least 1 item after validation, not 0"


def test_absent_columns_and_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="column 'bad': absent"):
        load_examples(parquet(tmp_path, ROWS, label="good"), study())
    for path in (parquet(tmp_path, []), libsvm(tmp_path, ["# nothing"])):
        with pytest.raises(InvalidDataError, match="no row"):
            load_examples(path, study())
    with pytest.raises(InvalidDataError, match="is missing"):
        load_examples(tmp_path / "none.svm", study())


def test_a_simulation_deals_sparse_rows(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(study(norm="max").model_dump_json(), encoding="utf-8")
    dataset = load_dataset(str(libsvm(tmp_path, ROWS * 20)), path)
    train, test = dataset.draw(np.random.default_rng(1))
    assert isinstance(train, SparseShard)
    assert dataset.study is not None
    assert (train.norm, dataset.study.row_entries, train.shape[0] + test.shape[0]) == ("max", 4, 60)
    assert deal(train, (10, 35)).shape == (2, 35, 6)


def test_requests_to_predict_hold_lists() -> None:
    content = json.dumps({"records": [{"index": [1, 4], "value": [2.0, 0.5]}, {"age": 3, "work": None}]})
    assert PredictionRequest.model_validate_json(content).records[0]["index"] == (1, 4)
