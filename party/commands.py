"""What the commands of party and key holder share: options, printing, settings, and the check of their health."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.commands import Format, Printer, deferred, refusal_is_no

with deferred():
    from parley.common.client import outbound
    from parley.common.service import health, logs
    from parley.common.service import settings as service_settings

if TYPE_CHECKING:
    from parley.common.client.endpoints import LearnerAddress
    from parley.common.service.settings import ServiceSettings, Settings

Config = Annotated[
    Path, typer.Option("--config", "-c", help="The settings file; PARLEY_PARTY_* variables override it.")
]
DEFAULT_CONFIG = Path("party.toml")
LogFormat = Annotated[Format | None, typer.Option("--format", help="The log's format, instead of log_format.")]

LedgerRun = Annotated[str, typer.Argument(help="The run's identifier, which pending and log show.")]
LearnerOption = Annotated[
    str | None, typer.Option(help="The learner whose run it is, where two have one of that name.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Every setting there is: type, default, meaning. Reads no file.")
]
ReceiptFiles = Annotated[
    list[Path] | None,
    typer.Option("--receipt", help="A file of this service's receipts, one a line, as learners show them; repeat."),
]


@contextmanager
def quietly() -> Iterator[None]:
    """Log only warnings and errors while a command works."""
    logs.configure("text", logging.WARNING)
    yield


def warn_unreachable(addresses: Sequence[LearnerAddress]) -> None:
    """Print each learner that the service could not connect to, and why: an expired certificate, a lost token."""
    for address in addresses:
        try:
            outbound.read_access(address)
        except (InvalidInputError, UnavailableError) as error:
            typer.echo(f"parley-party: {address.name} cannot be reached: {error.detail}", err=True)


def config_words(config: Path) -> str:
    """Return the ``--config`` option that the next command has to repeat; empty for the default file."""
    return "" if config == DEFAULT_CONFIG else f" --config {quote(str(config))}"


def read_text(path: Path, read: Callable[[Path], str] = lambda path: decode_text(path.read_bytes())) -> str:
    """Read a text file by ``read``, which may bound its length. Raises InvalidInputError."""
    try:
        return read(path)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} cannot be read as text") from None


def as_text(value: object) -> str:
    """Format a value for people."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns as wide as their widest entry.

    On a terminal that is too narrow, the second of two columns is folded; with more columns each row becomes a table
    of two, whose names are those of the first row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = shutil.get_terminal_size((sys.maxsize, 0)).columns  # without a terminal there is room for all
    if sum(widths) + 2 * len(widths) - 2 <= room:
        for row in rows:
            typer.echo("  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip())
    elif len(widths) == len(("name", "value")):
        for name, entry in rows:
            lines = textwrap.wrap(entry, max(room - widths[0] - 2, 20)) or [""]
            typer.echo(f"\n{' ' * (widths[0] + 2)}".join([f"{name.ljust(widths[0])}  {lines[0]}".rstrip(), *lines[1:]]))
    else:
        names, *others = rows
        for row in others:
            print_table([*zip(names, row, strict=True)])
            typer.echo("")


def end_by_readiness(kind: type[ServiceSettings], config: Path, out: Printer) -> None:
    """Ask the service that runs with a settings file whether it is ready; end the command with its answer."""
    settings = kind.load(config)
    with refusal_is_no():
        health.ask_ready(settings)
    out.done("ready", ready=True)


def show_settings(cls: type[Settings], path: Path, *, explain: bool, out: Printer) -> None:
    """Print all settings with their meaning, or those that a file sets."""
    with quietly():
        if explain:
            settings = list(service_settings.explain_settings(cls))
            out.result(
                [asdict(setting) for setting in settings],
                [f"{setting.head}\n    {setting.meaning}" for setting in settings],
            )
            return
        effective = list(service_settings.settings_in_effect(cls.load(path)))
        out.result([asdict(setting) for setting in effective], [setting.line for setting in effective])
