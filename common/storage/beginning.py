"""How a chain begins: once, by its first record; and how a missing one, or a part of one, is told from a new one."""

from __future__ import annotations

from pathlib import Path

from common.errors import LedgerError
from common.storage.chain import Chain, ChainRecord
from common.storage.sqlite import Schema


def begin_chain(stem: Path, schema: Schema, first: ChainRecord) -> None:
    """Begin a chain with its first record; raises LedgerError where there is anything of one already."""
    if _present(stem):
        raise LedgerError(f"there is a {schema.name} in {stem.parent} already, or a part of one")
    chain = Chain(stem, schema, lambda _number, _record: None)
    try:
        with chain.transaction() as appending:
            appending.append(first)
    finally:
        chain.close()


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
    """The names of a chain's files that there are."""
    paths = (stem.with_suffix(end) for end in (".db", ".head"))
    return [path.name for path in paths if path.exists()]
