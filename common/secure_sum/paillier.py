"""Paillier on packed integers: a thin layer over `phe` that prevents its misuse.

`phe` without gmpy2 is nine times slower and does not say so; its ``raw_decrypt`` of a number not coprime to n gives
away the key; its ``EncryptedNumber`` leaks magnitudes. So keys come only from here, ciphertexts are plain integers
whose range and gcd with n are checked before use, and on the wire they are big-endian bytes of fixed width.

Encryption costs one multiplication if the obfuscator r^n mod n^2 has been drawn ahead (Paillier 1999, section 4). An
obfuscator used twice gives away the difference of two plaintexts; one that is known gives away the plaintext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import combinations
from typing import Protocol

import phe.util
from phe import PaillierPrivateKey, PaillierPublicKey, generate_paillier_keypair

from parley.common.secure_sum.errors import BlobError, KeyMaterialError, OwnKeyError, Reason

try:
    import gmpy2
except ImportError:  # refused by name in require_gmpy2
    gmpy2 = None

MIN_KEY_BITS = 2048
MAX_KEY_BITS = 8192
_SMALL = 2**16  # primes below this are tried as factors
_NEAR = 1000  # steps from the root of a modulus within which equal or close factors are tried
_SURPLUS_BYTES = 16  # so that reduction modulo n is uniform up to 2^-128

RandomBytes = Callable[[int], bytes]
"""Draws this many uniform bytes: the service passes the operating system's generator, a test a fixed stream."""


class ObfuscatorSource(Protocol):
    """A stock of r^n mod n^2, each handed out at most once, across restarts and crashes."""

    def take(self, key: PaillierPublicKey, count: int) -> Sequence[int]:
        """Return obfuscators for ``key`` that nobody else gets. Raises OwnKeyError(obfuscators_exhausted)."""


class FreshObfuscators:
    """A source without a stock: one exponentiation for each obfuscator on demand, for tests and small answers."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes

    def take(self, key: PaillierPublicKey, count: int) -> Sequence[int]:
        """Compute obfuscators that nobody has seen before."""
        return make_obfuscators(key, count, self._random_bytes)


def require_gmpy2() -> None:
    """Raise OwnKeyError(gmpy2_missing) unless `phe` computes with gmpy2."""
    if gmpy2 is None or not phe.util.HAVE_GMP:
        raise OwnKeyError("phe computes without gmpy2; install gmpy2", reason=Reason.GMPY2_MISSING)


def require_key_bits(bits: int) -> int:
    """Return the size of a key if it is 2048 to 8192 bits in whole bytes. Raises KeyMaterialError(wrong_key_size)."""
    if not MIN_KEY_BITS <= bits <= MAX_KEY_BITS or bits % 8:
        raise KeyMaterialError(
            f"a key has {MIN_KEY_BITS} to {MAX_KEY_BITS} bits, in whole bytes, not {bits}", reason=Reason.WRONG_KEY_SIZE
        )
    return bits


def generate_key(bits: int) -> PaillierPrivateKey:
    """Draw a key pair from the operating system's generator; ``.public_key.n`` is its public half."""
    require_gmpy2()
    return generate_paillier_keypair(n_length=require_key_bits(bits))[1]


def public_key(n: int) -> PaillierPublicKey:
    """Return the public key of a modulus. Raises KeyMaterialError if its size is not allowed or it is even."""
    require_gmpy2()
    require_key_bits(n.bit_length())
    if n % 2 == 0:
        raise KeyMaterialError("the modulus is even", reason=Reason.WRONG_KEY)
    return PaillierPublicKey(n)


def private_key(p: int, q: int) -> PaillierPrivateKey:
    """Return the key pair of two different odd primes (their primality is not tested)."""
    if p == q:
        raise KeyMaterialError("the factors are equal", reason=Reason.WRONG_KEY)
    return PaillierPrivateKey(public_key(p * q), p, q)


def check_moduli(moduli: Mapping[str, int]) -> None:
    """Raise KeyMaterialError(weak_key), naming the key holder, if a modulus is no product of two secret primes.

    ``moduli`` are by the key holders' names. All weaknesses that are visible without the factors are refused: moduli
    that are equal or share a factor, that are even, prime, a power, have a factor below 2^16, or two factors so close
    that Fermat's method finds them at once.
    """
    require_gmpy2()
    for name, n in moduli.items():
        if weakness := _weakness(n):
            raise KeyMaterialError(f"the modulus of {name} {weakness}", reason=Reason.WEAK_KEY)
    for (name, n), (other, m) in combinations(moduli.items(), 2):
        if n == m:
            raise KeyMaterialError(f"{name} and {other} have the same modulus", reason=Reason.WEAK_KEY)
        if gmpy2.gcd(n, m) != 1:
            raise KeyMaterialError(f"the moduli of {name} and {other} share a factor", reason=Reason.WEAK_KEY)


