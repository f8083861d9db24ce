"""Structured logs: events with public values only, as JSON lines or as text, on standard error.

Code that logs names what it logs: names, identifiers, rounds, kinds of error. No message, array or traceback of foreign
code is ever logged, for it may quote a private value; an unforeseen error is logged as its type and its place. A line
that cannot be written is lost, and the service goes on: the disk of the logs may be full, or their reader gone.
"""

from __future__ import annotations

import io
import logging
import sys
from contextlib import suppress
from typing import Literal, TextIO, cast

import structlog

from parley.common.service.tracing import current_trace


def configure(log_format: Literal["json", "text"] = "json", level: int = logging.INFO) -> None:
    """Send logs to standard error in this format: Parley's from ``level`` up, those of libraries from WARNING up."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _traced,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
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


def _traced(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the current trace to an event."""
    if (trace := current_trace()) is not None:
        event["trace"] = trace
    return event


def _quiet(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Remove the traceback from a library's record."""
    event.pop("exc_info", None)
    return event
