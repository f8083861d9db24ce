"""CSV files of the same columns as one table: imported only while files are read, because pyarrow is large.

A CSV file tells no types. A column that a study tells apart by spelling is of texts, as they stand in the file; another
is of numbers where all of its cells are such or missing, in all files, and of texts where not, or where a number begins
with a 0 as codes do. Each file tells itself how it is written, and with which signs its numbers are
(`parley.common.files.number_signs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute

from parley.common.data.cells import MISSING_TEXTS
from parley.common.encoding.spelling import spelling
from parley.common.files.column_names import columns_meant, same_columns, same_wanted
from parley.common.files.csv_files import CsvFile
from parley.common.files.csv_format import CsvFormat
from parley.common.files.number_signs import NumberSigns, SignEvidence, casts, decide, first_sign, said_sign
from parley.common.files.streams import TableStream, gathered
from parley.common.files.tables import check_names, reading, unreadable

TextColumns = Mapping[str, Collection[str]]
"""Columns that hold texts, and the values that a study declares of each: these are never missing ones."""

_LOOKED_AT = 2**10
"""Rows whose cells are looked at together: of more, what the system's allocator keeps grows."""
_CODE = r"^\s*[-+]?0[0-9xX]"
"""How codes begin that are no numbers; pyarrow would read one with an x, by the base of 16."""
_NUMBERS = (pa.int64(), pa.float64())
_DECIMALS = ("point", "comma")


