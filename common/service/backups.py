"""What the commands ``backup`` and ``restore`` of all services share: where a backup goes, and where it comes from."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.errors import InvalidInputError
from parley.common.service.commands import Printer, deferred

with deferred():
    from parley.common.storage import backups

if TYPE_CHECKING:
    from parley.common.storage.backups import Backup, StateFolder

BackupTarget = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder to make; - writes one tar stream to standard output.")
]
BackupSource = Annotated[
    str,
    typer.Argument(metavar="BACKUP", help="A folder or a tar that backup wrote; - reads a tar from standard input."),
]
_STREAM = "-"


def back_up(state: StateFolder, target: str, out: Printer) -> None:
    """Write a backup of a state, and say where it is. Raises as `write_folder` and `write_stream` do."""
    advice = "keep it as private as the service's own files"
    if target != _STREAM:
        backups.write_folder(state, Path(target))
        out.done(f"{target}: {advice}", directory=target)
        return
    if sys.stdout.isatty():
        raise InvalidInputError("a backup is no text for a terminal: write it into a file, or name a folder")
    backups.write_stream(state, sys.stdout.buffer)
    out.aside(f"a backup of the {state.service} {state.name}: {advice}")


def read_backup(state: StateFolder, source: str) -> AbstractContextManager[Backup]:
    """Check a backup, whose files are in a scratch folder of the state meanwhile; see `backups.checked_backup`."""
    place = sys.stdin.buffer if source == _STREAM else Path(source)
    return backups.checked_backup(state.service, state.name, place, state.path)
