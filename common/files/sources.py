"""Where an owner's examples are, as settings and options say it: files, a table of a database, or a query.

A query runs over named tables and sees nothing else (`parley.common.files.query`). The connection string of a
PostgreSQL database is in the environment or in a file, never in the settings, and so never in a log, an error or the
ledger.

Owners may also state how their CSV files are written: in the settings as ``data.csv``, in commands as
``--csv "separator=; decimal=,"``. What they do not state is detected (`parley.common.files.csv_files`).
"""

from __future__ import annotations

import codecs
import os
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from parley.common.data.cells import said_values
from parley.common.errors import InvalidInputError
from parley.common.strict import Setting, faults

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""The separators of cells by name; another may be said as the character itself."""
_MORE_SEPARATORS = {*string.punctuation, *map(chr, range(1, 32))} - {*"\"'\\+-._\r\n"}
_ESCAPED = re.compile(r"\\x[01][0-9a-f]")
_THOUSANDS = {"space": " ", "point": ".", "comma": ",", "apostrophe": "'"}
_DECIMALS = {"point": ".", "comma": ","}
_CODECS = re.compile(
    r"ascii|utf-(8|8-sig|16(-[lb]e)?)|cp\d+|iso8859-\d+|mac-\w+|koi8-\w|gb\w+|big5\w*|shift_jis\w*|euc_\w+"
)
_OPTION = re.compile(r"\s*(\w+)=(\S*)(?:\s+|$)")


def _encoding(text: object) -> object:
    """Return an encoding's name in Python; raises ValueError for one that is not of texts."""
    if text is None or not isinstance(text, str):
        return text
    try:
        name = codecs.lookup(text).name
    except (LookupError, ValueError):
        name = ""
    if not _CODECS.fullmatch(name):
        raise ValueError("no encoding of this name: say utf-8, utf-16, windows-1252, latin-1 or the like")
    return name


def _sign(names: dict[str, str]) -> BeforeValidator:
    """Return a validator that replaces a sign by its name."""
    by_sign = {sign: name for name, sign in names.items()} | {"\\t": "tab", "’": "apostrophe"}
    return BeforeValidator(lambda text: by_sign.get(text, text) if isinstance(text, str) else text)


def _separator(text: str) -> str:
    """Return a separator's name, or the character itself; raises ValueError for one that cannot separate cells."""
    if _ESCAPED.fullmatch(text):
        text = bytes.fromhex(text[2:]).decode()
    if text not in SEPARATORS and text not in _MORE_SEPARATORS:
        names = ", ".join(SEPARATORS)
        raise ValueError(
            f"say {names}, or the character itself, such as ^ or \\x1f: one of ASCII that is no letter, digit, "
            "blank or quote, and in no number"
        )
    return text


class CsvFormat(Setting):
    """How CSV files are written. A field that is left out is detected in each file.

    >>> CsvFormat(separator=";", encoding="cp1252")
    CsvFormat(separator='semicolon', decimal=None, thousands=None, encoding='cp1252', missing=(), skip=None, end=None)
    """

    separator: Annotated[
        Annotated[str, AfterValidator(_separator)] | None,
        _sign(SEPARATORS),
        Field(description="what separates cells: comma, semicolon, tab or pipe, or the character itself"),
    ] = None
    decimal: Annotated[
        Literal["point", "comma"] | None,
        _sign(_DECIMALS),
        Field(description="the decimal sign of numbers: point or comma, or the character itself"),
    ] = None
    thousands: Annotated[
        Literal["point", "comma", "space", "apostrophe", "none"] | None,
        _sign(_THOUSANDS),
        Field(
            description="the sign between thousands: point, comma, space, apostrophe, or none, which refuses any; if "
            "unset, what the decimal sign leaves"
        ),
    ] = None
    encoding: Annotated[
        str | None,
        BeforeValidator(_encoding),
        Field(description="the encoding of the text, such as utf-8, utf-16, windows-1252 or latin-1"),
    ] = None
    missing: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(
            description="more texts that stand for a missing value, beside the usual ones such as NA, null, ? and -; "
            "a value that the study declares stays one"
        ),
    ] = ()
    skip: Annotated[int | None, Field(ge=0, le=1000, description="how many lines stand above the line of names")] = None
    end: Annotated[
        int | None,
        Field(ge=0, le=1000, description="how many lines stand below the last row, such as totals; 0 says none does"),
    ] = None

    @model_validator(mode="after")
    def _distinct(self) -> CsvFormat:
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError("decimal and thousands must be different signs")
        return self

    def options(self) -> str:
        """Return the stated fields as the option ``--csv`` takes them.

        >>> CsvFormat(separator="tab", missing=("-99", "x")).options()
        'separator=tab missing=-99,x'
        """
        stated = self.model_dump(exclude_defaults=True)
        if self.separator is not None and not self.separator.isprintable():
            stated["separator"] = f"\\x{ord(self.separator):02x}"
        return " ".join(f"{key}={','.join(value) if key == 'missing' else value}" for key, value in stated.items())


