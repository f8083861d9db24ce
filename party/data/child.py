"""Arrays made by a child process, so that the memory of what makes them is given back when it ends.

Reading a file of columns loads pyarrow, whose 40 MB a process never gives back; a service reads once and then lives for
months. So a child reads, and this process receives no more than the numbers.

The child writes to a pipe, for each array a line of JSON with its type and shape, then its bytes, which the parent has
the system write straight into the new array: nothing is copied in between, and nothing touches a disk. What it has sent
it gives back to the system meanwhile, so that both processes together hold an array once. A refusal is a
line as well, and is raised again in the parent. Of any other error the parent learns type and place but never the text,
which may quote a private value.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from common.errors import InvalidDataError, InvalidInputError, ParleyError

AnyArray = npt.NDArray[Any]

_BLOCK = 2**22
"""Bytes that are sent before the memory that they were in is given back: a multiple of any page's size."""

MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": str(2**19)}
"""The environment in which a child gives memory back as soon as it is free: Arrow's own pools keep some for later."""

_ERRORS = {error.kind: error for error in (InvalidDataError, InvalidInputError, ParleyError)}


def receive_arrays(module: str, *arguments: str, given: bytes = b"") -> Generator[AnyArray, None, None]:
    """The arrays that ``python -m module arguments`` sends with `send_arrays`, each as soon as it is made.

    What is ``given`` it reads from its standard input, where other users of the machine do not see it.
    Raises InvalidInputError or InvalidDataError in the words of the child, and ParleyError where it failed or died. The
    child has ended when this has.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**MEMORY, **os.environ}, **pipes) as child:  # noqa: S603 -- our own
        assert isinstance(child.stdout, BufferedReader)  # noqa: S101 -- it is a pipe
        assert child.stdin is not None  # noqa: S101 -- as above
        try:
            with suppress(BrokenPipeError), child.stdin:  # whether it died is seen below
                child.stdin.write(given)
            yield from _read_all(child.stdout)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise ParleyError(f"the process {module} ended with status {child.returncode}")


def send_arrays(make: Callable[[], Iterable[AnyArray]]) -> None:
    """The child's side, and the last thing it does: send the parent what ``make`` makes, or why it cannot be made.

    What an array held is lost when it has been sent.
    """
    pipe = sys.stdout.buffer
    try:
        for array in make():
            content = _bytes_of(np.ascontiguousarray(array))  # TypeError for objects
            _write_line(pipe, {"dtype": array.dtype.str, "shape": array.shape})
            for start in range(0, len(content), _BLOCK):
                block = content[start : start + _BLOCK]
                pipe.write(block)
                _give_back(block)
    except (InvalidDataError, InvalidInputError) as error:
        _write_line(pipe, {"error": error.kind, "detail": error.detail})
    except Exception as error:  # noqa: BLE001 -- the boundary: whatever it was, its text stays inside
        from common.service.logs import place_of  # noqa: PLC0415 -- 20 MB that a child that does not fail need not load

        _write_line(pipe, {"error": ParleyError.kind, "detail": f"{type(error).__name__} at {place_of(error)}"})
    pipe.flush()


def _read_all(pipe: BufferedReader) -> Iterator[AnyArray]:
    """The arrays on a pipe, to its end; raises the error that ends them."""
    while line := pipe.readline():
        if not line.endswith(b"\n"):
            raise ParleyError("a process that makes arrays died")
        head: Mapping[str, Any] = json.loads(line)
        if "error" in head:
            raise _ERRORS[head["error"]](head["detail"])
        array = np.empty(head["shape"], head["dtype"])
        if pipe.readinto(_bytes_of(array)) < array.nbytes:
            raise ParleyError("a process that makes arrays died")
        yield array


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
