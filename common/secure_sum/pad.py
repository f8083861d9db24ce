"""One-time pads: a plaintext P is split as P = r + s_1 + ... + s_m modulo 2^L.

The learner learns the seed of r, key holder j decrypts s_j; any m of these m + 1 parts are uniform. The split is
additive, so the sums of the parts over parties are a split of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from parley.common.secure_sum.packing import Layout, blocks_from_bytes

if TYPE_CHECKING:
    from parley.common.secure_sum.paillier import RandomBytes

SEED_BYTES = 32
_MULTIPLE_BYTES = 7
_NONCE = bytes(16)  # a seed is drawn for one answer and never used again, so the nonce may be constant


def expand(seed: bytes, layout: Layout) -> list[int]:
    """The pad of a 32-byte seed: the ChaCha20 key stream, cut into one integer below 2^L per block."""
    stream = Cipher(ChaCha20(seed, _NONCE), mode=None).encryptor()
    return blocks_from_bytes(stream.update(bytes(layout.blocks * layout.block_bytes)), layout)


def split(plaintexts: Sequence[int], seeds: Sequence[bytes], layout: Layout) -> tuple[list[int], ...]:
    """The shares s_1 ... s_m of plaintexts, m = len(seeds) >= 1: seeds[0] makes r, the others make s_1 ... s_(m-1).

    The last share is what remains. Every seed must be fresh.
    """
    pad, *shares = (expand(seed, layout) for seed in seeds)
    modulus = layout.modulus
    taken = add([pad, *shares], layout)
    last = [(block - part) % modulus for block, part in zip(plaintexts, taken, strict=True)]
    return (*shares, last)


def reduced_sum(total: int, n: int, layout: Layout, random_bytes: RandomBytes) -> int:
    """What a key holder tells of a sum of shares that was decrypted modulo n: the sum modulo 2^L.

    A dishonest share may lie just below n. Then whether the sum has wrapped modulo n, which shifts it modulo 2^L, would
    compare the sum of the others, as integers, with a number of the dishonest party's choice. So a random multiple of
    2^L is added first, for which honest sums leave room: chance decides, and whatever the others' shares are, they
    change its odds by less than 2^-45.
    """
    return (total + int.from_bytes(random_bytes(_MULTIPLE_BYTES)) * layout.modulus) % n % layout.modulus


def add(vectors: Sequence[Sequence[int]], layout: Layout) -> list[int]:
    """The block-wise sum modulo 2^L of pads and shares.

    >>> layout = Layout(d=1, key_bits=2048)
    >>> seeds = [bytes(32), bytes(31) + b"!"]
    >>> add([expand(seeds[0], layout), *split([7], seeds, layout)], layout)
    [7]
    """
    return [sum(blocks) % layout.modulus for blocks in zip(*vectors, strict=True)]
