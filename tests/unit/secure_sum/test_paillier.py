from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import phe.util
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import PaillierPrivateKey

from parley.common.secure_sum import paillier
from parley.common.secure_sum.errors import KeyMaterialError, Reason
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS
from parley.party.keyholder import vault

Refused = Callable[[Reason], AbstractContextManager[object]]


def encrypt(key: PaillierPrivateKey, blocks: list[int], seed: int = 0) -> list[int]:
    obfuscators = paillier.make_obfuscators(key.public_key, len(blocks), random.Random(seed).randbytes)
    return paillier.encrypt_blocks(key.public_key, blocks, obfuscators)


@given(data=st.data())
@settings(max_examples=15, deadline=None)
@pytest.mark.slow
def test_decryption_is_that_of_phe(data: st.DataObject, keys: list[PaillierPrivateKey]) -> None:
    key = keys[0]
    blocks = data.draw(st.lists(st.integers(0, 2**1994), min_size=1, max_size=3))
    ciphertexts = encrypt(key, blocks)
    assert paillier.decrypt_blocks(key, ciphertexts) == blocks
    assert [key.raw_decrypt(ciphertext) for ciphertext in ciphertexts] == blocks


def test_blocks_may_be_decrypted_in_chunks(keys: list[PaillierPrivateKey]) -> None:
    ciphertexts = encrypt(keys[0], [1, 2, 3])
    chunks = paillier.decrypt_blocks(keys[0], ciphertexts[:1]) + paillier.decrypt_blocks(keys[0], ciphertexts[1:])
    assert chunks == [1, 2, 3]


def test_products_decrypt_to_sums(keys: list[PaillierPrivateKey]) -> None:
    product = paillier.add_blocks(keys[0].public_key, [encrypt(keys[0], [1, 10]), encrypt(keys[0], [2, 20], seed=1)])
    assert paillier.decrypt_blocks(keys[0], product) == [3, 30]


def test_what_phe_gives_away_and_this_layer_refuses(keys: list[PaillierPrivateKey], refused: Refused) -> None:
    """`raw_decrypt` of 0 gives (p + q)^-1 mod n, from which follow p and q."""
    key = keys[0]
    n = key.public_key.n
    p_plus_q = pow(key.raw_decrypt(0), -1, n)
    p_minus_q = math.isqrt(p_plus_q**2 - 4 * n)
    assert {(p_plus_q + p_minus_q) // 2, (p_plus_q - p_minus_q) // 2} == {key.p, key.q}
    for ciphertext in (0, n, 2 * n, key.p, key.q * n):
        with refused(Reason.NOT_A_UNIT):
            paillier.decrypt_blocks(key, [encrypt(key, [1])[0], ciphertext])


@pytest.mark.parametrize("offset", [0, 1])
def test_ciphertexts_out_of_range_are_refused(offset: int, keys: list[PaillierPrivateKey], refused: Refused) -> None:
    for ciphertext in (keys[0].public_key.nsquare + offset, -1 - offset):
        with refused(Reason.OUT_OF_RANGE):
            paillier.check_units(keys[0].public_key, [ciphertext])


@pytest.mark.parametrize("bits", [0, 1024, 2047, 2049, 16384])
def test_keys_of_other_sizes_are_refused(bits: int, refused: Refused) -> None:
    with refused(Reason.WRONG_KEY_SIZE):
        paillier.generate_key(bits)
    with refused(Reason.WRONG_KEY_SIZE):
        paillier.public_key((1 << bits) - 1)


def test_malformed_keys_are_refused(keys: list[PaillierPrivateKey], refused: Refused) -> None:
    with refused(Reason.WRONG_KEY):
        paillier.public_key(keys[0].public_key.n - 1)
    with refused(Reason.WRONG_KEY):
        paillier.private_key(keys[0].p, keys[0].p)


def test_a_generated_key_works() -> None:
    key = paillier.generate_key(2048)
    assert key.public_key.n.bit_length() == 2048
    assert paillier.decrypt_blocks(key, encrypt(key, [42])) == [42]


def test_phe_without_gmpy2_is_refused(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    with monkeypatch.context() as patch, refused(Reason.GMPY2_MISSING):
        patch.setattr(phe.util, "HAVE_GMP", False)
        paillier.generate_key(DEFAULT_KEY_BITS)
    with monkeypatch.context() as patch, refused(Reason.GMPY2_MISSING):
        patch.setattr(paillier, "gmpy2", None)
        paillier.public_key(3)


@pytest.mark.slow
def test_a_key_at_rest(keys: list[PaillierPrivateKey], refused: Refused) -> None:
    key = keys[0]
    sealed = vault.seal_key(key, b"secret", random.Random(0).randbytes)
    assert vault.unseal_key(sealed, b"secret") == key
    for part in (key.p, key.q):
        assert part.to_bytes(128) not in sealed
    altered = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for data, secret in [(sealed, b"other"), (altered, b"secret"), (sealed[:40], b"secret"), (b"", b"secret")]:
        with refused(Reason.KEY_FILE_CORRUPT):
            vault.unseal_key(data, secret)


def test_obfuscators_differ_and_hide_the_plaintext(keys: list[PaillierPrivateKey]) -> None:
    source = paillier.FreshObfuscators(random.Random(0).randbytes)
    taken = [*source.take(keys[0].public_key, 3), *source.take(keys[0].public_key, 3)]
    assert len(set(taken)) == 6
    assert len(set(paillier.encrypt_blocks(keys[0].public_key, [0] * 6, taken))) == 6


def test_blobs_have_one_spelling(refused: Refused) -> None:
    blob = paillier.blocks_to_blob([1, 2**16 - 1], 2)
    assert blob == b"\x00\x01\xff\xff"
    assert paillier.blocks_from_blob(blob, 2, 2) == [1, 2**16 - 1]
    for other in (b"\0" + blob, blob[1:], blob + blob):
        with refused(Reason.WRONG_LENGTH):
            paillier.blocks_from_blob(other, 2, 2)


def test_refusals_carry_no_private_number(keys: list[PaillierPrivateKey]) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        paillier.private_key(keys[0].p, keys[0].p)
    assert str(keys[0].p) not in str(caught.value)
    assert f"{keys[0].p:x}" not in str(caught.value)