def parse_csv_format(text: str | None) -> CsvFormat:
    """Parse the option ``--csv``: ``key=value``, separated by blanks; raises InvalidInputError.

    >>> parse_csv_format("separator=; decimal=, missing=?,-99 skip=2").missing
    ('?', '-99')
    """
    stated: dict[str, object] = {}
    unread = text or ""
    while unread.strip():
        match = _OPTION.match(unread)
        if match is None or match[1] not in CsvFormat.model_fields or match[1] in stated:
            keys = ", ".join(f"{name}=" for name in CsvFormat.model_fields)
            raise InvalidInputError(
                f'--csv: say {keys} each at most once, with blanks between, such as "separator=; decimal=,"'
            )
        key, value = match.groups()
        stated[key] = tuple(filter(None, value.split(","))) if key == "missing" else value
        unread = unread[match.end() :]
    try:
        return CsvFormat.model_validate(stated)
    except ValidationError as error:
        raise InvalidInputError(f"--csv: {faults(error)}") from None


_QUERY = re.compile(r"\s*(select|with|from)\s", re.IGNORECASE)
_TABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_CONNECTION_STRING = re.compile(r"postgres(ql)?://|\bpassword\s*=|^\s*(host|user|dbname)\s*=", re.IGNORECASE)


class PostgresTable(Setting):
    """A table or view in PostgreSQL, read in a read-only transaction."""

    postgres: Annotated[
        str,
        Field(
            pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$",
            description="where the connection string is: env: and a variable, or file: and a path",
        ),
    ]
    table: Annotated[str, Field(min_length=1, description="its name, such as labs or clinic.labs")]

    @property
    def secret_file(self) -> Path | None:
        """The file with the connection string; None if it is in the environment."""
        kind, _, where = self.postgres.partition(":")
        return Path(where) if kind == "file" else None


TableAt: TypeAlias = PostgresTable | str
"""A table in PostgreSQL; ``file.sqlite::table`` or ``file.xlsx::sheet``; or a path or pattern of files."""


class Spill(Setting):
    """Where a query that sorts or joins much may put rows for as long as it runs."""

    folder: Annotated[
        Path,
        Field(
            description="a folder on an encrypted disk, shut to others: the rows are written there as they are, and "
            "removed when the query has ended"
        ),
    ]
    above_mb: Annotated[
        int | None,
        Field(
            ge=32,
            description="how much a query may hold in memory before it spills, in MB; if unset, 96, or 2 for each "
            "column of its tables if that is more, as a sort of that many needs",
        ),
    ] = None


class DataSource(Setting):
    """Where the examples are."""

    source: Annotated[
        str,
        Field(
            min_length=1,
            description="a file with the study's columns: CSV (.csv, .tsv, .txt, packed or not), Parquet (.parquet), "
            "Arrow (.feather), JSON (.json, .jsonl), a workbook (.xlsx) or LIBSVM (.svm, .libsvm); a pattern of such "
            "(folder/*.parquet), read in the order of their names; a table of SQLite (file.sqlite::table) or a sheet "
            "(file.xlsx::sheet); or a query, SELECT ..., over what tables names",
        ),
    ]
    tables: Annotated[
        dict[Annotated[str, Field(pattern=_TABLE_NAME)], TableAt],
        Field(
            description='the tables of a query by name: visits = "visits.csv", labs = "lab.sqlite::labs", wards = '
            '{postgres = "env:WARD_DSN", table = "wards"}'
        ),
    ] = {}  # noqa: RUF012 -- pydantic copies it

    spill: Annotated[
        Spill | None,
        Field(description="where a query may put rows that it sorts or joins; if unset, all of them stay in memory"),
    ] = None
    csv: Annotated[
        CsvFormat | None,
        Field(description="how the CSV files are written, where that is to be said; what is not said is detected"),
    ] = None

    values: Annotated[
        dict[str, dict[str, str]],
        Field(
            description='what values of a column mean in the study\'s words: smoker = {True = "yes", False = "no"}; '
            'age = {"-999" = ""} says that -999 is a missing value'
        ),
    ] = {}  # noqa: RUF012 -- pydantic copies it

    @model_validator(mode="before")
    @classmethod
    def _refuse_older_names(cls, values: object) -> object:
        if isinstance(values, dict) and "path" in values:
            raise ValueError("path is called source now: write the same value as source")
        return values

    @property
    def is_query(self) -> bool:
        """Whether the source is a query: only a query has tables."""
        return bool(self.tables) or _QUERY.match(self.source) is not None

    @property
    def paths(self) -> tuple[Path, ...]:
        """What reading needs to see, each once: files, the folder where a pattern begins, files of connection strings.

        >>> [str(path) for path in DataSource(source="/data/*.parquet").paths]
        ['/data']
        """
        places = list(self.tables.values()) if self.is_query else [self.source]
        files = [_file_of(at) if isinstance(at, str) else at.secret_file for at in places]
        return tuple(dict.fromkeys(path for path in files if path is not None))

    def within(self, folder: Path) -> Self:
        """Return the same source for a process in another folder: paths begin at ``folder``; a query stays."""
        if self.is_query:
            return self.model_copy(update={"tables": {name: _within(folder, at) for name, at in self.tables.items()}})
        return self.model_copy(update={"source": str(folder / self.source)})

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({name.lower() for name in self.tables}) < len(self.tables):
            raise ValueError("tables: two have one name, but for capitals")
        return self


