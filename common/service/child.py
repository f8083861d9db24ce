"""Arrays made by a child process, so that the memory of what makes them is given back when it ends.

Reading a file of columns loads pyarrow, whose 40 MB a process never gives back; a service reads once and then lives for
months. So a child reads, and this process receives no more than the numbers.

The child writes to a pipe, for each array a line of JSON with its type and shape, then its bytes, which the parent has
the system write straight into the new array: nothing is copied in between, and nothing touches a disk. What it has sent
it gives back to the system meanwhile, so that both processes together hold an array once. A refusal is a
line as well, and is raised again in the parent. Of any other error the parent learns type and place but never the text,
which may quote a private value.

A child that decodes what strangers sent works within `ChildBounds`: a small body may be a large table, and only
the decoder finds out what it takes. What goes wrong there is the fault of what was sent: an error of its sender.
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
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from threading import Timer
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from parley.common.errors import InvalidDataError, InvalidInputError, ParleyError, TooLargeError

AnyArray = npt.NDArray[Any]

_BLOCK = 2**22
"""Bytes that are sent before the memory that they were in is given back: a multiple of any page's size."""

MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": str(2**19)}
"""The environment in which a child gives memory back as soon as it is free: Arrow's own pools keep some for later."""

_LEAN = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment in which memory that is only reserved, for threads, does not count towards a bound."""

_ERRORS = {error.kind: error for error in (InvalidDataError, InvalidInputError, ParleyError, TooLargeError)}
_USED_UP = frozenset({signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT})
"""What ends a child that has used up its time, or whose libraries end it where memory has run out."""


@dataclass(frozen=True, slots=True)
class ChildBounds:
    """What a child may take.

    ``memory`` is in bytes, beyond what the child has when its work begins; ``processor_seconds`` are its work's, and
    ``seconds`` those of the clock from its start, which tell on a machine that has much else to do. ``what`` is what it
    reads, and ``remedy`` what helps where that takes more.
    """

    memory: int
    processor_seconds: int
    seconds: float
    what: str = "what was sent"
    remedy: str = "send less"

    def begin(self) -> None:
        """Hold this process to the bounds of memory and of the processor from now on."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        allow_seconds(self.processor_seconds)
        with suppress(OSError):  # a system that does not tell what a process has
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * mmap.PAGESIZE + self.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    @property
    def words(self) -> str:
        """What reading may take."""
        return f"{self.memory // 2**20} MB or {self.processor_seconds} seconds"


def allow_seconds(seconds: int) -> None:
    """End this process when it has used the processor for so many seconds from now on."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def receive_arrays(
    module: str, *arguments: str, given: bytes = b"", bounds: ChildBounds | None = None
) -> Generator[AnyArray, None, None]:
    """The arrays that ``python -m module arguments`` sends with `send_arrays`, each as soon as it is made.

    What is ``given`` it reads from its standard input, where other users of the machine do not see it. With ``bounds``
    it is ended when its time is over.

    Raises InvalidInputError, InvalidDataError or TooLargeError in the words of the child, and ParleyError where it
    failed or died; where it has bounds, TooLargeError if it died of them, and InvalidDataError if it failed otherwise.
    The child has ended when this has.
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
            with suppress(BrokenPipeError), child.stdin:  # whether it died is seen below
                child.stdin.write(given)
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
    """What to say of a child that ended before its work did; ``status`` is negative where a signal ended it."""
    if bounds and -status in _USED_UP:
        return TooLargeError(f"{bounds.what} takes more than {bounds.words} to read: {bounds.remedy}")
    if bounds:
        return InvalidDataError(f"{bounds.what} cannot be read: what reads it crashed")
    return ParleyError(f"the process {module} ended with status {status}")


def send_arrays(make: Callable[[], Iterable[AnyArray]], bounds: ChildBounds | None = None) -> None:
    """The child's side, and the last thing it does: send the parent what ``make`` makes, or why it cannot be made.

    What an array held is lost when it has been sent. With ``bounds`` whatever goes wrong is put down to what is read.
    """
    pipe = sys.stdout.buffer
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
    except Exception as error:  # noqa: BLE001 -- the boundary: whatever it was, its text stays inside
        told = _told(error, bounds)
        _write_line(pipe, {"error": told.kind, "detail": told.detail})
    pipe.flush()


def _told(error: Exception, bounds: ChildBounds | None) -> ParleyError:
    """What to tell the parent of an error."""
    if bounds and _ran_out(error):
        return _death("", -signal.SIGXCPU, bounds)
    if isinstance(error, InvalidDataError | InvalidInputError | TooLargeError):
        return error
    if bounds:
        return InvalidDataError(f"{bounds.what} cannot be read: {type(error).__name__}")
    from parley.common.service.logs import place_of  # noqa: PLC0415 -- 20 MB that a child that does not fail need not load

    return ParleyError(f"{type(error).__name__} at {place_of(error)}")


def _ran_out(error: BaseException | None) -> bool:
    """Whether memory has run out, and whatever is told of it came from that."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__context__
    return error is not None


def _read_all(pipe: BufferedReader) -> Generator[AnyArray, None, bool]:
    """The arrays on a pipe, to its end, and whether that is an end of them; raises the error that ends them."""
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
    """One line of JSON."""
    pipe.write(json.dumps(head).encode() + b"\n")


def _give_back(memory: memoryview) -> None:
    """Give the system the pages that lie within some memory: they read as zeros after, on Linux."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = np.asarray(memory).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + len(memory) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _bytes_of(array: AnyArray) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data
