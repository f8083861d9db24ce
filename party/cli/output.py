"""What the commands of party and key holder share: how they print, and how they end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from common.errors import InvalidInputError, ParleyError

UNUSABLE = 2  # exit status


class OutputFormat(StrEnum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


Config = Annotated[
    Path, typer.Option("--config", "-c", help="The settings file; PARLEY_PARTY_* variables override it.")
]
DEFAULT_CONFIG = Path("party.toml")
Output = Annotated[OutputFormat, typer.Option("--format", help="Text for people, or JSON for programs.")]
LogFormat = Annotated[OutputFormat | None, typer.Option("--format", help="The log's format, instead of log_format.")]

LearnerOption = Annotated[
    str | None, typer.Option(help="The learner whose run it is, where two have one of that name.")
]
ReceiptFiles = Annotated[
    list[Path] | None,
    typer.Option("--receipt", help="A file of this service's receipts, one a line, as learners show them; repeat."),
]


@contextmanager
def refusing() -> Iterator[None]:
    """Turn an error into one line on standard error and exit status 2."""
    from common.service import logs  # noqa: PLC0415 -- help comes faster without

    logs.configure("text", logging.WARNING)
    try:
        yield
    except ParleyError as error:
        typer.echo(f"parley-party: {error.detail}", err=True)
        raise typer.Exit(UNUSABLE) from None


def read_text(path: Path) -> str:
    """A text file; raises InvalidInputError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(f"{path} cannot be read as text") from None


def spelt(value: object) -> str:
    """A value for people."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_json(value: object) -> None:
    """A value for programs."""
    typer.echo(json.dumps(value, indent=2))


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Rows in columns as wide as their widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip())
