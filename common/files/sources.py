"""Where an owner's examples live, as settings say it: files, a table of a database, or a query over named tables.

A query is run by `common.files.query` and sees the named tables and nothing else. What a connection to PostgreSQL takes
is in the environment or in a file: never in the settings, so never in a log, an error or the ledger.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from common.errors import InvalidInputError
from common.strict import Setting

_QUERY = re.compile(r"\s*(select|with|from)\s", re.IGNORECASE)


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


TableAt: TypeAlias = PostgresTable | str
"""A table in PostgreSQL; ``file.sqlite::table``; or a path or pattern of .csv or .parquet files."""


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
            description="CSV (.csv), Parquet (.parquet) or LIBSVM (.svm, .libsvm) file with the study's columns; a "
            "pattern of such (folder/*.parquet), read in the order of their names; a table of SQLite "
            "(file.sqlite::table); or a query, SELECT ..., over what tables names",
        ),
    ]
    tables: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], TableAt],
        Field(
            description='the tables of a query by name: visits = "visits.csv", labs = "lab.sqlite::labs", wards = '
            '{postgres = "env:WARD_DSN", table = "wards"}'
        ),
    ] = {}  # noqa: RUF012 -- pydantic copies it

    spill: Annotated[
        Spill | None,
        Field(description="where a query may put rows that it sorts or joins; if unset, all of them stay in memory"),
    ] = None

    @property
    def is_query(self) -> bool:
        """Whether the source is a query: only such a one has tables."""
        return bool(self.tables) or _QUERY.match(self.source) is not None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({name.lower() for name in self.tables}) < len(self.tables):
            raise ValueError("tables: two have one name, but for capitals")
        return self


def source_named(text: str) -> DataSource:
    """What ``--data`` names; raises InvalidInputError where that is nothing."""
    if not text:
        raise InvalidInputError("--data: name your table")
    return DataSource(source=text)


def sqlite_table(text: str) -> tuple[Path, str] | None:
    """The file and the table of ``file.sqlite::table``; None for anything else.

    >>> sqlite_table("lab.sqlite::labs")
    (PosixPath('lab.sqlite'), 'labs')
    """
    path, found, table = text.rpartition("::")
    return (Path(path), table) if found and path and table else None
