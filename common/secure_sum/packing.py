"""Integers to the lanes of a few large plaintexts, and the sum of k such plaintexts back to integers.

A lane has 64 bits: 54 for a value, offset by 2^53 so that it is positive, and 10 guard bits for the carries of up to
1,024 parties. Lane 0 of every block holds a one, so the sum counts its contributors; lanes behind the last value are
zero::

    bit   L = 64 * lanes                      128        64         0
          | value lanes-1 + 2^53 | ... | value 1 + 2^53 | 1 (count) |

L stays at least 64 bits below the key, so k <= 1,024 plaintexts below 2^L add up without wrapping modulo n, and a key
holder has room to hide whether dishonest ones do (`parley.common.secure_sum.pad.reduced_sum`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parley.common.arrays import IntArray
from parley.common.secure_sum.errors import PackingError, Reason

LANE_BITS = 64
GUARD_BITS = 10
VALUE_BITS = LANE_BITS - GUARD_BITS
OFFSET = 2 ** (VALUE_BITS - 1)
MAX_CONTRIBUTORS = 2**GUARD_BITS
MAX_D = 2**24
DEFAULT_KEY_BITS = 3072

_HEAD_BYTES = 2**12  # of a signed message without what is attached: a contribution's is some 600, and 100 a key holder


@dataclass(frozen=True, slots=True)
class Layout:
    """How d integers lie in plaintexts for a key of ``key_bits`` bits.

    >>> Layout(d=1000, key_bits=3072)
    Layout(d=1000, key_bits=3072)
    >>> Layout(d=1000, key_bits=3072).lanes, Layout(d=1000, key_bits=3072).blocks
    (47, 22)
    """

    d: int
    key_bits: int

    @property
    def lanes(self) -> int:
        """Lanes a plaintext has, the counting one included."""
        return self.key_bits // LANE_BITS - 1

    @property
    def blocks(self) -> int:
        """Plaintexts, hence ciphertexts, an answer takes."""
        return -(-self.d // (self.lanes - 1))

    @property
    def block_bytes(self) -> int:
        """Bytes of a plaintext."""
        return self.lanes * LANE_BITS // 8

    @property
    def modulus(self) -> int:
        """2^L: what plaintexts, pads and shares are reduced by."""
        return 1 << (self.lanes * LANE_BITS)

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of a ciphertext on the wire."""
        return self.key_bits // 4

    @property
    def blob_bytes(self) -> int:
        """Bytes of all ciphertexts of an answer, for one key holder."""
        return self.blocks * self.ciphertext_bytes

    def opening_bytes(self, contributors: int) -> int:
        """Bytes of a request to open the sum of so many contributions, at most."""
        return contributors * (self.blob_bytes + _HEAD_BYTES) + _HEAD_BYTES


def too_long(layout: Layout, contributors: int, most: int) -> str | None:
    """Why a key holder whose requests have at most so many bytes cannot open a sum, in words; None if it can."""
    needed = layout.opening_bytes(contributors)
    if needed <= most:
        return None
    return (
        f"{contributors} contributions of {layout.d:,} numbers take up to {needed:,} bytes, and its limits.body_bytes "
        f"are {most:,}"
    )


def encode(values: IntArray, layout: Layout) -> list[int]:
    """Pack integers (d,), each below 2^53 in absolute value, into ``layout.blocks`` plaintexts.

    Raises PackingError when the array is not (d,) of int64, or a value is out of range.

    >>> [hex(block) for block in encode(np.array([3, -1]), Layout(d=2, key_bits=2048))]
    ['0x1fffffffffffff00200000000000030000000000000001']
    """
    if values.shape != (layout.d,) or values.dtype != np.int64:
        raise PackingError(f"an answer is {layout.d} integers (int64)", reason=Reason.WRONG_SHAPE)
    if bool(np.any(values >= OFFSET)) or bool(np.any(values <= -OFFSET)):
        raise PackingError("a value is not below 2^53 in absolute value", reason=Reason.VALUE_TOO_LARGE)
    cells = np.zeros(layout.blocks * (layout.lanes - 1), dtype="<u8")
    cells[: layout.d] = values + OFFSET
    rows = np.ones((layout.blocks, layout.lanes), dtype="<u8")
    rows[:, 1:] = cells.reshape(layout.blocks, -1)
    return blocks_from_bytes(rows.tobytes(), layout)


def decode(totals: Sequence[int], contributors: int, layout: Layout) -> IntArray:
    """Unpack the sum (d,) of ``contributors`` encoded answers from the block-wise sum of their plaintexts.

    Raises PackingError when the totals cannot be the sum of that many answers: another number of blocks, bits above the
    top lane, another count in lane 0, a lane out of range, or padding that is not zero.
    """
    k = contributors
    if not 1 <= k <= MAX_CONTRIBUTORS:
        raise PackingError(f"{k} contributors, not 1 to {MAX_CONTRIBUTORS}", reason=Reason.TOO_MANY_CONTRIBUTORS)
    if len(totals) != layout.blocks:
        raise PackingError(f"{len(totals)} blocks instead of {layout.blocks}", reason=Reason.WRONG_SHAPE)
    if not all(0 <= total < layout.modulus for total in totals):
        raise PackingError("a total has bits above its top lane", reason=Reason.BITS_ABOVE_LANES)
    data = b"".join(total.to_bytes(layout.block_bytes, "little") for total in totals)
    rows = np.frombuffer(data, dtype="<u8").reshape(layout.blocks, layout.lanes)
    if bool(np.any(rows[:, 0] != k)):
        raise PackingError(f"the counting lanes do not all say {k}", reason=Reason.COUNT_MISMATCH)
    cells = rows[:, 1:].reshape(-1)
    values, padding = cells[: layout.d], cells[layout.d :]
    if bool(np.any(padding)):
        raise PackingError("the padding is not zero", reason=Reason.PADDING_NOT_ZERO)
    # Each of k honest values lies in [1, 2^54 - 1] once offset.
    if bool(np.any(values < k)) or bool(np.any(values > k * (2**VALUE_BITS - 1))):
        raise PackingError(f"a lane is not the sum of {k} values", reason=Reason.LANE_TOO_LARGE)
    # Modulo 2^64 and read as signed: |sum| < k 2^53 <= 2^63, so nothing is lost.
    return (values - np.uint64(k * OFFSET)).astype(np.int64)


def blocks_from_bytes(data: bytes, layout: Layout) -> list[int]:
    """Cut little-endian bytes into the plaintexts they spell."""
    size = layout.block_bytes
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]
