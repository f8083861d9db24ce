"""The signs of numbers in a table: what its cells prove, and where they prove too little."""

from __future__ import annotations

import pyarrow as pa
import pytest

from parley.common.errors import InvalidDataError
from parley.common.files.number_signs import (
    NumberSigns,
    SignEvidence,
    can_cast,
    decide_signs,
    likely_decimal,
    stated_decimal,
)
from parley.common.files.sources import CsvFormat


def evidence(**columns: list[str]) -> SignEvidence:
    """What the cells of some columns prove."""
    all_cells = SignEvidence()
    for name, cells in columns.items():
        all_cells.add(name, pa.array(cells))
    return all_cells


def test_a_point_is_doubtful_unless_commas_separate_the_cells() -> None:
    doubtful = evidence(dose=["1.234", "5.678"])
    assert decide_signs(doubtful, CsvFormat(), ",", "t.csv") == NumberSigns.of("point")
    with pytest.raises(InvalidDataError, match=r"t.csv: in column 'dose' a point may be the decimal sign of numbers"):
        decide_signs(doubtful, CsvFormat(), ";", "t.csv")


def test_what_one_column_proves_holds_for_all() -> None:
    proved = evidence(dose=["1.234"], age=["41,5"])
    assert decide_signs(proved, CsvFormat(), ";", "t.csv") == NumberSigns.of("comma")
    both = evidence(dose=["0.5"], age=["41,5"])
    with pytest.raises(InvalidDataError, match="a decimal point in column 'dose', and a decimal comma in column 'age'"):
        decide_signs(both, CsvFormat(), ";", "t.csv")


def test_what_the_owner_states_needs_no_proof() -> None:
    doubtful = evidence(dose=["1.234"])
    assert decide_signs(doubtful, CsvFormat(decimal="comma"), ";", "t.csv") == NumberSigns.of("comma")
    assert decide_signs(doubtful, CsvFormat(thousands="point"), ";", "t.csv") == NumberSigns("comma", ("point",))
    none = CsvFormat(decimal="point", thousands="none")
    assert decide_signs(doubtful, none, ";", "t.csv") == NumberSigns("point", ())


def test_numbers_without_signs_are_as_programs_write_them() -> None:
    assert decide_signs(evidence(age=["41", "7"]), CsvFormat(), ";", "t.csv") == NumberSigns.of("point")


@pytest.mark.parametrize(
    ("cell", "proved", "possible"),
    [
        ("1.5", "point", ""),
        ("1,5", "comma", ""),
        ("1.23", "point", ""),
        ("1.2345", "point", ""),
        ("1.", "point", ""),
        ("1.234", "", "point"),
        ("1,234", "", "comma"),
        (".5", "point", ""),
        (",234", "comma", ""),
        ("0.234", "point", ""),
        ("0123.456", "point", ""),
        ("1234.567", "point", ""),
        ("123.456", "", "point"),
        ("1.234e5", "point", ""),
        ("1,234.5", "point", ""),
        ("1.234,5", "comma", ""),
        ("1 234.5", "point", ""),
        ("1'234,5", "comma", ""),
        ("1’234.567", "point", ""),
        ("1\u00a0234,567", "comma", ""),
        ("1,234,567", "point", ""),
        ("1.234.567", "comma", ""),
        ("1,234.", "", ""),
        ("-1.5", "point", ""),
        ("+1,5", "comma", ""),
        (" 1.5 ", "point", ""),
        ("1.5e-3", "point", ""),
        ("1.5.5", "", ""),
        ("x1.5", "", ""),
        ("1.5x", "", ""),
        ("12", "", ""),
        ("1234.56,7", "", ""),
        ("-1.234", "", "point"),
        (" +1,234 ", "", "comma"),
        ("1.234x", "", ""),
        ("1e5", "", ""),
    ],
)
def test_a_cell_proves_a_sign_allows_it_or_tells_nothing(cell: str, proved: str, possible: str) -> None:
    for cells in ([cell], ["x", cell, None, "7"]):
        found = evidence(dose=cells)  # type: ignore[arg-type]
        assert found == SignEvidence({proved: "dose"} if proved else {}, {possible: "dose"} if possible else {})


def test_the_first_column_with_a_sign_is_kept() -> None:
    found = evidence(a=["x"], b=["1.5", "1.234"], c=["2.5", "1,234"], d=["3,5", "2,345"], e=["4,5"], f=["1.234"])
    assert found == SignEvidence({"point": "b", "comma": "d"}, {"point": "b", "comma": "c"})
    late = evidence(a=["1.5"], b=["1.234"], c=["1,5", "1.234"])
    assert late == SignEvidence({"point": "a", "comma": "c"}, {"point": "c"})
    late = evidence(a=["1,5"], b=["1,234"], c=["1,234", "1.5"])
    assert late == SignEvidence({"comma": "a", "point": "c"}, {"comma": "c"})


def test_joined_evidence_keeps_the_earlier_columns() -> None:
    found = evidence(a=["1.5", "1,234"])
    found.join(evidence(b=["2.5", "2,5", "1.234"], c=["1,234"]))
    assert found == SignEvidence({"point": "a", "comma": "b"}, {"comma": "a", "point": "b"})
    assert list(found.proved) == ["point", "comma"]


_NONE = "no number with these signs"


