"""Reads model documents from files, and writes files whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from parley.common.errors import InvalidInputError, TooLargeError

_MOST_NUMBERS = 2**24 + 2**21
"""Numbers of a document: weights of as many columns as a study may have, and the others. Each takes 8 or 16 bytes."""
_LONGEST_LINE = 2**24
"""Bytes: long rows have lines of their own, of 2^13 numbers each."""


def read_model_file(path: Path) -> Any:  # noqa: ANN401 -- it is checked when it is read
    """Read the object in a file, as `read_lines` reads it; raises InvalidInputError if the file is not a document."""
    from parley.common.encoding.number_lines import read_lines  # noqa: PLC0415 -- help must not load numpy

    try:
        with path.open("rb") as file:
            document = read_lines(_bounded(file))
    except FileNotFoundError:
        raise InvalidInputError(
            f"model {path} cannot be read: no such file; of a run, save it by parley-learner model RUN --save {path}"
        ) from None
    except OSError as error:
        raise InvalidInputError(f"model {path} cannot be read ({type(error).__name__})") from None
    except TooLargeError as error:
        raise InvalidInputError(f"model {path} is not a model's document: {error.detail}") from None
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"model {path} is not a model's document: it is not JSON, or cut short, or has a name twice in an object "
            "or half a character"
        ) from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"model {path} is not a model's document")
    return document


def _bounded(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; raises TooLargeError for a longer line, or more numbers, than any model has."""
    count = 0
    while line := file.readline(_LONGEST_LINE + 1):
        count += line.count(b",")
        if len(line) > _LONGEST_LINE or count > _MOST_NUMBERS:
            raise TooLargeError(f"it may have {_MOST_NUMBERS:,} numbers, and {_LONGEST_LINE:,} bytes in a line")
        yield line


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a file to write, which replaces ``path`` when it is complete; raises InvalidInputError if it cannot.

    A pipe or a device cannot be replaced, so it is written to directly.
    """
    part = path if path.exists() and not path.is_file() else path.with_name(f"{path.name}.part")
    try:
        yield part
        if part != path:
            part.replace(path)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written ({type(error).__name__})") from None
    finally:
        if part != path:
            with suppress(OSError):
                part.unlink(missing_ok=True)