def parse_source(
    data: str, tables: Sequence[str] = (), csv: str | None = None, values: Sequence[str] = ()
) -> DataSource:
    """Parse the options ``--data``, each ``--table NAME=WHERE``, ``--csv`` and each ``--value``.

    Raises InvalidInputError for options that name no source. Its text holds the name of a table at most, so that a
    connection string that somebody typed does not reach a log.

    >>> parse_source("SELECT * FROM labs", ["labs=env:LAB_DSN::clinic.labs"]).tables
    {'labs': PostgresTable(postgres='env:LAB_DSN', table='clinic.labs')}
    """
    if not data:
        raise InvalidInputError("--data: name your table")
    named: dict[str, TableAt] = {}
    csv_format, meanings = parse_csv_format(csv) if csv else None, said_values(tuple(values))
    for text in tables:
        name, equals, location = text.partition("=")
        if not equals or not re.fullmatch(_TABLE_NAME, name):
            raise InvalidInputError(
                "--table: say NAME=WHERE, with a name of letters, digits and _ that begins with no digit"
            )
        if name.lower() in map(str.lower, named):
            raise InvalidInputError(f"--table {name}: it is named twice; capitals make no other name")
        named[name] = _table_at(name, location)
    if _QUERY.match(data):
        return DataSource(source=data, tables=named, csv=csv_format, values=meanings)
    if named:
        raise InvalidInputError(
            "--table: only a query has tables: --data must begin with SELECT, WITH or FROM, and a space"
        )
    _refuse_connection_string("--data", data)
    return DataSource(source=_home(data), csv=csv_format, values=meanings)


def _table_at(name: str, location: str) -> TableAt:
    """Return the table that the option ``--table`` names; raises InvalidInputError."""
    if not location:
        raise InvalidInputError(f"--table {name}: say where it is")
    _refuse_connection_string(f"--table {name}", location)
    if not location.startswith(("env:", "file:")):
        return _home(location)
    secret, _, table = location.rpartition("::")
    try:
        return PostgresTable(postgres=secret, table=table)
    except ValidationError:
        raise InvalidInputError(
            f"--table {name}: a table in PostgreSQL is env:VARIABLE::TABLE or file:PATH::TABLE"
        ) from None


def _refuse_connection_string(option: str, text: str) -> None:
    """Raise InvalidInputError, which quotes nothing, for a text that looks like a connection string."""
    if _CONNECTION_STRING.search(text):
        raise InvalidInputError(
            f"{option}: others see what is typed: put the connection string into the environment or a file, and say "
            "--table NAME=env:VARIABLE::TABLE or NAME=file:PATH::TABLE"
        )


def _file_of(location: str) -> Path:
    """Return the file of a table in a file, or the folder where a pattern begins.

    >>> str(_file_of("/data/lab.sqlite::labs")), str(_file_of("/data/p?/*.csv"))
    ('/data/lab.sqlite', '/data')
    """
    path = Path(location.partition("::")[0])
    return next(part for part in (path, *path.parents) if not set("*?[") & set(str(part)))


def _within(folder: Path, at: TableAt) -> TableAt:
    """Return a table whose paths begin at a folder."""
    if isinstance(at, str):
        return str(folder / at)
    kind, _, secret_path = at.postgres.partition(":")
    return at if kind == "env" else PostgresTable(postgres=f"file:{folder / _home(secret_path)}", table=at.table)


def _home(path: str) -> str:
    """Expand ``~`` at the start of a path, which shells leave as it is after an equals sign."""
    return os.path.expanduser(path)  # noqa: PTH111 -- Path's raises where there is no home


def split_inner_table(text: str) -> tuple[Path, str] | None:
    """Split ``file.sqlite::table`` or ``file.xlsx::sheet`` into file and table; None for any other text.

    >>> split_inner_table("lab.sqlite::labs")
    (PosixPath('lab.sqlite'), 'labs')
    """
    path, separator, table = text.rpartition("::")
    return (Path(path), table) if separator and path and table else None
