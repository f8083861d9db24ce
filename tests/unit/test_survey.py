"""What a check and a survey of a table say, to the letter: each line, each kind of column and each figure."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.faults import Doubt, UnfitDataError
from parley.common.data.loading import Loaded
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files import study_fit
from parley.common.files.sources import DataSource, parse_source
from parley.common.files.study_fit import StudyFit, SurveyedColumn, fit_of, fit_of_file, fit_of_source, survey_table

FIT = StudyFit("loans", 1234, 10)
REMEDY = 'a study may leave such columns out, or put a "fill" there by "missing": "value"'
RENAMED = "  a column under another name has to be renamed, or read by a query as the source: SELECT other AS name"
MANY = tuple("abcdefghijklmnopqrstu")
DOUBTS = (Doubt("age", "it is odd", "look"), Doubt("pay", "so is it", "see"), Doubt("age", "twice", "look"))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["the data fits loans: 1,234 rows"]),
        ({"n_rows": 1, "minimum_rows": 1}, ["the data fits loans: 1 row"]),
        ({"n_rows": 9}, ["the data does not fit loans: 9 rows, and 10 are needed"]),
        ({"n_rows": 10}, ["the data fits loans: 10 rows"]),
        ({"n_rows": 1200, "minimum_rows": 3000}, ["the data does not fit loans: 1,200 rows, and 3,000 are needed"]),
        (
            {"doubts": DOUBTS[:1]},
            ["the data does not fit loans: 1 column is most likely read wrongly", "  age: it is odd: look"],
        ),
        (
            {"doubts": DOUBTS},
            [
                "the data does not fit loans: 2 columns are most likely read wrongly",
                "  age: it is odd: look",
                "  pay: so is it: see",
                "  age: twice: look",
            ],
        ),
        ({"doubts": DOUBTS[:1], "as_is": True}, ["the data fits loans: 1,234 rows", "  age: it is odd: look"]),
        (
            {"n_rows": None, "faults": {"age": {"absent": 1}}, "extra": ("AGE", "pay")},
            [
                "the data does not fit loans: 1 column does not",
                "  age: absent, but there is 'AGE': its name has to be spelt alike",
                RENAMED,
                "  not in the study, and never read: AGE, pay",
            ],
        ),
        (
            {"n_rows": None, "faults": {"age": {"absent": 1}, "pay": {"absent": 1}}},
            ["the data does not fit loans: 2 columns do not", "  age: absent", "  pay: absent", RENAMED],
        ),
        (
            {"narrow": ("age",)},
            [
                "the data fits loans: 1,234 rows",
                "warning: 1 column fills less than 10% of the bounds, which leaves rows alike: noise is the more",
                "  namely age; take narrower bounds if they are common knowledge",
            ],
        ),
        (
            {"narrow": ("a", "b", "c", "d", "e")},
            [
                "the data fits loans: 1,234 rows",
                "warning: 5 columns fill less than 10% of the bounds, which leaves rows alike: noise is the more",
                "  namely a, b, c, d, e; take narrower bounds if they are common knowledge",
            ],
        ),
        (
            {"narrow": ("a", "b", "c", "d", "e", "f", "g")},
            [
                "the data fits loans: 1,234 rows",
                "warning: 7 columns fill less than 10% of the bounds, which leaves rows alike: noise is the more",
                "  namely a, b, c, d, e and 2 more; take narrower bounds if they are common knowledge",
            ],
        ),
        (
            {"dropped": 0.9, "missing": {"a": 1100, "b": 5, "c": 4, "d": 3, "e": 2, "f": 1}},
            [
                "the data fits loans: 1,234 rows",
                "warning: 1,111 of its 1,234 rows (90.00%) miss a value and would be empty ones, which teach nothing",
                f"  most often missing: a in 1,100, b in 5, c in 4, d in 3, e in 2; {REMEDY}",
            ],
        ),
        (
            {"dropped": 0.5},
            ["the data fits loans: 1,234 rows", "  50.00% of the rows miss a value and are kept as empty ones"],
        ),
        (
            {
                "notes": ("read as: tabs",), "clipped": {"age": 0.125, "pay": 1.0}, "others": {"work": 0.5},
                "identifiers": ("name", "ssn"), "dropped": 0.001, "extra": MANY,
            },
            [
                "the data fits loans: 1,234 rows",
                "  read as: tabs",
                "  age: 12.50% of the values clipped",
                "  pay: 100.00% of the values clipped",
                "  work: 50.00% of the values are none of the study's: other",
                "  0.10% of the rows miss a value and are kept as empty ones",
                f"  not in the study, and never read: {', '.join(MANY[:-1])} ...",
                "  name: looks like an identifier: ask why the study wants it",
                "  ssn: looks like an identifier: ask why the study wants it",
            ],
        ),
        (
            {"extra": MANY[:-1]},
            ["the data fits loans: 1,234 rows", f"  not in the study, and never read: {', '.join(MANY[:-1])}"],
        ),
    ],
)  # fmt: skip
def test_a_report_for_people_has_these_lines(changes: dict[str, Any], lines: list[str]) -> None:
    assert replace(FIT, **changes).lines() == lines


def test_faults_are_told_by_column_and_the_first_file_that_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_fit, "remedies", lambda faults, file: [f"{len(faults)} of {file}"])
    faults: dict[str, Any] = {"age": {"not numeric": 1200, "missing": 1}, "x": {"absent": 1}}
    report = replace(FIT, n_rows=None, faults=faults, file="b.csv")
    assert report.lines()[1:] == ["  age: not numeric: 1,200 rows, missing: 1 row", "  x: absent", "  2 of b.csv"]
    assert report.absent == ("x",)
    many: dict[str, Any] = {f"x{i}": {"missing": i} for i in range(1, 22)}
    assert replace(FIT, faults=many)._faults()[19:] == ["x20: missing: 20 rows", "and 1 columns more"]
    assert replace(FIT, faults=dict(list(many.items())[:20]))._faults()[19:] == ["x20: missing: 20 rows"]
    assert replace(FIT, faults=many | {f"y{i}": {"missing": 1} for i in range(2000)})._faults()[-1] == (
        "and 2,001 columns more"
    )


def test_a_report_for_programs_has_every_fact(tmp_path: Path) -> None:
    del tmp_path
    report = replace(FIT, doubts=DOUBTS[:1], dropped=0.6, faults={"x": {"absent": 1}})
    assert report.to_json() == {
        "fits": False, "study": "loans", "n_rows": 1234, "minimum_rows": 10, "faults": {"x": {"absent": 1}},
        "extra": (), "identifiers": (), "clipped": {}, "dropped": 0.6, "missing": {}, "narrow": (), "others": {},
        "file": "", "notes": (), "doubts": (asdict(DOUBTS[0]),), "as_is": False, "absent": ("x",), "mostly_empty": True,
    }  # fmt: skip


STUDY = Study(
    name="loans",
    features=(
        Feature(name="age", lower=0, upper=100),
        Feature(name="patient", lower=0, upper=2),
        Feature(name="subject", lower=0, upper=1),
        Feature(name="ssn", lower=0, upper=1),
        Category(name="client", values=("a", "b")),
    ),
    label=Label(name="repaid", values=("no", "yes")),
)
NAMES = ("AGE", "", "patient", "subject", "ssn", "client", "repaid", "n" * 300, "more")


def test_a_table_that_can_be_loaded_is_reported_with_all_that_loading_found() -> None:
    shard: Any = SimpleNamespace(n_examples=np.int64(7))
    loaded = Loaded(
        shard,
        {"age": 0.5}, 0.1, 0.2, {"age": 1}, ("ssn",), {"client": 0.25}, ("a note",), DOUBTS,
    )  # fmt: skip
    extra, identifiers = ("n" * 200 + "...", "more"), ("patient", "ssn")
    report = fit_of(STUDY, NAMES, lambda: loaded, 5, as_is=True)
    assert report == StudyFit(
        "loans", 7, 5, {}, extra, identifiers, {"age": 0.5}, 0.2, {"age": 1}, ("ssn",), {"client": 0.25},
        notes=("a note",), doubts=DOUBTS, as_is=True,
    )  # fmt: skip
    assert type(report.n_rows) is int
    report = fit_of(STUDY, NAMES, lambda: replace(loaded, doubts=()))
    assert (report.minimum_rows, report.as_is, report.fits) == (1, False, True)


def test_a_table_that_cannot_be_loaded_is_reported_with_its_faults_in_the_order_of_the_study() -> None:
    error = UnfitDataError.__new__(UnfitDataError)
    error.rows = {"zoo": {"absent": 1}, "repaid": {"missing": 2}, "age": {"missing": 1}}
    error.file, error.notes, error.doubts = "b.csv", ("a note",), DOUBTS

    def fail() -> Loaded:
        raise error

    report = fit_of(STUDY, NAMES, fail, 5, as_is=True)
    assert report == StudyFit(
        "loans", None, 5, {"age": {"missing": 1}, "repaid": {"missing": 2}, "zoo": {"absent": 1}},
        ("n" * 200 + "...", "more"), ("patient", "ssn"), file="b.csv", notes=("a note",), doubts=DOUBTS, as_is=True,
    )  # fmt: skip
    assert list(report.faults) == ["age", "repaid", "zoo"]


SMALL = Study(name="s", features=(Feature(name="x", lower=0, upper=10),), label=Label(name="y", values=("no", "yes")))


def test_a_file_and_a_source_are_checked_alike(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,more\n1,no,a\n12,yes,b\n")
    checks: list[Callable[..., StudyFit]] = [
        partial(fit_of_file, SMALL, path),
        partial(fit_of_source, SMALL, DataSource(source=str(path))),
    ]
    for check in checks:
        clipped = check(clip=True, minimum_rows=2)
        assert (clipped.fits, clipped.n_rows, clipped.clipped, clipped.extra) == (True, 2, {"x": 0.5}, ("more",))
        assert check().faults == {"x": {"beyond the bounds": 1}}
        assert (check().minimum_rows, check(minimum_rows=3, clip=True).fits) == (1, False)
    queried = DataSource(source="SELECT * FROM t", tables={"t": str(path)})
    assert fit_of_source(SMALL, queried, clip=True, minimum_rows=2).fits
    assert fit_of_source(SMALL, queried, clip=True, as_is=True).as_is
    assert not fit_of_source(SMALL, queried).extra


def test_a_table_without_a_line_of_names_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("41,no\n2,yes\n")
    (tmp_path / "named.csv").write_text("a,b\n2,yes\n")
    told = f"data file {tmp_path}/t.csv has no line of names: its first line looks like values"
    for check in (
        lambda: fit_of_file(SMALL, tmp_path / "t.csv"),
        lambda: fit_of_source(SMALL, DataSource(source=f"{tmp_path}/t.csv")),
        lambda: survey_table(DataSource(source=f"{tmp_path}/t.csv")),
    ):
        with pytest.raises(InvalidDataError) as error:
            check()
        assert error.value.detail == told
    assert fit_of_file(SMALL, tmp_path / "named.csv").absent == ("x", "y")


def test_the_columns_of_several_files_are_those_of_the_first_as_it_is_said_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("T;T\nx;y;more\n1;no;2\n")
    (tmp_path / "2.csv").write_text("T;T\nx;y\n1;no\n")
    assert fit_of_source(SMALL, parse_source(f"{tmp_path}/*.csv", csv="skip=1")).extra == ("more",)


# ── surveys ──────────────────────────────────────────────────────────────────


def surveyed(folder: Path, columns: Mapping[str, list[Any]], *, public: bool = True) -> tuple[SurveyedColumn, ...]:
    parquet.write_table(pa.table(dict(columns)), folder / "t.parquet")
    return survey_table(DataSource(source=f"{folder}/t.parquet"), public=public)


def test_a_public_column_is_surveyed_with_its_values_and_figures(tmp_path: Path) -> None:
    assert surveyed(tmp_path, {"n": [1, 2, 2, None, 5], "t": ["b", "a", "b", "", "NA"]}) == (
        SurveyedColumn(
            "n", "number", values=("1", "2", "5"), shares=(0.25, 0.5, 0.25), bounds=(1.0, 5.0), median=2.0, mean=2.5,
            deviation=1.5, blank=0.2,
        ),
        SurveyedColumn("t", "text", values=("a", "b"), shares=(1 / 3, 2 / 3), blank=0.4),
    )  # fmt: skip
    assert surveyed(tmp_path, {"n": [1, 2, 2, None, 5], "t": ["b", "a", "b", "", "NA"]}, public=False) == (
        SurveyedColumn("n", "number"),
        SurveyedColumn("t", "text"),
    )


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], "empty"),
        (["", "NA"], "empty"),
        ([1.5, None], "number"),
        (["1", "2.5"], "number"),
        ([True, False], "number"),
        (["2026-01-02", "2025-12-31"], "date"),
        (["1/2/26", "12 Jan 2026"], "date"),
        (["2026-01-02", "soon"], "text"),
        (["1,5", "2,5"], "figure"),
        (["12 %", "$3"], "figure"),
        (["12 %", "few"], "text"),
        ([*map(str, range(20)), "few", "many", "none"], "mixed"),
        ([*map(str, range(20)), "few", "many", "none", "all"], "text"),
        ([*map(str, range(19)), "few"], "text"),
        ([float("inf"), float("-inf")], "text"),
        ([dt.date(2026, 1, 2)], "date"),
    ],
)
def test_a_column_is_of_the_kind_of_all_its_values(tmp_path: Path, cells: list[Any], kind: str) -> None:
    for public in (True, False):
        (column,) = surveyed(tmp_path, {"x": cells}, public=public)
        assert column.kind == kind


@pytest.mark.parametrize(
    ("column", "warning"),
    [
        (SurveyedColumn("x", "number"), None),
        (SurveyedColumn("x\ny", "date"), "has a name of more than one line of plain text: rename it"),
        (SurveyedColumn("x", "date", named_identifier=True), "looks like an identifier: by its name"),
        (SurveyedColumn("x", "text", all_different=True), "looks like an identifier: its values differ by row"),
        (SurveyedColumn("x", "date"), "is a date: make a number of it, such as an age in years"),
        (SurveyedColumn("x", "empty", constant=True), "is empty"),
        (SurveyedColumn("x", "number", constant=True), "holds one value only"),
    ],
)
def test_why_a_study_should_leave_a_column_out(column: SurveyedColumn, warning: str | None) -> None:
    assert column.warning == warning


@pytest.mark.parametrize(
    ("name", "cells", "named", "different"),
    [
        ("x", [f"a{i}" for i in range(20)], (False, False), (True, True)),
        ("x", [f"a{i}" for i in range(19)], (False, False), (False, False)),
        ("x", [f"a{max(i, 1)}" for i in range(20)], (False, False), (True, False)),
        ("x", [f"a{max(i, 2)}" for i in range(20)], (False, False), (False, False)),
        ("x", [1000 + 17 * i for i in range(20)], (False, False), (True, True)),
        ("x", [3 * i * i for i in range(20)], (False, False), (False, False)),
        ("x", [i + 0.5 for i in range(20)], (False, False), (False, False)),
        ("ssn", [f"a{i}" for i in range(20)], (True, True), (True, True)),
        ("ssn", ["a", "b"] * 10, (False, True), (False, False)),
        ("ssn", ["a", "b"] * 9, (True, True), (False, False)),
        ("ssn", ["a", "b", "c"] * 7, (True, True), (False, False)),
        ("ssn", ["a", "b", "c"] * 20, (False, True), (False, False)),
        ("ssn", [0.5, 1.5] * 10, (False, True), (False, False)),
        ("patient", ["a", "b", "c"] * 20, (True, True), (False, False)),
        ("patient", ["a", "b"] * 20, (False, False), (False, False)),
        ("patient", [0.5, 1.5, 2.5], (False, False), (False, False)),
        ("patient", [1, 2, 3], (True, True), (False, False)),
    ],
)
def test_what_may_identify_people_is_told_by_name_and_by_differing_values(
    tmp_path: Path, name: str, cells: list[Any], named: tuple[bool, bool], different: tuple[bool, bool]
) -> None:
    for place, public in enumerate((True, False)):
        (column,) = surveyed(tmp_path, {name: cells}, public=public)
        assert (column.named_identifier, column.all_different) == (named[place], different[place]), public


def test_of_a_public_column_with_very_many_values_none_is_told(tmp_path: Path) -> None:
    for n, told in ((200, 200), (201, None)):
        (column,) = surveyed(tmp_path, {"x": [f"a{i:03}" for i in range(n)]})
        assert (column.values and len(column.values)) == told
        assert (column.shares and len(column.shares)) == told
        assert column.blank == 0.0


@pytest.mark.parametrize(
    ("n_values", "n_rows", "is_category"),
    [(2, 20, True), (2, 19, False), (3, 20, False), (3, 60, True), (3, 59, False), (100, 2000, True), (100, 9999, True),
     (101, 9999, False)],
)  # fmt: skip
def test_few_values_in_many_rows_identify_nobody(n_values: int, n_rows: int, *, is_category: bool) -> None:
    assert study_fit._is_category(n_values, n_rows) is is_category


@pytest.mark.parametrize(
    ("values", "may_be"),
    [
        (range(1000, 1020), False),  # codes of four digits
        ([999, *range(1001, 1020)], False),
        ([5, *range(0, 100_000, 5000)], True),
        (range(20), False),  # random numbers from so few would repeat
        ([*range(15), 3, 5, 7, 9], True),
        (range(100, 160), False),
        ([100, 999, 500, 340, 120], True),
        ([1000, 9999, 5000, 3400], False),
        ([999, 9999, 5000, 3400], True),
        ([1000, 10_000, 5000, 3400], True),
        ([7] * 5, True),
        ([1, 2, 3, 4], True),
        ([*range(10), 10, 11, 12], False),
    ],
)
def test_whole_numbers_that_rarely_repeat_may_measure_something(values: Any, *, may_be: bool) -> None:  # noqa: ANN401
    assert study_fit._may_be_quantity(np.array(list(values), dtype=np.float64)) is may_be


def test_values_are_sorted_as_numbers_before_texts() -> None:
    assert sorted(["b", "10", "9", "a", "-1", "1e1"], key=study_fit._sort_key) == ["-1", "9", "10", "1e1", "a", "b"]
    assert [study_fit._sort_key(text) for text in ("7", "a")] == [(False, 7.0, "7"), (True, 0.0, "a")]


def test_shares_are_of_rows_that_are_not_empty() -> None:
    codes = np.array([0, 1, -1, 2, 1, 0, 3])
    assert study_fit._shares(["a", "b"], ["a", "b", None, "a", "b"], codes, np.ones(7)) == (0.6, 0.4)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([3, 3], (2, 4)),
        ([0, 1], (0, 1)),
        ([1.234, 9.876], (1.2, 9.9)),
        ([12.34, 98.76], (12, 99)),
        ([123.4, 987.6], (120, 990)),
        ([-0.05, 4.44], (-0.1, 4.5)),
        ([0.05, 44.4], (0, 45)),
        ([1000.01, 1000.07], (1000.01, 1000.07)),
        ([1000.011, 1000.0799], (1000.011, 1000.08)),
        ([0.0123, 0.0987], (0.012, 0.099)),
        ([-5, -1], (-5, -1)),
        ([0, 1e-301], (0, 1e-301)),
        ([-1e308, 1e308], (-1e308, 1e308)),
        ([1, 1 + 2**-52], (1, 1 + 2**-52)),
    ],
)
def test_bounds_are_rounded_outwards_to_two_digits_of_the_range(
    values: list[float], bounds: tuple[float, float]
) -> None:
    lower, upper = study_fit._rounded_bounds(np.array(values, dtype=np.float64))
    assert (lower, upper) == pytest.approx(bounds, rel=1e-12)
    assert lower <= min(values) <= max(values) <= upper
    assert not math.isnan(lower)


def test_a_table_without_rows_is_refused_and_notes_are_shown(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;y\n")
    notes: list[str] = []
    with pytest.raises(InvalidDataError) as error:
        survey_table(DataSource(source=f"{tmp_path}/t.csv"), show_note=notes.append)
    assert error.value.detail == f"data file {tmp_path}/t.csv has no row"
    assert notes == ["read as: semicolons"]
