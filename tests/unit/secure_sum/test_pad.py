from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import PaillierPrivateKey
from scipy.stats import chisquare

from parley.common.secure_sum.packing import (
    MAX_CONTRIBUTORS,
    OFFSET,
    SEED_BYTES,
    Layout,
    add,
    decode,
    encode,
    expand,
    split,
)
from parley.common.secure_sum.paillier import (
    add_blocks,
    decrypt_blocks,
    encrypt_blocks,
    make_obfuscators,
)

FALSE_ALARM = 1e-6
seeds = st.binary(min_size=SEED_BYTES, max_size=SEED_BYTES)


def test_the_pad_is_the_chacha20_key_stream() -> None:
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter all zero."""
    expected = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    (block,) = expand(bytes(32), Layout(1, 2048))
    assert block.to_bytes(248, "little").startswith(expected)


def test_blocks_have_different_pads() -> None:
    pads = expand(bytes(32), Layout(100, 2048))
    assert len(set(pads)) == len(pads) == 4


@given(
    st.lists(st.integers(0, 2**1984 - 1), min_size=2, max_size=2), st.lists(seeds, min_size=1, max_size=4, unique=True)
)
def test_all_parts_add_up_to_the_plaintext(plaintexts: list[int], parts: list[bytes]) -> None:
    layout = Layout(60, 2048)
    shares = split(plaintexts, parts, layout)
    assert len(shares) == len(parts)
    assert all(0 <= block < layout.modulus for share in shares for block in share)
    assert add([expand(parts[0], layout), *shares], layout) == plaintexts


@given(st.lists(st.tuples(seeds, seeds), min_size=1, max_size=5), st.integers(1, 70), st.integers(0, 2**32))
@settings(max_examples=30)
def test_sums_of_parts_are_parts_of_the_sum(parties: list[tuple[bytes, bytes]], d: int, seed: int) -> None:
    layout, rng = Layout(d, 2048), np.random.default_rng(seed)
    answers = rng.integers(-OFFSET + 1, OFFSET, (len(parties), d))
    parts = [split(encode(a, layout), pair, layout) for a, pair in zip(answers, parties, strict=True)]
    pads = add([expand(pair[0], layout) for pair in parties], layout)
    sums = [add([shares[j] for shares in parts], layout) for j in range(2)]
    assert np.array_equal(decode(add([pads, *sums], layout), len(parties), layout), answers.sum(axis=0))


def byte_p_value(blocks: list[int]) -> float:
    """How likely uniform bytes are at least this uneven."""
    data = b"".join(block.to_bytes(248, "little") for block in blocks)
    return float(chisquare(np.bincount(np.frombuffer(data, np.uint8), minlength=256)).pvalue)


@pytest.mark.parametrize("value", [-OFFSET + 1, 0, OFFSET - 1])
@pytest.mark.slow
def test_a_key_holder_that_decrypts_one_ciphertext_sees_uniform_noise(
    value: int, keys: list[PaillierPrivateKey]
) -> None:
    """False alarm 1e-6; the same test rejects the plaintext without its pad."""
    key, draw, layout = keys[0], random.Random(value).randbytes, Layout(30, 2048)
    plaintexts = encode(np.full(30, value), layout)
    seen = []
    for _ in range(60):
        (share,) = split(plaintexts, [draw(SEED_BYTES)], layout)
        ciphertexts = encrypt_blocks(key.public_key, share, make_obfuscators(key.public_key, 1, draw))
        seen += decrypt_blocks(key, ciphertexts)
    p_value = byte_p_value(seen)
    print(f"one ciphertext decrypted, all values {value}: p = {p_value:.3f} that its {60 * 248} bytes are uniform")
    assert p_value > FALSE_ALARM
    assert byte_p_value(plaintexts * 60) < FALSE_ALARM


def test_1024_parties_at_the_edge_through_encryption(keys: list[PaillierPrivateKey]) -> None:
    key, draw, layout = keys[0], random.Random(0).randbytes, Layout(30, 2048)
    values = np.resize([OFFSET - 1, -OFFSET + 1, 0], 30)
    # One obfuscator for all: this is about carries, not about secrecy.
    obfuscators = make_obfuscators(key.public_key, 1, draw)
    parts = [
        (seed, split(encode(values, layout), [seed], layout)[0]) for seed in map(draw, [SEED_BYTES] * MAX_CONTRIBUTORS)
    ]
    product = add_blocks(key.public_key, [encrypt_blocks(key.public_key, share, obfuscators) for _, share in parts])
    (total,) = decrypt_blocks(key, product)
    assert total == sum(share[0] for _, share in parts) > layout.modulus  # no wrap modulo n, and carries to cut off
    sums = [total % layout.modulus]
    opened = decode(add([*(expand(seed, layout) for seed, _ in parts), sums], layout), MAX_CONTRIBUTORS, layout)
    assert np.array_equal(opened, MAX_CONTRIBUTORS * values)
