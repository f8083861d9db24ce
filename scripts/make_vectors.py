"""Regenerate the golden vectors of the secure sum in tests/vectors/secure_sum, one file an operation.

Every random choice comes from a stream SHA-256(label, 0) | SHA-256(label, 1) | ... with the counter in 8 big-endian
bytes, so the files never change unless the protocol does. Integers and bytes are hexadecimal; plaintext blocks are
numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import gmpy2
import numpy as np
from phe import PaillierPrivateKey

from parley.common.secure_sum import packing as pad
from parley.common.secure_sum import paillier
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.messages import Contribution, Message, Open, Opened, Roster, SumQuery
from parley.common.secure_sum.packing import OFFSET, Layout, decode, encode
from parley.party.keyholder.vault import seal_key

FOLDER = Path(__file__).parents[1] / "tests" / "vectors" / "secure_sum"
KEY_BITS = 2048
Vector = dict[str, object]


class Stream:
    """Deterministic bytes of a label: called with a count, it draws that many."""

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._counter = 0
        self._buffer = b""

    def __call__(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the stream."""
        while len(self._buffer) < count:
            self._buffer += hashlib.sha256(self._label + self._counter.to_bytes(8)).digest()
            self._counter += 1
        drawn, self._buffer = self._buffer[:count], self._buffer[count:]
        return drawn


def keys() -> Vector:
    """Two test keys. Never use them for anything else: everyone has them."""

    def prime(label: str) -> str:
        start = int.from_bytes(Stream(label)(KEY_BITS // 16)) | 3 << (KEY_BITS // 2 - 2)
        return f"{int(gmpy2.next_prime(start)):x}"

    return {f"key-{j}": {"p": prime(f"key-{j} p"), "q": prime(f"key-{j} q")} for j in (1, 2)}


def stored_keys() -> list[PaillierPrivateKey]:
    """Return the test keys as they are stored."""
    stored = json.loads((FOLDER / "keys.json").read_text())
    return [paillier.private_key(int(stored[name]["p"], 16), int(stored[name]["q"], 16)) for name in sorted(stored)]


def packing() -> Vector:
    """Integers to plaintexts, and the sum of k times the same plaintexts back."""
    edge = OFFSET - 1
    cases = {
        "one value": [7],
        "signs": [0, 1, -1, 2**32, -(2**32)],
        "edges": [edge, -edge],
        "a full block": list(range(-15, 15)),
        "one lane into the second block": list(range(31)),
    }
    return {name: _packing_case(values) for name, values in cases.items()}


def _packing_case(values: list[int]) -> Vector:
    """One answer, its plaintexts, and the decoded sum of 1,024 such answers."""
    layout, k = Layout(len(values), KEY_BITS), 1024
    blocks = encode(np.array(values), layout)
    totals = [k * block for block in blocks]
    return {
        "key_bits": KEY_BITS,
        "values": values,
        "blocks": _hexes(blocks),
        "contributors": k,
        "totals": _hexes(totals),
        "sum": decode(totals, k, layout).tolist(),
    }


def padding() -> Vector:
    """Plaintexts split between a learner and one or two key holders."""
    layout = Layout(40, KEY_BITS)
    plaintexts = encode(np.arange(40) - 20, layout)
    cases: Vector = {}
    for m in (1, 2):
        seeds = [Stream(f"pad {m} {i}")(pad.SEED_BYTES) for i in range(m)]
        cases[f"{m} key holders"] = {
            "key_bits": KEY_BITS,
            "d": 40,
            "plaintexts": _hexes(plaintexts),
            "seeds": [seed.hex() for seed in seeds],
            "pad": _hexes(pad.expand(seeds[0], layout)),
            "shares": [_hexes(share) for share in pad.split(plaintexts, seeds, layout)],
        }
    return cases


def encryption() -> Vector:
    """Obfuscators, ciphertexts, their product, its decryption; a key sealed under a secret."""
    key = stored_keys()[0]
    public = key.public_key
    plaintexts = [0, 1, 2**1984 - 1]
    draws = Stream("obfuscators")(3 * (KEY_BITS // 8 + 16))
    obfuscators = paillier.make_obfuscators(public, 3, Stream("obfuscators"))
    ciphertexts = paillier.encrypt_blocks(public, plaintexts, obfuscators)
    product = paillier.add_blocks(public, [[block] for block in ciphertexts])
    return {
        "n": f"{public.n:x}",
        "draws": draws.hex(),
        "plaintexts": _hexes(plaintexts),
        "obfuscators": _hexes(obfuscators),
        "ciphertexts": _hexes(ciphertexts),
        "product": _hexes(product),
        "sum": _hexes(paillier.decrypt_blocks(key, product)),
        "secret": b"secret".hex(),
        "sealed": seal_key(key, b"secret", Stream("seal")).hex(),
    }


def session() -> Vector:
    """One round of three parties, where two contribute, and two key holders: every message as it travels."""
    local = LocalSession.start(stored_keys(), parties=3, d=40, minimum_contributors=2, random_bytes=Stream("session"))
    answers = {"party-1": np.arange(40), "party-3": -2 * np.arange(40)}
    question = local.ask(round=1)
    contributions = {name: local.contribute(name, question, values) for name, values in answers.items()}
    for contribution in contributions.values():
        local.learner.receive(contribution)
    requests = local.learner.open(answers)
    opened = [holder.open(request) for holder, request in zip(local.key_holders, requests, strict=True)]
    return {
        "signing_keys": {
            name: identity.signing_key.private_bytes_raw().hex() for name, identity in local.identities.items()
        },
        "answers": {name: values.tolist() for name, values in answers.items()},
        "roster": _travelling(local.learner.propose(), Roster),
        "query": _travelling(question, SumQuery),
        "contributions": [_travelling(contribution, Contribution) for contribution in contributions.values()],
        "open": [_travelling(request, Open) for request in requests],
        "opened": [_travelling(answer, Opened) for answer in opened],
        "sum": local.learner.close(opened).values.tolist(),
    }


def _travelling(signed: Signed, kind: type[Message]) -> Vector:
    """Return a message's fields, its hash and its frame."""
    message = kind.parse(signed.body)
    return {"tag": kind.TAG, "fields": asdict(message), "digest": message.digest, "frame": signed.to_bytes().hex()}


def _hexes(numbers: list[int]) -> list[str]:
    """Return numbers in hexadecimal."""
    return [f"{number:x}" for number in numbers]


VECTORS: dict[str, Callable[[], Vector]] = {
    "keys": keys,
    "packing": packing,
    "pad": padding,
    "paillier": encryption,
    "session": session,
}


def spell(vector: Vector) -> str:
    """Return a vector as its file holds it."""
    return json.dumps(vector, indent=1) + "\n"


if __name__ == "__main__":
    for name, make in VECTORS.items():
        (FOLDER / f"{name}.json").write_text(spell(make()))
        print(f"{name}.json")
