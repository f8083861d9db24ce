"""A line of the log that cannot be written is lost, and nothing else is."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import pytest
import structlog

from parley.common.service import logs
from parley.common.service.tracing import Tracer, trace_with


def full_disk() -> TextIO:
    return Path("/dev/full").open("w", encoding="utf-8", buffering=1)


def reader_that_has_gone() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", buffering=1, encoding="utf-8")


def closed() -> TextIO:
    stream = full_disk()
    stream.close()
    return stream


@pytest.fixture
def structlog_as_it_was() -> Iterator[None]:
    held, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**held)
    logging.getLogger().handlers[:] = handlers


@pytest.mark.usefixtures("structlog_as_it_was")
@pytest.mark.parametrize("stream", [full_disk, reader_that_has_gone, closed])
def test_what_is_logged_goes_on(stream: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:  # noqa: ANN401
    """By this program or by a library: an answer that was charged for is sent, even if its line is lost."""
    broken = stream()
    monkeypatch.setattr(sys, "stderr", broken)
    logs.configure("text")
    for _ in range(2):
        structlog.get_logger().warning("charged", round=1)
        logging.getLogger("a library").error("no news")
    monkeypatch.undo()
    logs.configure("text")
    structlog.get_logger().info("heard", round=2)
    assert "heard" in capfd.readouterr().err
    with contextlib.suppress(OSError):
        broken.close()


class Tracing:
    """A tracer with one trace."""

    def current_trace(self) -> str | None:
        return "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.usefixtures("structlog_as_it_was")
def test_a_line_has_the_identifier_of_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    trace_with(cast("Tracer", Tracing()))
    try:
        structlog.get_logger().info("answered")
    finally:
        trace_with(None)
    structlog.get_logger().info("answered")
    traced, untraced = map(json.loads, capsys.readouterr().err.splitlines())
    assert traced["trace"] == "0af7651916cd43dd8448eb211c80319c"
    assert "trace" not in untraced