@pytest.mark.parametrize(
    ("signs", "cells", "spelt", "seen"),
    [
        (NumberSigns(), ["1.5", " 2 ", "", "NA", None, "x"], ["1.5", "2", None, None, None, "x"], ()),
        (
            NumberSigns(),
            ["1,234.5", "-1,234,567", "+1,5", "1,23,456"],
            ["1234.5", "-1234567", _NONE, _NONE],
            ("comma",),
        ),
        (
            NumberSigns(),
            ["1 234", "1'234.5e-3", "7", "x y"],
            ["1234", "1234.5e-3", "7", _NONE],
            ("apostrophe", "space"),
        ),
        (
            NumberSigns(),
            ["1’234", "1\u202f234", "1\u2009234", "12,345 678"],
            ["1234", "1234", "1234", _NONE],
            ("apostrophe", "space"),
        ),
        (
            NumberSigns.of("comma"),
            ["1,5", "1.234,5", ",5", "1.5", "2"],
            ["1.5", "1234.5", ".5", _NONE, "2"],
            ("point",),
        ),
        (NumberSigns.of("comma"), ["1.234.567,", "1 234,5"], ["1234567.", "1234.5"], ("point", "space")),
        (NumberSigns("comma", ()), ["1,5", "1.234", "1 234"], ["1.5", _NONE, _NONE], ()),
        (NumberSigns("point", ()), ["1.5", "1,234", "1e3"], ["1.5", _NONE, "1e3"], ()),
        (NumberSigns("point", ("space",)), ["1 234.5", "1,234"], ["1234.5", _NONE], ("space",)),
        (NumberSigns(), ["x,y"], [_NONE], ()),
    ],
)
def test_numbers_are_spelt_as_programs_do(
    signs: NumberSigns, cells: list[str | None], spelt: list[str | None], seen: tuple[str, ...]
) -> None:
    for kind in (pa.string(), pa.large_string()):
        noted: set[str] = set()
        assert signs.cleaned(pa.array(cells, kind), seen=noted).to_pylist() == spelt
        assert noted == set(seen)
    assert signs.cleaned(pa.array(cells)).to_pylist() == spelt
    assert signs.cleaned(pa.array(["-9", " -9 ", "NA"]), ["-9"]).to_pylist() == [None, None, "NA"]


def test_signs_are_those_stated_or_suggested() -> None:
    assert NumberSigns.of("point") == NumberSigns() == NumberSigns("point", ("comma", "space", "apostrophe"))
    assert NumberSigns.of("comma") == NumberSigns("comma", ("point", "space", "apostrophe"))
    assert (NumberSigns.of("point").decimal_point, NumberSigns.of("comma").decimal_point) == (".", ",")
    assert stated_decimal(CsvFormat()) is None
    assert stated_decimal(CsvFormat(decimal="comma")) == "comma"
    assert stated_decimal(CsvFormat(thousands="comma")) == "point"
    assert stated_decimal(CsvFormat(thousands="space")) is None
    assert stated_decimal(CsvFormat(decimal="point", thousands="space")) == "point"


@pytest.mark.parametrize(
    ("cells", "separator", "likely"),
    [
        (["1.5"], ";", "point"),
        (["1,5"], ",", "comma"),
        (["1.5", "1,5"], ";", None),
        (["1.5", "1,5"], ",", None),
        (["1"], ",", "point"),
        (["1"], ";", None),
        (["1,234"], ",", None),
        (["1.234"], ",", "point"),
        (["1.234"], ";", None),
    ],
)
def test_a_sign_is_tried_first_where_some_cells_suggest_it(
    cells: list[str], separator: str, likely: str | None
) -> None:
    assert likely_decimal(evidence(dose=cells), separator) == likely


NOTHING_TELLS = "or stand between thousands, and no column tells"
REMEDY = 'say which by --csv "decimal=comma" or "decimal=point", or data.csv in the settings'


def test_what_cells_do_not_prove_is_refused_with_the_remedy() -> None:
    long = "d" * 300
    for columns, separator, words in (
        (
            {"dose": ["1.5"], "age": ["1,5"]},
            ",",
            f"numbers have a decimal point in column 'dose', and a decimal comma in column 'age': {REMEDY}",
        ),
        (
            {long: ["1,234"]},
            ",",
            f"in column '{'d' * 200}...' a comma may be the decimal sign of numbers, {NOTHING_TELLS}: {REMEDY}",
        ),
    ):
        with pytest.raises(InvalidDataError) as refused:
            decide_signs(evidence(**columns), CsvFormat(), separator, "t.csv")
        assert refused.value.detail == f"t.csv: {words}"
    both = evidence(a=["1.234"], b=["1,234"])
    with pytest.raises(InvalidDataError, match=r"t\.csv: in column 'a' a point may be"):
        decide_signs(both, CsvFormat(), ",", "t.csv")
    assert decide_signs(both, CsvFormat(thousands="comma"), ",", "t.csv") == NumberSigns("point", ("comma",))
    assert decide_signs(evidence(a=["1.5"]), CsvFormat(thousands="space"), ";", "t.csv") == NumberSigns(
        "point", ("space",)
    )


def test_texts_can_be_of_a_type_if_all_are() -> None:
    assert can_cast(pa.array(["1", None]), pa.int64())
    assert not can_cast(pa.array(["1", "1.5"]), pa.int64())
    assert can_cast(pa.array(["1", "1.5"]), pa.float64())
