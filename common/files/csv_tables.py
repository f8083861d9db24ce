"""CSV files of the same columns as one table: imported only while files are read, because pyarrow is large.

A CSV file tells no types. A column that a study tells apart by spelling is of texts, as they stand in the file; another
is of numbers where all of its cells are such or missing, in all files, and of texts where not, or where a number begins
with a 0 as codes do. How numbers are written is one for the table (`common.files.number_signs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute

from common.data.cells import MISSING_TEXTS
from common.encoding.spelling import spelling
from common.errors import InvalidDataError
from common.files.column_names import columns_meant
from common.files.csv_files import CsvFile
from common.files.csv_format import CsvFormat
from common.files.number_signs import AS_PROGRAMS, NumberSigns, SignEvidence, casts, decide
from common.files.streams import TableStream, gathered
from common.files.tables import check_names, reading, unreadable

TextColumns = Mapping[str, Collection[str]]
"""Columns that hold texts, and the values that a study declares of each: these are never missing ones."""

_LOOKED_AT = 2**10
"""Rows whose cells are looked at together: of more, what the system's allocator keeps grows."""
_CODE = r"^\s*[-+]?0[0-9]"
_NUMBERS = (pa.int64(), pa.float64())
_DECIMALS = ("point", "comma")


class CsvTable:
    """Files of the same columns, in their order; ``where`` is what to call them in errors.

    Raises InvalidDataError as `CsvFile`, and for a file that has other columns than the first.
    """

    def __init__(self, where: str, paths: Sequence[Path], said: CsvFormat | None = None) -> None:
        self.where, self.said = where, said or CsvFormat()
        self.files: list[CsvFile] = []
        self.signs = AS_PROGRAMS
        self._thousands: set[str] = set()
        for path in paths:
            with reading(path):
                self.files.append(CsvFile(path, self.said))
                own, first = self.files[-1].places, self.files[0].places
                meant = columns_meant(own, first)
                if len(meant) != len(first) or len(own) != len(first):
                    raise InvalidDataError(f"data file {path} has other columns than {paths[0]}")
                self.files[-1].places = {name: own[column] for name, column in meant.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as the first file has them; without those that have none of their own."""
        return tuple(self.files[0].places)

    def check_wanted(self, names: Collection[str]) -> None:
        """Raise InvalidDataError where several columns have one of some names, and more than one of them is filled."""
        for file in self.files:
            twice = {name for name in file.names if name} - file.places.keys()
            if columns_meant(twice, names):
                check_names(file.path, file.names)

    @property
    def separators(self) -> set[str]:
        """The separators of the files."""
        return {file.separator for file in self.files}

    @property
    def notes(self) -> tuple[str, ...]:
        """How the files are read, where that is not as programs write them; of numbers what has been read so far."""
        signs = [f"decimal {self.signs.decimal}"] if self.signs.decimal != "point" else []
        signs += [f"thousands by {sign}" for sign in sorted(self._thousands)]
        told: dict[str, list[str]] = {}
        for file in self.files:
            with reading(file.path):
                told.setdefault(", ".join([*file.notes, *signs]), []).append(file.path.name)
        of_all = len(told) == 1
        return tuple(f"{'' if of_all else f'{names[0]}: '}read as: {words}" for words, names in told.items() if words)

    def cells(
        self, columns: Mapping[str, Any], decimal_point: str = ".", missing: Collection[str] = ()
    ) -> Iterator[Any]:
        """The rows of all files as `CsvFile.batches` has them, file by file."""
        for file in self.files:
            yield from self.cells_of(file, columns, decimal_point, missing)

    def cells_of(
        self, file: CsvFile, columns: Mapping[str, Any], decimal_point: str = ".", missing: Collection[str] = ()
    ) -> Iterator[Any]:
        """The rows of one file; raises InvalidDataError, and ArrowInvalid for a cell that is not of its type."""
        try:
            yield from file.batches(columns, decimal_point, missing)
        except pa.ArrowInvalid:
            raise
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise unreadable(file.path, error) from None

    def first_sign(self, numbers: Collection[str]) -> str | None:
        """The decimal sign that the first rows of columns of numbers tell, to try; None where they tell too little."""
        if self.said.decimal is not None:
            return self.said.decimal
        evidence = SignEvidence()
        for file in self.files:
            for batch in islice(self.cells_of(file, dict.fromkeys(numbers, pa.string())), 1):
                for name in numbers:
                    evidence.add(name, batch.column(name))
        if len(evidence.proved) == 1:
            return next(iter(evidence.proved))
        return "point" if self.separators == {","} and "comma" not in {*evidence.proved, *evidence.possible} else None

    def find_signs(self, numbers: Collection[str]) -> None:
        """Have all cells of columns of numbers tell how numbers are written; raises InvalidDataError as `decide`."""
        evidence = SignEvidence()
        for batch in self.cells(dict.fromkeys(numbers, pa.string())) if numbers else ():
            for name in numbers:
                evidence.add(name, batch.column(name))
        self.signs = decide(evidence, self.said, self.separators, self.where)

    def numbers(self, cells: Any, missing: Collection[str] | None = None) -> Any:  # noqa: ANN401 -- pyarrow has no types
        """Texts (n,) of a column of numbers as programs spell numbers, null where one is missing."""
        return self.signs.cleaned(cells, self.missing() if missing is None else missing, self._thousands)

    def texts(self, cells: Any, declared: Collection[str]) -> Any:  # noqa: ANN401 -- as above
        """Texts (n,) as they stand, null where its owner says that one is missing and no study declares it."""
        missing = [text for text in self.said.missing if spelling(text) not in {spelling(each) for each in declared}]
        if not missing:
            return cells
        empty = compute.is_in(compute.utf8_trim_whitespace(cells), value_set=pa.array(missing, cells.type))
        return compute.if_else(empty, pa.scalar(None, cells.type), cells)

    def missing(self, texts: TextColumns | None = None) -> frozenset[str]:
        """The texts that stand for a missing number; without those that are declared, if columns may be renamed."""
        declared = {value for values in (texts or {}).values() for value in values}
        return (MISSING_TEXTS | frozenset(self.said.missing)) - declared


def csv_stream(table: CsvTable, texts: TextColumns, *, as_texts: bool = False) -> TableStream:
    """A table as a stream of typed columns; ``texts`` hold no numbers.

    With ``as_texts`` all columns are of texts; numbers that have signs of their own are spelt as programs do.

    Raises InvalidDataError where it cannot be told how numbers are written.
    """
    if as_texts:
        table.check_wanted([name for name in table.files[0].names if name])
    missing = table.missing(texts)
    types = _plain_types(table, texts, missing)
    if types is None:
        types, plain = _signed_types(table, texts, missing), False
    else:
        plain = True
    pa.default_memory_pool().release_unused()
    schema = pa.schema([(name, pa.string() if as_texts else types.get(name, pa.string())) for name in table.columns])

    def read() -> Iterator[Any]:
        direct = plain and not as_texts
        wanted = {field.name: field.type if direct else pa.string() for field in schema}
        for batch in table.cells(wanted, missing=missing):
            columns = []
            for field, cells in zip(schema, batch.columns, strict=True):
                if field.name not in types:
                    made = table.texts(cells, texts.get(field.name, ()))
                else:
                    made = cells if plain else table.numbers(cells, missing).cast(field.type)
                columns.append(made)
            yield pa.record_batch(columns, schema=schema)
        stream.notes[:] = table.notes

    stream = TableStream(table.where, schema, read)
    stream.notes[:] = table.notes
    return stream


def _plain_types(table: CsvTable, texts: TextColumns, missing: frozenset[str]) -> dict[str, Any] | None:
    """The types of columns of numbers as programs write them; None where some are written otherwise."""
    if table.separators != {","} or table.said.decimal == "comma":
        return None
    kinds = {name: list(_NUMBERS) for name in table.columns if name not in texts}
    empty = pa.array(["", *missing])
    for batch in gathered(table.cells(dict.fromkeys(table.columns, pa.string())), _LOOKED_AT):
        for name, possible in kinds.items():
            if not possible:
                continue
            cells = batch.column(name)
            full = cells.filter(compute.not_equal(cells, ""))
            if _has_codes(full):
                kinds[name] = []
                continue
            kinds[name] = [kind for kind in possible if casts(full, kind)]
            if len(kinds[name]) < len(possible):  # some may be missing
                full = full.filter(compute.invert(compute.is_in(full, value_set=empty)))
                kinds[name] = [kind for kind in possible if casts(full, kind)]
            if not kinds[name] and any(_kinds(cells, decimal, list(_NUMBERS), missing) for decimal in _DECIMALS):
                return None
    return {name: possible[0] for name, possible in kinds.items() if possible}


def _signed_types(table: CsvTable, texts: TextColumns, missing: frozenset[str]) -> dict[str, Any]:
    """The types of columns of numbers by how the table writes them, which all cells of such columns tell."""
    candidates = [name for name in table.columns if name not in texts]
    kinds = {name: {decimal: list(_NUMBERS) for decimal in _DECIMALS} for name in candidates}
    evidence = {name: SignEvidence() for name in candidates}
    for batch in gathered(table.cells(dict.fromkeys(table.columns, pa.string())), _LOOKED_AT):
        for name, by_decimal in kinds.items():
            if not any(by_decimal.values()):
                continue
            cells = batch.column(name)
            if _has_codes(cells):
                by_decimal.update({decimal: [] for decimal in _DECIMALS})
                continue
            for decimal, possible in by_decimal.items():
                by_decimal[decimal] = _kinds(cells, decimal, possible, missing) if possible else []
            evidence[name].add(name, cells)
    told = SignEvidence()
    for name, by_decimal in kinds.items():
        if any(by_decimal.values()):
            told.join(evidence[name])
    table.signs = decide(told, table.said, table.separators, table.where)
    types = {name: by_decimal[table.signs.decimal] for name, by_decimal in kinds.items()}
    return {name: possible[0] for name, possible in types.items() if possible}


def _kinds(cells: Any, decimal: str, possible: list[Any], missing: frozenset[str]) -> list[Any]:  # noqa: ANN401 -- as above
    """Of some types of numbers those that texts can be of, with a decimal sign."""
    cleaned = NumberSigns.of(decimal).cleaned(cells, missing)
    return [kind for kind in possible if casts(cleaned, kind)]


def _has_codes(column: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether a number begins with a 0 as codes do; most are none at a glance, which a pattern would take long for."""
    bare = compute.utf8_ltrim(column, " \t\n\f\r+-")
    suspects = compute.and_not(
        compute.starts_with(bare, "0"), compute.or_(compute.starts_with(bare, "0."), compute.starts_with(bare, "0,"))
    )
    return bool(compute.any(compute.match_substring_regex(column.filter(suspects), _CODE)).as_py())
