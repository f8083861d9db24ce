"""A line of the log that cannot be written is lost, and nothing else is."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import pytest
import structlog

from parley.common.service import logs
from parley.common.service.tracing import Tracer, trace_with
from parley.common.service.worker import Worker

SECRET = "0.271828"


def fail() -> None:
    raise ValueError(SECRET)


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


@pytest.mark.usefixtures("structlog_as_it_was")
async def test_lines_name_the_request_and_the_run_that_they_are_about_in_all_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json")
    worker = Worker("log")
    with logs.about(request="r1"):
        logs.note(run="run-1", caller="ann")
        await worker.do(lambda: structlog.get_logger().info("charged", run="run-2", epsilon=0.5))
        assert dict(logs.forwarded()) == {"x-request-id": "r1", "x-run-id": "run-1"}
        with logs.about(request=logs.request_id()):
            assert dict(logs.forwarded()) == {"x-request-id": "r1"}
    worker.close()
    structlog.get_logger().info("serving")
    charged, serving = map(json.loads, capsys.readouterr().err.splitlines())
    assert list(charged) == ["timestamp", "level", "event", "epsilon", "request", "run", "caller"], "as people read"
    assert (charged["request"], charged["run"], charged["caller"]) == ("r1", "run-2", "ann")
    assert serving.keys() == {"timestamp", "level", "event"}
    assert logs.forwarded() == []
    assert logs.request_id() != logs.request_id()


TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.mark.usefixtures("structlog_as_it_was")
def test_lines_are_objects_with_level_and_time_in_utc_and_those_of_libraries_are_warnings_without_tracebacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    logs.configure()
    logger = structlog.get_logger()
    with logs.about(request="r1"):
        logger.debug("too little")
        logger.info("served", round=1)
    library = logging.getLogger("a library")
    library.info("too little")
    try:
        fail()
    except ValueError:
        library.exception("it %s", "failed")
    logs.configure(level=logging.WARNING)
    structlog.get_logger().info("too little")
    structlog.get_logger().warning("enough")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(re.fullmatch(TIME, line.pop("timestamp")) for line in lines)
    assert lines == [
        {"request": "r1", "level": "info", "event": "served", "round": 1},
        {"level": "error", "event": "it failed"},
        {"level": "warning", "event": "enough"},
    ]


@pytest.mark.usefixtures("structlog_as_it_was")
def test_lines_for_people_have_no_colours_and_go_where_standard_error_is_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure("text")
    logger = structlog.get_logger()
    logger.info("served", round=1)
    logging.getLogger("a library").error("failed")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(TIME + r" \[info     \] served +round=1", first)
    assert re.fullmatch(TIME + r" \[error    \] failed *", second)
    monkeypatch.setattr(sys, "stderr", moved := io.StringIO())
    logger.info("moved")
    assert re.fullmatch(TIME + r" \[info     \] moved *\n", moved.getvalue())
    assert len(logging.getLogger().handlers) == 1


def test_an_errors_place_is_where_it_was_raised() -> None:
    with pytest.raises(ValueError, match=SECRET) as caught:
        fail()
    assert logs.place_of(caught.value) == f"{__file__}:{fail.__code__.co_firstlineno + 1}"
    assert logs.place_of(ValueError()) == "unknown"


def test_what_is_written_to_a_stream_that_loses_it_counts_as_written() -> None:
    stream = logs._standard_error()
    assert stream.write("\n") == 1
