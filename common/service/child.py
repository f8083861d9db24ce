"""Arrays made by a child process, whose memory is returned when it ends.

Reading a file of columns loads pyarrow, whose 40 MB a process never returns; a service reads once and then runs for
months. So a child reads, and this process receives no more than the numbers.

For each array the child writes to a pipe a line of JSON with type and shape, then the bytes, which the parent has the
system write straight into the new array: nothing is copied in between, and nothing touches a disk. The child returns
the memory of what it has sent, so that both processes together hold an array once. A refusal is a line as well, and is
raised again in the parent. Of any other error the parent learns type and place, but never the text, which may quote a
private value.

A child that decodes what others sent works within `ChildBounds`: a small body may be a large table, and only the
decoder finds out how much memory it takes. A failure there is the fault of what was sent: an error of its sender.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from io import BufferedReader
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from parley.common.errors import InvalidDataError, InvalidInputError, ParleyError, TooLargeError

AnyArray = npt.NDArray[Any]

_BLOCK = 2**22
"""Bytes that are sent before their memory is returned: a multiple of any page's size."""

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(2**19),
    "MALLOC_TRIM_THRESHOLD_": str(2**22),
}
"""The environment in which a child returns memory as soon as it is free, but for 4 MiB that small arrays take again.

Arrow's own pools keep some for later.
"""

_LEAN = {"MALLOC_ARENA_MAX": "1", "ARROW_IO_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment that reserves no memory for threads, which would count towards a bound."""

_ERRORS = {error.kind: error for error in (InvalidDataError, InvalidInputError, ParleyError, TooLargeError)}
_USED_UP = frozenset({signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT})
"""The signals that end a child whose time or memory is used up."""


class _WithoutPandas(MetaPathFinder):
    """Has a process do without pandas, which Arrow would load to ask whether a list is a table of it.

    That takes a second of the processor and 60 MB, which would count towards the bounds of what was sent.
    """

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /) -> None:
        """Find no module, and raise ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


@dataclass(frozen=True, slots=True)
class ChildBounds:
    """Bounds on the memory and the time of a child process.

    ``memory`` is in bytes, beyond what the child has when its work begins. ``processor_seconds`` count from then on;
    ``seconds`` of the clock count from its start, and matter on a busy machine. ``what`` names what it reads, and
    ``remedy`` says what helps where that takes more.
    """

    memory: int
    processor_seconds: int
    seconds: float
    what: str = "what was sent"
    remedy: str = "send less"

    def begin(self) -> None:
        """Bound the memory and the processor time of this process from now on."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        allow_seconds(self.processor_seconds)
        with suppress(OSError):  # a system that does not report the memory of a process
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * mmap.PAGESIZE + self.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    @property
    def words(self) -> str:
        """The bounds in words."""
        return f"{self.memory // 2**20} MB or {self.processor_seconds} seconds"


def do_without_pandas() -> None:
    """Have this process find no pandas from now on."""
    sys.meta_path.insert(0, _WithoutPandas())


def allow_seconds(seconds: int) -> None:
    """End this process when it has used so many seconds of the processor from now on."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def receive_arrays(
    module: str, *arguments: str, input_bytes: bytes = b"", bounds: ChildBounds | None = None
) -> Generator[AnyArray, None, None]:
    """Run ``python -m module arguments`` and yield each array that it sends with `send_arrays`, as soon as it is made.

    The child reads ``input_bytes`` from its standard input, where other users of the machine do not see them. With
    ``bounds`` it is ended when its time is over.

    Raises InvalidInputError, InvalidDataError or TooLargeError with the child's text, and ParleyError where it failed
    or died; with bounds, TooLargeError if it exceeded them, and InvalidDataError if it failed otherwise. The child has
    ended when this generator has.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    lean, quiet = (_LEAN, subprocess.DEVNULL) if bounds else ({}, None)
    clock = None
    with subprocess.Popen(command, env={**MEMORY, **os.environ, **lean}, stderr=quiet, **pipes) as child:  # noqa: S603 -- our own
        assert isinstance(child.stdout, BufferedReader)  # noqa: S101 -- it is a pipe
        assert child.stdin is not None  # noqa: S101 -- as above
        try:
            if bounds:
                clock = Timer(bounds.seconds, child.kill)
                clock.start()
            with suppress(BrokenPipeError), child.stdin:  # its status is checked below
                child.stdin.write(input_bytes)
            is_whole = yield from _read_all(child.stdout)
        except BaseException:
            child.kill()
            raise
        finally:
            if clock:
                clock.cancel()
    if child.returncode != 0 or not is_whole:
        raise _death(module, child.returncode, bounds)


