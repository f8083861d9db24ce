"""The golden vectors: what this code makes is what is stored, and what is stored is what the definitions say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from phe import PaillierPrivateKey

from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Contribution, Message, Open, Opened, Roster, SumQuery
from parley.party.keyholder import vault

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_vectors", ROOT / "scripts" / "make_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["keys", "packing", "pad", "paillier", "session"])
def test_the_script_makes_what_is_stored(name: str, script: ModuleType) -> None:
    stored = (ROOT / "tests" / "vectors" / "secure_sum" / f"{name}.json").read_text()
    assert script.spell(script.VECTORS[name]()) == stored


def numbers(hexes: list[str]) -> list[int]:
    return [int(number, 16) for number in hexes]


def test_packing_by_definition(vectors: dict[str, Any]) -> None:
    for case in vectors["packing"].values():
        values, k, lanes = case["values"], case["contributors"], (case["key_bits"] - 11) // 64
        blocks = [
            1 + sum((value + 2**53) << (64 * lane) for lane, value in enumerate(values[start : start + lanes - 1], 1))
            for start in range(0, len(values), lanes - 1)
        ]
        assert numbers(case["blocks"]) == blocks
        assert numbers(case["totals"]) == [k * block for block in blocks]
        assert case["sum"] == [k * value for value in values]


def test_pads_by_definition(vectors: dict[str, Any]) -> None:
    for case in vectors["pad"].values():
        parts = [numbers(case["pad"]), *map(numbers, case["shares"])]
        assert [sum(blocks) % 2**1984 for blocks in zip(*parts, strict=True)] == numbers(case["plaintexts"])


@pytest.mark.slow
def test_paillier_by_definition(vectors: dict[str, Any], keys: list[PaillierPrivateKey]) -> None:
    """Paillier 1999: c = (1 + n)^m r^n mod n^2, m = L(c^lambda mod n^2) / lambda mod n."""
    case, key = vectors["paillier"], keys[0]
    n = int(case["n"], 16)
    draws, width = bytes.fromhex(case["draws"]), 2048 // 8 + 16
    r = [int.from_bytes(draws[start : start + width]) % n for start in range(0, len(draws), width)]
    assert numbers(case["obfuscators"]) == [pow(base, n, n * n) for base in r]
    for m, base, c in zip(numbers(case["plaintexts"]), r, numbers(case["ciphertexts"]), strict=True):
        assert c == pow(1 + n, m, n * n) * pow(base, n, n * n) % (n * n)
    product = 1
    for c in numbers(case["ciphertexts"]):
        product = product * c % (n * n)
    assert numbers(case["product"]) == [product]
    totient = (key.p - 1) * (key.q - 1)
    m = (pow(product, totient, n * n) - 1) // n * pow(totient, -1, n) % n
    assert numbers(case["sum"]) == [m] == [sum(numbers(case["plaintexts"]))]
    assert vault.unseal_key(bytes.fromhex(case["sealed"]), bytes.fromhex(case["secret"])) == key


def test_messages_as_they_travel(vectors: dict[str, Any]) -> None:
    session = vectors["session"]
    roster = Roster.parse(Signed.from_bytes(bytes.fromhex(session["roster"]["frame"])).body)
    parties = [roster.party(entry["fields"]["party"]) for entry in session["contributions"]]
    travelled: list[tuple[type[Message], dict[str, Any], str]] = [
        (Roster, session["roster"], roster.learner),
        (SumQuery, session["query"], roster.learner),
        *((Contribution, entry, who.key) for entry, who in zip(session["contributions"], parties, strict=True)),
        *((Open, entry, roster.learner) for entry in session["open"]),
        *((Opened, entry, who.key) for entry, who in zip(session["opened"], roster.key_holders, strict=True)),
    ]
    for kind, entry, key in travelled:
        assert entry["tag"] == kind.TAG
        message = kind.read(Signed.from_bytes(bytes.fromhex(entry["frame"])), key)
        assert message.digest == entry["digest"]
        assert kind.from_json(entry["fields"]) == message
    assert session["sum"] == [sum(column) for column in zip(*session["answers"].values(), strict=True)]