@lru_cache(64)
def _weakness(n: int) -> str | None:
    """Return why a modulus is visibly weak, in words; None if it is not."""
    number = gmpy2.mpz(n)
    if number % 2 == 0:
        return "is even"
    if (factor := gmpy2.gcd(number, _small_primes())) != 1:
        return "is the product of small primes" if factor == number else "has a small factor"
    if gmpy2.is_power(number):
        return "is a power"
    if gmpy2.is_prime(number):
        return "is a prime"
    root = gmpy2.isqrt(number)
    if any(gmpy2.is_square((root + step) ** 2 - number) for step in range(1, _NEAR)):
        return "has factors that are close to each other"
    return None


@cache
def _small_primes() -> int:
    """Return the product of all primes below 2^16."""
    return int(gmpy2.primorial(_SMALL))


def make_obfuscators(key: PaillierPublicKey, count: int, random_bytes: RandomBytes) -> list[int]:
    """Draw ``count`` obfuscators r^n mod n^2; one exponentiation each, without the interpreter's lock."""
    width = key.n.bit_length() // 8 + _SURPLUS_BYTES
    bases = [int.from_bytes(random_bytes(width)) % key.n for _ in range(count)]
    return check_units(key, [int(value) for value in gmpy2.powmod_base_list(bases, key.n, key.nsquare)])


def encrypt_blocks(key: PaillierPublicKey, blocks: Sequence[int], obfuscators: Sequence[int]) -> list[int]:
    """Encrypt plaintexts below n, each under its own obfuscator."""
    nsquare = gmpy2.mpz(key.nsquare)
    return [
        int(key.raw_encrypt(block, r_value=1) * gmpy2.mpz(obfuscator) % nsquare)
        for block, obfuscator in zip(blocks, obfuscators, strict=True)
    ]


def add_blocks(key: PaillierPublicKey, vectors: Sequence[Sequence[int]]) -> list[int]:
    """Return ciphertexts of the block-wise sum of the plaintexts: products modulo n^2, not re-randomised."""
    nsquare = gmpy2.mpz(key.nsquare)
    totals = [gmpy2.mpz(1)] * len(vectors[0])
    for vector in vectors:
        totals = [total * block % nsquare for total, block in zip(totals, vector, strict=True)]
    return [int(total) for total in totals]


def decrypt_blocks(key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
    """Decrypt ciphertexts: ``key.raw_decrypt`` of each, after checking it.

    Each block is decrypted on its own, so callers may cut the blocks into chunks and run them side by side; the
    exponentiations release the interpreter's lock, so threads suffice.
    """
    blocks = check_units(key.public_key, blocks)
    modulo_p = _decrypt_modulo(key, blocks, key.p, key.psquare, key.hp)
    modulo_q = _decrypt_modulo(key, blocks, key.q, key.qsquare, key.hq)
    return [int(key.crt(a, b)) for a, b in zip(modulo_p, modulo_q, strict=True)]


def _decrypt_modulo(key: PaillierPrivateKey, blocks: Sequence[int], p: int, psquare: int, h: int) -> list[int]:
    """Return the plaintexts modulo one prime factor (Paillier 1999, section 7)."""
    powers = gmpy2.powmod_base_list(blocks, p - 1, psquare)
    return [int(key.l_function(power, p) * h % p) for power in powers]


def check_units(key: PaillierPublicKey, blocks: Sequence[int]) -> list[int]:
    """Return the blocks if each lies between 0 and n^2 and is coprime to n. Raises BlobError(out_of_range, not_a_unit).

    0 and the multiples of n fail: decrypting one would yield the private key.
    """
    if not all(0 <= block < key.nsquare for block in blocks):
        raise BlobError("a ciphertext is not below n squared", reason=Reason.OUT_OF_RANGE)
    n = gmpy2.mpz(key.n)
    product = gmpy2.mpz(1)
    for block in blocks:
        product = product * block % n
    # A product is coprime to n exactly if every factor is.
    if gmpy2.gcd(product, n) != 1:
        raise BlobError("a ciphertext shares a factor with the key", reason=Reason.NOT_A_UNIT)
    return list(blocks)


def blocks_to_blob(blocks: Sequence[int], width: int) -> bytes:
    """Concatenate integers as big-endian numbers of ``width`` bytes each."""
    return b"".join(block.to_bytes(width) for block in blocks)


def blocks_from_blob(blob: bytes, width: int, count: int) -> list[int]:
    """Cut a blob into ``count`` integers of ``width`` bytes. Raises BlobError(wrong_length)."""
    if len(blob) != width * count:
        raise BlobError(f"a blob of {len(blob)} bytes instead of {width * count}", reason=Reason.WRONG_LENGTH)
    return [int.from_bytes(blob[start : start + width]) for start in range(0, len(blob), width)]