class CsvTable:
    """Files of the same columns, in their order; ``where`` is what to call them in errors.

    Of columns that are ``wanted``, if any are, alone: others are in whichever file.

    Raises InvalidDataError as `CsvFile`, and for a file that has other columns than the first, by its name and theirs.
    """

    def __init__(
        self, where: str, paths: Sequence[Path], said: CsvFormat | None = None, wanted: Collection[str] = ()
    ) -> None:
        self.where, self.said = where, said or CsvFormat()
        self.files: list[CsvFile] = []
        self._repeated: list[set[str]] = []
        for path in paths:
            with reading(path):
                file = CsvFile(path, self.said)
                self._repeated.append({name for name in file.names if name} - file.places.keys())
                self.files.append(file)
        if wanted:
            self._keep(wanted)
        else:
            self._keep_all()

    def _keep(self, wanted: Collection[str]) -> None:
        """Have each file show the columns that are wanted, by the first file's names."""
        self.check_wanted(wanted)
        first = self.files[0].path
        of_first = columns_meant(self.files[0].places, wanted)
        for file in self.files:
            meant = columns_meant(file.places, wanted)
            same_wanted(file.path, meant, first, of_first)
            file.places = {of_first[name]: file.places[column] for name, column in meant.items()}

    def _keep_all(self) -> None:
        """Have each file show its columns by the first file's names."""
        first = self.files[0]
        for file in self.files[1:]:
            if not self._repeated[0]:
                check_names(file.path, [name for name in file.names if name])
            meant = same_columns(file.path, file.places, first.path, first.places)
            file.places = {name: file.places[column] for name, column in meant.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as the first file has them; without those that have none of their own."""
        return tuple(self.files[0].places)

    def check_wanted(self, names: Collection[str]) -> None:
        """Raise InvalidDataError where several columns have one of some names, and more than one of them is filled."""
        for file, repeated in zip(self.files, self._repeated, strict=True):
            if columns_meant(repeated, names):
                check_names(file.path, file.names)

    @property
    def are_as_programs(self) -> bool:
        """Whether commas separate cells in all files, and a point is not said to be anything but decimal."""
        return said_sign(self.said) != "comma" and all(file.separator == "," for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the files are read, where that is not as programs write them; of numbers what has been read so far."""
        told: dict[str, list[str]] = {}
        for file in self.files:
            with reading(file.path):
                told.setdefault(", ".join(file.notes), []).append(file.path.name)
        of_all = len(told) == 1
        return tuple(
            f"{'' if of_all else f'{_some(names)}: '}read as: {words}" for words, names in told.items() if words
        )

    def cells_of(self, file: CsvFile, columns: Mapping[str, Any], missing: Collection[str] = ()) -> Iterator[Any]:
        """The rows of one file as `CsvFile.batches` has them.

        Raises InvalidDataError, and ArrowInvalid for a cell that is not of its type.
        """
        try:
            yield from file.batches(columns, missing)
        except pa.ArrowInvalid:
            raise
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise unreadable(file.path, error) from None

    def try_signs(self, numbers: Collection[str]) -> bool:
        """Give each file the decimal sign that its first rows tell, to try; False where one tells too little."""
        for file in self.files:
            evidence, decimal = SignEvidence(), said_sign(self.said)
            if decimal is None:
                for batch in islice(self.cells_of(file, dict.fromkeys(numbers, pa.string())), 1):
                    for name in numbers:
                        evidence.add(name, batch.column(name))
                decimal = first_sign(evidence, file.separator)
            if decimal is None:
                return False
            file.signs = NumberSigns.of(decimal)
        return True

    def find_signs(self, numbers: Collection[str]) -> None:
        """Have all cells of columns of numbers tell how each file writes them; raises InvalidDataError as `decide`."""
        for file in self.files:
            evidence = SignEvidence()
            for batch in self.cells_of(file, dict.fromkeys(numbers, pa.string())) if numbers else ():
                for name in numbers:
                    evidence.add(name, batch.column(name))
            file.signs = decide(evidence, self.said, file.separator, f"data file {file.path}")

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
        for file in table.files:
            for batch in table.cells_of(file, wanted, missing):
                columns = []
                for field, cells in zip(schema, batch.columns, strict=True):
                    if field.name not in types:
                        made = table.texts(cells, texts.get(field.name, ()))
                    else:
                        made = cells if plain else file.numbers(cells, missing).cast(field.type)
                    columns.append(made)
                yield pa.record_batch(columns, schema=schema)
        stream.notes[:] = table.notes

    stream = TableStream(table.where, schema, read)
    stream.notes[:] = table.notes
    return stream


def _plain_types(table: CsvTable, texts: TextColumns, missing: frozenset[str]) -> dict[str, Any] | None:
    """The types of columns of numbers as programs write them; None where some are written otherwise."""
    if not table.are_as_programs:
        return None
    kinds = {name: list(_NUMBERS) for name in table.columns if name not in texts}
    empty = pa.array(["", *missing])
    all_cells = dict.fromkeys(table.columns, pa.string())
    by_file = (gathered(table.cells_of(file, all_cells), _LOOKED_AT) for file in table.files)
    for batch in chain.from_iterable(by_file):
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
    """The types of columns of numbers by how each file writes them, which all cells of such columns tell."""
    looks = [_look(table, file, texts, missing) for file in table.files]
    numeric = [name for name in table.columns if all(any(kinds.get(name, {}).values()) for kinds, _ in looks)]
    types = {name: list(_NUMBERS) for name in numeric}
    for file, (kinds, evidence) in zip(table.files, looks, strict=True):
        of_numbers = SignEvidence()
        for name in numeric:
            of_numbers.join(evidence[name])
        file.signs = decide(of_numbers, table.said, file.separator, f"data file {file.path}")
        types = {
            name: [kind for kind in each if kind in kinds[name][file.signs.decimal]] for name, each in types.items()
        }
    return {name: possible[0] for name, possible in types.items() if possible}


def _look(
    table: CsvTable, file: CsvFile, texts: TextColumns, missing: frozenset[str]
) -> tuple[dict[str, dict[str, list[Any]]], dict[str, SignEvidence]]:
    """Of each column that may hold numbers in a file: its types by decimal sign, and what its cells tell of signs."""
    candidates = [name for name in table.columns if name not in texts]
    kinds = {name: {decimal: list(_NUMBERS) for decimal in _DECIMALS} for name in candidates}
    evidence = {name: SignEvidence() for name in candidates}
    for batch in gathered(table.cells_of(file, dict.fromkeys(table.columns, pa.string())), _LOOKED_AT):
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
    return kinds, evidence


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


def _some(names: Sequence[str]) -> str:
    """Names of files, the first of them where they are many."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
