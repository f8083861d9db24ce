"""How checks end: with the exit statuses of ``parley-party``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from common.errors import ParleyError

_UNUSABLE = 2  # exit status


@contextmanager
def unusable() -> Iterator[None]:
    """Turn an error into one line on standard error and exit status 2."""
    try:
        yield
    except ParleyError as error:
        typer.echo(f"parley-learner: {error.detail}", err=True)
        raise typer.Exit(_UNUSABLE) from None
