"""How a chain begins: once, by its first record; and how a missing one, or a part of one, is told from a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

from parley.common.errors import LedgerError, UnavailableError
from parley.common.storage.chain import Chain, ChainRecord, set_aside
from parley.common.storage.folders import locked
from parley.common.storage.keys import sync_directory, writing
from parley.common.storage.sqlite import Schema


def begin_chain(stem: Path, schema: Schema, first: ChainRecord, *, replaces: bool = False) -> None:
    """Begin a chain with its first record: whatever interrupts it, all of it is there afterwards or nothing has begun.

    One that ``replaces`` what there is puts that aside, once the new one is on the disk. Raises LedgerError where there
    is anything of one already otherwise, UnavailableError where it cannot be written.
    """
    with writing(f"the {schema.name}"):
        stem.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(stem.parent):
            _finish(stem)
            if _present(stem) and not replaces:
                raise LedgerError(f"there is a {schema.name} in {stem.parent} already, or a part of one")
            draft = stem.parent / f".{stem.name}.new"
            shutil.rmtree(draft, ignore_errors=True)
            try:
                _write(draft / stem.name, schema, first)
                draft.rename(_written(stem))
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
            sync_directory(stem.parent)
            _finish(stem)


def check_begun(stem: Path, schema: Schema, *, missing: str, recover: str) -> None:
    """Raise LedgerError where there is no chain, or only a part of one.

    It says what to do about a ``missing`` one, and with which command to ``recover`` what is left.
    """
    if not has_begun(stem):
        raise LedgerError(f"there is no {schema.name} in {stem.parent}: {missing}")
    has = _present(stem)
    if len(has) == 1:
        raise LedgerError(f"of the {schema.name} in {stem.parent} only {has[0]} is left: run {recover}")


def finish_beginning(stem: Path) -> None:
    """Put a chain in its place whose beginning was cut off once it was written, before anybody looks at what is there.

    Raises UnavailableError where it cannot be.
    """
    if _written(stem).exists():
        with writing(stem), locked(stem.parent):
            _finish(stem)


def has_begun(stem: Path) -> bool:
    """Whether there is anything of a chain; raises as `finish_beginning`."""
    finish_beginning(stem)
    return bool(_present(stem))


def _present(stem: Path) -> list[str]:
    """The names of a chain's files in their place."""
    return [path.name for end in (".db", ".head") if (path := stem.with_suffix(end)).exists()]


def _written(stem: Path) -> Path:
    """Where a chain is that is wholly written, and not in its place yet."""
    return stem.parent / f".{stem.name}.written"


def _finish(stem: Path) -> None:
    """Put a chain that is wholly written into its place, however far that had come."""
    written = _written(stem)
    if not written.exists():
        return
    head, database = (written / stem.name).with_suffix(".head"), (written / stem.name).with_suffix(".db")
    if head.exists():
        set_aside(stem)
        head.rename(stem.with_suffix(".head"))
    if database.exists():
        database.rename(stem.with_suffix(".db"))
    sync_directory(stem.parent)
    shutil.rmtree(written)


def _write(stem: Path, schema: Schema, first: ChainRecord) -> None:
    """A chain of one record, in files that hold all of it; raises UnavailableError."""
    chain = Chain(stem, schema, lambda _number, _record: None)
    try:
        with chain.transaction() as appending:
            appending.append(first)
    finally:
        chain.close()
    if stem.with_suffix(".db-wal").exists():  # closing a database moves what it logged into it, or says nothing
        raise UnavailableError(f"the {schema.name} cannot be written: its disk is full")
