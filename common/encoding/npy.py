"""Arrays as bodies: NumPy's ``.npy``, version 1.0, float64 or int64, read without evaluating anything."""

from __future__ import annotations

import io
import math
import re
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from parley.common.errors import InvalidInputError

NPY = "application/x-npy"
"""The media type of an array."""


_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<[fi]8)', 'fortran_order': False,"
    rb" 'shape': \((\d{1,9}),(?: (\d{1,9}))?\), \} *\n",
    re.DOTALL,
)


def pack_array(array: npt.NDArray[Any]) -> bytes:
    """Return an array as an ``.npy`` body, little-endian. Raises ValueError for one of objects."""
    return b"".join(npy_parts(array))  # copied once


def npy_parts(array: npt.NDArray[Any]) -> tuple[bytes, memoryview]:
    """Return the head and the bytes of `pack_array`'s body, without a copy. Raises ValueError as it does."""
    if array.dtype.hasobject:
        raise ValueError("an array of objects has no bytes of its own")
    contiguous = np.ascontiguousarray(array)  # has at least one axis
    return _head(contiguous.dtype.str, contiguous.shape), contiguous.data


@lru_cache(256)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header before an array's bytes, cached: NumPy takes longer to write it than to write a small array."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def unpack_array(body: bytes | bytearray, dtype: Literal["<f8", "<i8"]) -> npt.NDArray[Any]:
    """Read the array of an ``.npy`` body. Raises InvalidInputError unless it is valid, complete and of this type.

    The header is matched, never evaluated: NumPy writes it in one way only.
    """
    header = _NPY_HEADER.match(body)
    if not header or header.end() != 10 + int.from_bytes(body[8:10], "little"):
        raise InvalidInputError("the body is not an .npy array of version 1.0, with one axis or two, in C order")
    stated_type, *sizes = header.groups()
    shape = tuple(int(size) for size in sizes if size is not None)
    if stated_type.decode() != dtype or len(body) - header.end() != math.prod(shape) * 8:
        raise InvalidInputError(f"the body must hold a whole array of type {dtype}")
    array = np.frombuffer(body, dtype, offset=header.end()).reshape(shape)
    array.setflags(write=False)
    return array
