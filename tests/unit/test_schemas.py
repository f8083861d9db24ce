"""What comes over the wire: specifications that name what is wrong with them, and array bodies that nobody trusts."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pydantic import JsonValue, ValidationError

from parley.common.encoding import canonical_json
from parley.common.encoding.canonical_json import canonical, canonical_digest
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.encoding.npy import pack_array, unpack_array
from parley.common.errors import InvalidInputError
from parley.common.runs.specification import Budget, Member, RunSpec

# ── one spelling, one hash ───────────────────────────────────────────────────


def test_the_hash_of_a_value_is_what_it_always_was() -> None:
    value = {"z": [1, 1.0, -0.0, 1e-7, True, None], "a": {"é": '\u2028"\\', "b": 10**20}}
    assert (
        canonical(value).decode()
        == '{"a":{"b":100000000000000000000,"é":"\u2028\\"\\\\"},"z":[1,1.0,-0.0,1e-07,true,null]}'
    )
    assert canonical_digest(value) == "581c5ff911a7677f8f3db807c51104b764e90676d005952772d77a37ac3ec6e0"
    assert canonical_digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_the_hash_of_a_long_array_is_that_of_its_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical_json, "PIECE", 4)
    for length in range(4, 14):
        for value in ([i / 3 for i in range(length)], tuple(["é", [1, 2]] * length), [[0.5] * length]):
            assert canonical_digest(value) == hashlib.sha256(canonical(value)).hexdigest()
    for rows in ([0.5, 1e-300, -0.0], [], [1 / 3] * 9):
        told: dict[str, Any] = {"b": rows, "a": {"é": 1}, "c": [rows, rows], "d": [[rows]]}
        arrays = told | {"b": np.array(rows), "c": [np.array(rows)] * 2, "d": [[np.array(rows)]]}
        assert canonical_digest(arrays) == hashlib.sha256(canonical(told)).hexdigest()
    with pytest.raises(ValueError, match="JSON"):
        canonical_digest([0.0] * 6 + [math.nan])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: "\\ud" not in json.dumps(value))


@given(JSON)
def test_canonical_json_says_the_value_and_survives_the_wire(value: JsonValue) -> None:
    spelling = canonical(value)
    assert json.loads(spelling) == value
    assert canonical(json.loads(spelling)) == spelling
    assert canonical(json.loads(json.dumps(value, indent=3))) == spelling


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", {"a": [-math.inf]}])
def test_what_has_no_spelling_has_no_hash(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON compliant|surrogates"):
        canonical_digest(value)


# ── specifications ───────────────────────────────────────────────────────────

STUDY: dict[str, Any] = {
    "name": "biopsies",
    "features": [{"name": "radius", "lower": 5, "upper": 30}, {"name": "texture", "lower": 9, "upper": 40}],
    "label": {"name": "diagnosis", "values": ["benign", "malignant"]},
}
BUDGET = {"epsilon": 0.5, "delta": 1e-5}
SPEC: dict[str, Any] = {
    "study": STUDY,
    "algorithm": "dp_gd",
    "parties": [{"name": name, "n_examples": 100, "budget": BUDGET} for name in ("north", "south", "west")],
    "minimum_contributors": 3,
}


def test_a_spec_has_one_hash_however_it_is_written() -> None:
    spec = RunSpec(**SPEC)
    assert RunSpec.model_validate_json(spec.model_dump_json()).digest == spec.digest
    assert RunSpec.model_validate_json(json.dumps(dict(reversed(SPEC.items())), indent=2)).digest == spec.digest
    explicit = SPEC | {"parameters": {}, "colluders": 0, "secure_sum": "none"}
    assert RunSpec(**explicit).digest == spec.digest


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "psgd"},
        {"parameters": {"n_rounds": 11}},
        {"minimum_contributors": 2},
        {"colluders": 1},
        {"secure_sum": "paillier"},
        {"parties": SPEC["parties"][::-1]},
        {"study": STUDY | {"row_norm": 0.5}},
        {"study": STUDY | {"features": STUDY["features"][::-1]}},
        {"study": STUDY | {"label": {"name": "diagnosis", "values": ["malignant", "benign"]}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_term_of_a_spec_is_in_its_hash(change: dict[str, Any]) -> None:
    assert RunSpec(**(SPEC | change)).digest != RunSpec(**SPEC).digest


def test_a_spec_tells_what_all_agree_on() -> None:
    spec = RunSpec(**(SPEC | {"parameters": {"n_rounds": 7}, "secure_sum": "paillier", "colluders": 1}))
    facts = spec.facts()
    assert (facts.parties, facts.n_total, facts.n_features) == (("north", "south", "west"), 300, 3)
    assert (facts.share, facts.secure_sum, facts.colluders) == (0.5, True, 1)
    assert len(spec.build().questions(facts)) == 7
    assert spec.index("south") == 1
    with pytest.raises(InvalidInputError, match="does not name the party 'east'"):
        spec.index("east")


SECRET = "4111-1111-1111"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"study": STUDY | {"features": []}}, "study.features"),
        ({"study": STUDY | {"features": STUDY["features"] * 2}}, "columns named twice: radius, texture"),
        ({"study": STUDY | {"features": [{"name": "r", "lower": 1, "upper": 1}]}}, "column 'r': lower must be below"),
        ({"study": STUDY | {"features": [{"name": "r", "lower": -1e308, "upper": 1e308}]}}, "upper - lower finite"),
        (
            {"study": STUDY | {"features": [{"name": "r", "lower": math.nan, "upper": 1}]}},
            "study.features.0.number.lower",
        ),
        (
            {"study": STUDY | {"features": [{"name": "r", "lower": SECRET, "upper": 1}]}},
            "study.features.0.number.lower",
        ),
        ({"study": STUDY | {"label": {"name": "y", "values": ["a", "a"]}}}, "label 'y': its values must be distinct"),
        ({"study": STUDY | {"label": {"name": "y", "values": ["a"]}}}, "study.label"),
        ({"study": STUDY | {"row_norm": 0}}, "study.row_norm"),
        ({"study": STUDY | {"row_norm": "each"}}, "study.row_norm"),
        ({"study": STUDY | {"loss": {"kind": "huber", "h": math.nan}}}, "study.loss.huber.h"),
        ({"study": STUDY | {"loss": {"kind": "exponential"}}}, "study.loss"),
        ({"study": STUDY | {"password": SECRET}}, "study.password"),
        ({"parties": []}, "parties"),
        ({"parties": [{"name": "north", "n_examples": 1, "budget": BUDGET}] * 3}, "a party is named twice"),
        ({"parties": [{"name": "../x", "n_examples": 1, "budget": BUDGET}]}, "parties.0.name"),
        ({"parties": [{"name": "x", "n_examples": 0, "budget": BUDGET}]}, "parties.0.n_examples"),
        ({"parties": [{"name": "x", "n_examples": MAX_EXAMPLES + 1, "budget": BUDGET}]}, "parties.0.n_examples"),
        ({"parameters": {"step": math.nan}}, "parameters must be JSON: finite numbers"),
        ({"parameters": {"step": "\ud800"}}, "parameters"),
        ({"minimum_contributors": 0}, "minimum_contributors"),
        ({"minimum_contributors": SECRET}, "minimum_contributors"),
        ({"colluders": -1}, "colluders"),
        ({"secure_sum": "trust-me"}, "secure_sum"),
        ({"secure_sum": "paillier", "minimum_contributors": 1}, "hides nothing below minimum_contributors = 2"),
        ({"seed": 7}, "seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_spec_is_told_what_is_wrong_and_no_value(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as error:
        RunSpec(**(SPEC | change))
    said = "\n".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.value.errors())
    assert named in said
    assert SECRET not in str(error.value)
    assert "input_value" not in str(error.value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-1e999"])
def test_json_with_numbers_that_are_none_is_refused(text: str) -> None:
    body = json.dumps(SPEC | {"parameters": {"step": 4711}}).replace("4711", text)
    with pytest.raises(ValidationError, match="finite numbers"):
        RunSpec.model_validate_json(body)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_a_budget_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ValidationError, match="epsilon must be positive and finite"):
        Budget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [1e-19, 1, -0.1, math.nan])
def test_a_delta_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(ValidationError, match="delta must be 0, or at least 1e-18 and below 1"):
        Member(name="x", n_examples=1, budget={"epsilon": 1, "delta": delta})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"minimum_contributors": 4}, "minimum_contributors must lie between 1 and 3, not 4"),
        ({"minimum_contributors": 2, "colluders": 2}, "colluders must lie between 0 and minimum_contributors - 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_terms_that_contradict_each_other_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        RunSpec(**(SPEC | change)).facts()


# ── array bodies ─────────────────────────────────────────────────────────────


@given(arrays(np.float64, array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5)))
def test_arrays_survive_the_wire(array: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    again = unpack_array(pack_array(array), "<f8")
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


def test_a_body_is_what_numpy_saves_in_any_order_of_memory() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(unpack_array(pack_array(np.asfortranarray(array)), "<f8"), array)
    integers = np.array([-(2**63), 2**63 - 1])
    assert unpack_array(pack_array(integers), "<i8").tolist() == integers.tolist()
    assert unpack_array(pack_array(np.zeros(0)), "<f8").shape == (0,)


def npy(shape: str, data: bytes = b"", fortran: str = "False", kind: str = "'<f8'", version: bytes = b"\1\0") -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode("latin-1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


GOOD = npy("(2,)", bytes(16))
HOSTILE = [
    b"",
    b"\x93NUMPY",
    GOOD[:20],
    GOOD[:-1],
    GOOD + b"\0",
    b"PK\3\4" + GOOD,
    npy("(2,)", bytes(16), version=b"\2\0"),
    npy("(2,)", bytes(16), version=b"\1\1"),
    npy("(2, 1)", bytes(16), fortran="True"),
    npy("(2,)", bytes(16), kind="'<i8'"),
    npy("(2,)", bytes(16), kind="'>f8'"),
    npy("(2,)", bytes(16), kind="'|O'"),
    npy("(1,)", bytes(16), kind="[('a', '<f8'), ('b', '<f8')]"),
    npy("()", bytes(8)),
    npy("(2, 1, 1)", bytes(16)),
    npy("(-1,)", bytes(8)),
    npy("(-1, -1)", bytes(8)),
    npy("(True,)", bytes(8)),
    npy("(2.0,)", bytes(16)),
    npy("(4294967296, 4294967296)"),
    npy("(9223372036854775807, 2)"),
    npy("(0, 99999999999999999999)"),
    npy("(1,)*2", bytes(8)),
    npy("(2L,)", bytes(16)),
    npy("(" * 5000),
    npy("'''"),
    npy("__import__('os').getpid()", bytes(8)),
    b"\x93NUMPY\1\0\xff\xff" + GOOD[10:],
    b"\x93NUMPY\1\0\0\0" + GOOD[10:],
]


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: f"{body[:60]!r}")
def test_hostile_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"the body (is not an \.npy array|must hold a whole array)"):
        unpack_array(body, "<f8")


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_garbled_body_is_refused_or_still_an_array(changes: list[tuple[int, int]]) -> None:
    body = bytearray(GOOD)
    for place, byte in changes:
        body[place] = byte
    try:
        array = unpack_array(bytes(body), "<f8")
    except InvalidInputError:
        return
    assert array.dtype == np.float64
    assert array.size == 2
