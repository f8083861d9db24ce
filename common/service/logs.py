"""Structured logs: events with public values only, as JSON lines or as text, on standard error.

Each line says what it is about (`about`): the request that is answered or the run that is carried, wherever in the code
it is logged. A service that asks another one passes these identifiers on as headers (`forwarded`), so that lines of
several services can be joined.

Code that logs names what it logs: names, identifiers, rounds, kinds of error. No message, array or traceback of foreign
code is ever logged, for it may quote a private value; an unforeseen error is logged as its type and its place. A line
that cannot be written is lost, and the service goes on: the disk of the logs may be full, or their reader gone.
"""

from __future__ import annotations

import io
import logging
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Literal, TextIO, cast

import structlog

from parley.common.service.tracing import SentHeaders, current_trace

FORWARDED = {"request": "x-request-id", "run": "x-run-id"}
"""The headers by which the fields of lines travel from service to service, by the name of the field."""

_FIRST, _LAST = ("timestamp", "level", "event"), ("request", "run", "session", "caller", "trace")
_FIELDS: ContextVar[dict[str, str]] = ContextVar("fields", default={})  # noqa: B039 -- never changed, only replaced


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Give all lines within the block these fields, and no others; what `note` adds within it ends with it.

    One variable of our own: structlog's, one for each field, take four times as long in each request.
    """
    token = _FIELDS.set(fields)
    try:
        yield
    finally:
        _FIELDS.reset(token)


def note(**fields: str) -> None:
    """Give all further lines within the block these fields too."""
    _FIELDS.set(_FIELDS.get() | fields)


def request_id() -> str:
    """Return the identifier of the request that is answered, or a new one for work that no request began."""
    return _FIELDS.get().get("request") or secrets.token_hex(8)


def forwarded() -> SentHeaders:
    """Return the headers that tell another service which request and which run its lines are about."""
    return [(header, fields[name]) for name, header in FORWARDED.items() if name in (fields := _FIELDS.get())]


def is_sampled(round: int) -> bool:
    """Return whether a round has a line in a log: the first one, and each that doubles the number of the last.

    >>> [round for round in range(1, 100) if is_sampled(round)]
    [1, 2, 4, 8, 16, 32, 64]
    """
    return round & (round - 1) == 0


def configure(log_format: Literal["json", "text"] = "json", level: int = logging.INFO) -> None:
    """Send logs to standard error in this format: Parley's from ``level`` up, those of libraries from WARNING up."""
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _ordered,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=False, sort_keys=False)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(_standard_error()),  # looked up for each line
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(_standard_error())
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=[*shared, _quiet]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def quiet_by_default() -> None:
    """Log only warnings and errors, on standard error, in a program that has not said where Parley's logs go."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *_: structlog.WriteLogger(_standard_error()),
        )


def _standard_error() -> TextIO:
    """Return standard error as it is now, in a stream that loses what cannot be written."""
    return cast("TextIO", _Lossy(sys.stderr))


class _Lossy(io.TextIOBase):
    """A stream that loses what it cannot write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or lose it."""
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()


def place_of(error: BaseException) -> str:
    """Return where an error was raised, as ``file:line``: all that a log may say of an unforeseen one but its type."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown"


def _ordered(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add what a line is about and the current trace; put when and what first, and identifiers last."""
    fields = {**_FIELDS.get(), **event, **({"trace": trace} if (trace := current_trace()) else {})}
    names = dict.fromkeys((*_FIRST, *(name for name in fields if name not in _LAST), *_LAST))
    return {name: fields[name] for name in names if name in fields}


def _quiet(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Remove the traceback from a library's record."""
    event.pop("exc_info", None)
    return event
