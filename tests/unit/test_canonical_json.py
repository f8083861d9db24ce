"""JSON with one meaning, read by either of Python's two scanners: a long text by the one that lets others run."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.encoding import canonical_json
from parley.common.encoding.canonical_json import UnhurriedEncoder, canonical, canonical_digest, own_json, read_json
from parley.common.errors import TooLargeError

MANY = 2**16 + 1
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture(params=[MANY, -1], ids=["C", "Python"])
def scanner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has short texts read by one of the scanners."""
    monkeypatch.setattr(canonical_json, "_MANY_NAMES", request.param)


@given(JSON_VALUES, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-le"]))
@pytest.mark.long
def test_both_scanners_read_the_same(value: object, encoding: str) -> None:
    body = json.dumps(value, ensure_ascii=False).encode(encoding, "surrogatepass")
    outcomes: list[object] = []
    for many in (MANY, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(canonical_json, "_MANY_NAMES", many)
            try:
                outcomes.append(read_json(body))
            except ValueError:
                outcomes.append(ValueError)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "text",
    [
        "", "1 2", "NaN", "-Infinity", "[1,]", "{'a': 1}", '{"a": 1, "a": 2}', "01", "+1", "1.", ".5", "1e999",
        "\u0661", "1\u0662", "1.\u0663", "1e\u0664", "9" * 400, '"\\ud800"', '"\n"', "\ufeff\ufeff1", "\u00a01", "tru",
        "[" * 100_000,
    ],
)  # fmt: skip
@pytest.mark.usefixtures("scanner")
def test_both_scanners_refuse_what_is_no_json(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_json(text.encode("utf-8", "surrogatepass"))


def calls_in(work: Callable[[], object], kind: str) -> int:
    """How many calls of a kind, by its name for `sys.setprofile`, some work makes."""
    n_calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal n_calls
        n_calls += event == kind

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return n_calls


@pytest.mark.parametrize("value", [b"null", b'""', b"[]"])
@pytest.mark.long
def test_a_long_object_is_read_name_by_name(value: bytes) -> None:
    """Between two calls from Python other threads have their turn."""
    body = b"{" + b",".join(b'"%d":%s' % (number, value) for number in range(MANY)) + b"}"
    assert calls_in(lambda: read_json(body), "c_call") > MANY


def test_an_object_has_no_more_names_than_any() -> None:
    body = b'{"x":{' + b",".join(b'"%d":0' % number for number in range(2**17 + 1)) + b"}}"
    with pytest.raises(TooLargeError, match="an object in JSON may have at most 131072 names"):
        read_json(body)


@given(JSON_VALUES, st.booleans())
def test_what_is_spelt_text_by_text_is_spelt_as_ever(value: object, ensure_ascii: bool) -> None:  # noqa: FBT001 -- drawn
    text = UnhurriedEncoder(ensure_ascii=ensure_ascii).encode(value)
    assert text == json.dumps(value, ensure_ascii=ensure_ascii)
    for many in (MANY, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(canonical_json, "_MANY_NAMES", many)
            assert own_json(text) == value == own_json(text.encode("utf-8", "surrogatepass"))
    if "\\ud" not in json.dumps(value):
        assert canonical_digest(value) == hashlib.sha256(canonical(value)).hexdigest()


def test_what_has_a_digest_is_spelt_text_by_text() -> None:
    """Between two calls of Python other threads have their turn."""
    value = {"study": {"features": [{"name": str(number)} for number in range(100)]}}
    assert calls_in(lambda: canonical_digest(value), "call") > 200
