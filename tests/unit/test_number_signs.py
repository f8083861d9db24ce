"""The signs of numbers in a table: what its cells prove, and where they prove too little."""

from __future__ import annotations

import pyarrow as pa
import pytest

from parley.common.errors import InvalidDataError
from parley.common.files.number_signs import NumberSigns, SignEvidence, decide_signs
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
