"""How a chain begins: once, by its first record; and how a missing one, or a part of one, is told from a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

from common.errors import LedgerError, UnavailableError
from common.storage.chain import Chain, ChainRecord
from common.storage.keys import sync_directory, writing
from common.storage.scratch import locked
from common.storage.sqlite import Schema

_ENDS = (".head", ".db")  # in this order into their place: until the database is there, nothing has begun


def begin_chain(stem: Path, schema: Schema, first: ChainRecord) -> None:
    """Begin a chain with its first record: whatever interrupts it, all of it is there afterwards or nothing has begun.

    Raises LedgerError where there is anything of one already, UnavailableError where it cannot be written.
    """
    with writing(f"the {schema.name}"):
        stem.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(stem.parent):
            if _present(stem):
                raise LedgerError(f"there is a {schema.name} in {stem.parent} already, or a part of one")
            draft = _draft(stem)
            stem.with_suffix(".head").unlink(missing_ok=True)  # of a beginning that was interrupted
            _discard(draft)
            try:
                _write(draft, schema, first)
            except BaseException:
                _discard(draft)
                raise
            for end in _ENDS:
                draft.with_suffix(end).replace(stem.with_suffix(end))
                sync_directory(stem.parent)
            _discard(draft)


def check_begun(stem: Path, schema: Schema, *, missing: str, recover: str) -> None:
    """Raise LedgerError where there is no chain, or only a part of one.

    It says what to do about a ``missing`` one, and with which command to ``recover`` what is left.
    """
    has = _present(stem)
    if not has:
        raise LedgerError(f"there is no {schema.name} in {stem.parent}: {missing}")
    if len(has) == 1:
        raise LedgerError(f"of the {schema.name} in {stem.parent} only {has[0]} is left: run {recover}")


def _present(stem: Path) -> list[str]:
    """The names of a chain's files that there are; none while its beginning has not ended."""
    if _draft(stem).with_suffix(".db").exists():
        return []
    return [path.name for end in _ENDS if (path := stem.with_suffix(end)).exists()]


def _draft(stem: Path) -> Path:
    """Where a chain is written before it has begun."""
    return stem.parent / f".{stem.name}.new" / stem.name


def _discard(draft: Path) -> None:
    shutil.rmtree(draft.parent, ignore_errors=True)


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
