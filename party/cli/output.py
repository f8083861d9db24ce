"""What the commands of party and key holder share: options, and how they print."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from common.errors import InvalidInputError
from common.service.commands import Format

Config = Annotated[
    Path, typer.Option("--config", "-c", help="The settings file; PARLEY_PARTY_* variables override it.")
]
DEFAULT_CONFIG = Path("party.toml")
LogFormat = Annotated[Format | None, typer.Option("--format", help="The log's format, instead of log_format.")]

LearnerOption = Annotated[
    str | None, typer.Option(help="The learner whose run it is, where two have one of that name.")
]
ReceiptFiles = Annotated[
    list[Path] | None,
    typer.Option("--receipt", help="A file of this service's receipts, one a line, as learners show them; repeat."),
]


@contextmanager
def quietly() -> Iterator[None]:
    """Log no more than warnings, while a command works."""
    from common.service import logs  # noqa: PLC0415 -- help comes faster without

    logs.configure("text", logging.WARNING)
    yield


def config_words(config: Path) -> str:
    """The option that names settings, as the next command has to repeat it."""
    return "" if config == DEFAULT_CONFIG else f" --config {config}"


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


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Rows in columns as wide as their widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip())
