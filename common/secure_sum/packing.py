"""Integers to the lanes of a few large plaintexts, the sum of k such plaintexts back to integers, and one-time pads.

*Lanes.* A lane has 64 bits: 54 for a value, offset by 2^53 so that it is positive, and 10 guard bits for the carries of
up to 1,024 parties. Lane 0 of every block holds a one, so the sum counts its contributors; lanes after the last value
are zero::

    bit   L = 64 * lanes                      128        64         0
          | value lanes-1 + 2^53 | ... | value 1 + 2^53 | 1 (count) |

L stays at least 64 bits below the key, so k <= 1,024 plaintexts below 2^L add up without wrapping modulo n, and a key
holder has room to hide whether dishonest ones do (`reduced_sum`).

*Pads.* A plaintext P is split as P = r + s_1 + ... + s_m modulo 2^L. The learner gets the seed of r, key holder j
decrypts s_j; any m of these m + 1 parts are uniform. The split is additive, so the sums of the parts over parties are a
split of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from parley.common.arrays import IntArray
from parley.common.secure_sum.errors import PackingError, Reason

if TYPE_CHECKING:
    from parley.common.secure_sum.paillier import RandomBytes

LANE_BITS = 64
GUARD_BITS = 10
VALUE_BITS = LANE_BITS - GUARD_BITS
OFFSET = 2 ** (VALUE_BITS - 1)
MAX_CONTRIBUTORS = 2**GUARD_BITS
MAX_D = 2**24
DEFAULT_KEY_BITS = 3072

_HEAD_BYTES = 2**12  # a signed message without attachments: a contribution's is some 600, and 100 for each key holder


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
        """The lanes of a plaintext, with the counting one."""
        return self.key_bits // LANE_BITS - 1

    @property
    def blocks(self) -> int:
        """The plaintexts, and so the ciphertexts, of an answer."""
        return -(-self.d // (self.lanes - 1))

    @property
    def block_bytes(self) -> int:
        """The bytes of a plaintext."""
        return self.lanes * LANE_BITS // 8

    @property
    def modulus(self) -> int:
        """2^L, the modulus of plaintexts, pads and shares."""
        return 1 << (self.lanes * LANE_BITS)

    @property
    def ciphertext_bytes(self) -> int:
        """The bytes of a ciphertext on the wire."""
        return self.key_bits // 4

    @property
    def blob_bytes(self) -> int:
        """The bytes of all ciphertexts of an answer, for one key holder."""
        return self.blocks * self.ciphertext_bytes

    def opening_bytes(self, contributors: int) -> int:
        """Return the most bytes of a request to open the sum of this many contributions."""
        return contributors * (self.blob_bytes + _HEAD_BYTES) + _HEAD_BYTES


def too_long(layout: Layout, contributors: int, most: int) -> str | None:
    """Return why a key holder whose requests have at most ``most`` bytes cannot open a sum; None if it can."""
    size = layout.opening_bytes(contributors)
    if size <= most:
        return None
    return (
        f"{contributors} contributions of {layout.d:,} numbers take up to {size:,} bytes, and its limits.body_bytes "
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
    """Read plaintexts from little-endian bytes."""
    size = layout.block_bytes
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]


# ── one-time pads ────────────────────────────────────────────────────────────

SEED_BYTES = 32
_MULTIPLE_BYTES = 7
_NONCE = bytes(16)  # a seed is drawn for one answer and never used again, so the nonce may be constant


def expand(seed: bytes, layout: Layout) -> list[int]:
    """Return the pad of a 32-byte seed: the ChaCha20 key stream, cut into one integer below 2^L per block."""
    stream = Cipher(ChaCha20(seed, _NONCE), mode=None).encryptor()
    return blocks_from_bytes(stream.update(bytes(layout.blocks * layout.block_bytes)), layout)


def split(plaintexts: Sequence[int], seeds: Sequence[bytes], layout: Layout) -> tuple[list[int], ...]:
    """Return the shares s_1 ... s_m of plaintexts, m = len(seeds) >= 1: seeds[0] makes r, the others s_1 ... s_(m-1).

    The last share is what remains. Every seed must be fresh.
    """
    pad, *shares = (expand(seed, layout) for seed in seeds)
    modulus = layout.modulus
    taken = add([pad, *shares], layout)
    last = [(block - part) % modulus for block, part in zip(plaintexts, taken, strict=True)]
    return (*shares, last)


def reduced_sum(total: int, n: int, layout: Layout, random_bytes: RandomBytes) -> int:
    """Reduce a sum of shares that was decrypted modulo n to the sum modulo 2^L, which a key holder may reveal.

    A dishonest share may lie just below n. Then whether the sum has wrapped modulo n, which shifts it modulo 2^L, would
    compare the sum of the others, as integers, with a number of the dishonest party's choice. So a random multiple of
    2^L is added first, for which honest sums leave room: chance decides, and for all values of the others' shares, they
    change its odds by less than 2^-45.
    """
    return (total + int.from_bytes(random_bytes(_MULTIPLE_BYTES)) * layout.modulus) % n % layout.modulus


def add(vectors: Sequence[Sequence[int]], layout: Layout) -> list[int]:
    """Return the block-wise sum modulo 2^L of pads and shares.

    >>> layout = Layout(d=1, key_bits=2048)
    >>> seeds = [bytes(32), bytes(31) + b"!"]
    >>> add([expand(seeds[0], layout), *split([7], seeds, layout)], layout)
    [7]
    """
    return [sum(blocks) % layout.modulus for blocks in zip(*vectors, strict=True)]
