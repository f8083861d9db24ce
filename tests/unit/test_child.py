"""Arrays from a child process arrive as they were sent; what goes wrong there is told here, without its text."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from parley.common.errors import InvalidDataError, InvalidInputError, ParleyError, TooLargeError
from parley.common.service.child import AnyArray, ChildBounds, _reported_error, receive_arrays

pytestmark = pytest.mark.long

CHILD = """
import os, sys
import numpy as np
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.service.child import ChildBounds, allow_seconds, send_arrays
def make():
    yield np.arange(6.0).reshape(2, 3)
{rest}
send_arrays(make{bounds})
"""
WITHIN = ChildBounds(memory=2**26, processor_seconds=1, seconds=60.0)


def _write(folder: Path, rest: str, bounds: str = "") -> None:
    (folder / "sender.py").write_text(CHILD.format(rest=f"    {rest}", bounds=bounds), encoding="utf-8")


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module that sends an array, then does what the parameter says."""
    _write(tmp_path, request.param)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "sender"


@pytest.mark.parametrize(
    "child", ["import pyarrow; pyarrow.array(['']); yield np.array('pandas' in sys.modules)"], indirect=True
)
def test_a_table_s_time_is_not_spent_on_pandas(child: str) -> None:
    *_, has_pandas = receive_arrays(child)
    assert not has_pandas


@pytest.mark.parametrize(
    "child",
    ["yield from (np.zeros((0, 3)), np.float32(sys.argv[1]), np.ones((2, 2)).T, np.array([True]))"],
    indirect=True,
)
def test_arrays_arrive_as_they_were_sent(child: str) -> None:
    received = list(receive_arrays(child, "1.5"))
    expected: list[AnyArray] = [
        np.arange(6.0).reshape(2, 3),
        np.zeros((0, 3)),
        np.array(1.5, np.float32),
        np.ones((2, 2)),
        np.array([True]),
    ]
    for got, sent in zip(received, expected, strict=True):
        assert got.dtype == sent.dtype
        np.testing.assert_array_equal(got, sent)
        assert got.flags.writeable


RESIDENT = "int(open('/proc/self/statm').read().split()[1])"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells what a process holds")
@pytest.mark.parametrize(
    "child",
    [f"x = np.arange(2**23); had = {RESIDENT}; yield x; yield np.array([had - {RESIDENT}, x[1000], x[-1000]])"],
    indirect=True,
)
def test_what_was_sent_is_given_back(child: str) -> None:
    _, sent, (pages, *left) = receive_arrays(child)
    assert np.array_equal(sent, np.arange(2**23))
    assert pages > 0.9 * sent.nbytes / mmap.PAGESIZE
    assert left == [0, 0]


@pytest.mark.parametrize(
    "child", ["import pyarrow as pa; yield np.array([pa.default_memory_pool().backend_name])"], indirect=True
)
def test_arrow_keeps_no_memory_for_later(child: str) -> None:
    assert list(receive_arrays(child))[1].tolist() == ["system"]


@pytest.mark.parametrize(
    ("child", "expected", "words"),
    [
        ("raise InvalidDataError('column age is missing')", InvalidDataError, "column age is missing"),
        ("raise InvalidInputError('the study cannot be used')", InvalidInputError, "the study cannot be used"),
    ],
    indirect=["child"],
)
@pytest.mark.slow
def test_a_refusal_is_raised_again(child: str, expected: type[ParleyError], words: str) -> None:
    with pytest.raises(expected) as refused:
        list(receive_arrays(child))
    assert refused.type is expected
    assert refused.value.detail == words


@pytest.mark.parametrize("child", ["raise ZeroDivisionError('age is thirty-seven')"], indirect=True)
@pytest.mark.slow
def test_another_error_keeps_its_text_in_the_child(child: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParleyError, match=r"ZeroDivisionError at .*sender\.py:8") as failed:
        list(receive_arrays(child))
    assert "thirty" not in failed.value.detail + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "child",
    ["yield np.array([object()])", "os._exit(9)", 'os.write(1, b\'{"dtype": "<f8", "shape": [9]}\\n1\'); os._exit(0)'],
    indirect=True,
)
def test_a_child_that_fails_or_dies_is_no_end_of_the_arrays(child: str) -> None:
    with pytest.raises(ParleyError):
        list(receive_arrays(child))


@pytest.mark.parametrize("child", ["yield np.zeros(2**20); os.kill(os.getpid(), 19); yield np.zeros(1)"], indirect=True)
def test_a_child_that_is_no_longer_wanted_is_ended(child: str) -> None:
    arrays = receive_arrays(child)
    next(arrays)
    arrays.close()  # returns, though the child will never end by itself


@pytest.mark.parametrize(
    ("rest", "expected", "words"),
    [
        ("yield np.ones(2**24)", TooLargeError, "more than 64 MB or 1 seconds"),
        ("bytearray(2**30)", TooLargeError, "more than 64 MB or 1 seconds"),
        ("os.abort()", TooLargeError, "more than 64 MB or 1 seconds"),  # as libraries do that have no memory left
        ("os.kill(os.getpid(), 11)", InvalidDataError, "crashed"),
        ("raise SystemExit(1)", InvalidDataError, "crashed"),  # as a panic of Rust is, which is no Exception
        ("raise OverflowError('age is thirty-seven')", InvalidDataError, "cannot be read: OverflowError$"),
        ("raise InvalidDataError('column age is missing')", InvalidDataError, "^column age is missing$"),
        ("while True: pass", TooLargeError, "more than 64 MB or 1 seconds"),
    ],
)
def test_a_child_within_bounds_is_ended_and_what_was_sent_is_refused(
    rest: str, expected: type[ParleyError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, rest, f", {WITHIN}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(expected, match=words) as refused:
        list(receive_arrays("sender", bounds=WITHIN))
    assert refused.type is expected
    assert "thirty" not in refused.value.detail


def test_a_child_that_stands_still_is_ended_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "os.kill(os.getpid(), 19)", f", {WITHIN}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(TooLargeError):
        list(receive_arrays("sender", bounds=ChildBounds(memory=2**26, processor_seconds=1, seconds=1.0)))


def test_a_child_within_bounds_sends_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "allow_seconds(5); yield np.ones(2**20)", f", {WITHIN}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert [array.shape for array in receive_arrays("sender", bounds=WITHIN)] == [(2, 3), (2**20,)]


def test_memory_that_runs_out_within_bounds_is_the_fault_of_what_was_sent() -> None:
    error = _reported_error(MemoryError("secret"), ChildBounds(2**26, 3, 9.0))
    assert (type(error), error.detail) == (
        TooLargeError, "what was sent takes more than 64 MB or 3 seconds to read: send less",
    )  # fmt: skip