def _death(module: str, status: int, bounds: ChildBounds | None) -> ParleyError:
    """Return the error for a child that ended before its work did; ``status`` is negative where a signal ended it."""
    if bounds and -status in _USED_UP:
        return TooLargeError(f"{bounds.what} takes more than {bounds.words} to read: {bounds.remedy}")
    if bounds:
        return InvalidDataError(f"{bounds.what} cannot be read: what reads it crashed")
    return ParleyError(f"the process {module} ended with status {status}")


def send_arrays(make: Callable[[], Iterable[AnyArray]], bounds: ChildBounds | None = None) -> None:
    """Send the parent the arrays of ``make``, or the error; the last thing that a child does.

    The content of an array is lost once it is sent. With ``bounds`` any failure is blamed on what is read.
    """
    pipe = sys.stdout.buffer
    do_without_pandas()
    if bounds:
        bounds.begin()
    try:
        for array in make():
            content = _bytes_of(np.ascontiguousarray(array))  # TypeError for objects
            _write_line(pipe, {"dtype": array.dtype.str, "shape": array.shape})
            for start in range(0, len(content), _BLOCK):
                block = content[start : start + _BLOCK]
                pipe.write(block)
                _give_back(block)
    except Exception as error:  # noqa: BLE001 -- the boundary: the text of any error stays inside
        reported = _reported_error(error, bounds)
        _write_line(pipe, {"error": reported.kind, "detail": reported.detail})
    pipe.flush()


def _reported_error(error: Exception, bounds: ChildBounds | None) -> ParleyError:
    """Return the error to report to the parent."""
    if bounds and _ran_out(error):
        return _death("", -signal.SIGXCPU, bounds)
    if isinstance(error, InvalidDataError | InvalidInputError | TooLargeError):
        return error
    if bounds:
        return InvalidDataError(f"{bounds.what} cannot be read: {type(error).__name__}")
    from parley.common.service.logs import place_of  # noqa: PLC0415 -- 20 MB that a child that does not fail need not load

    return ParleyError(f"{type(error).__name__} at {place_of(error)}")


def _ran_out(error: BaseException | None) -> bool:
    """Say whether an error is, or was raised after, one that memory has run out."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__context__
    return error is not None


def _read_all(pipe: BufferedReader) -> Generator[AnyArray, None, bool]:
    """Yield the arrays on a pipe; returns whether the last is complete; raises the error that the child reported."""
    while line := pipe.readline():
        if not line.endswith(b"\n"):
            return False
        head: Mapping[str, Any] = json.loads(line)
        if "error" in head:
            raise _ERRORS[head["error"]](head["detail"])
        array = np.empty(head["shape"], head["dtype"])
        if pipe.readinto(_bytes_of(array)) < array.nbytes:
            return False
        yield array
    return True


def _write_line(pipe: IO[bytes], head: Mapping[str, Any]) -> None:
    """Write one line of JSON."""
    pipe.write(json.dumps(head).encode() + b"\n")


def _give_back(memory: memoryview) -> None:
    """Return the whole pages of some memory to the system: on Linux they read as zeros afterwards."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = np.asarray(memory).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + len(memory) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _bytes_of(array: AnyArray) -> memoryview:
    """Return the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data
