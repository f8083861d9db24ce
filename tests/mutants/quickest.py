"""A plugin of pytest for mutmut: the quickest tests first, as it measured them, for the first that fails will do.

Tests are left out past the first seconds in which all have passed.

mutmut runs the tests of each mutant in a copy of one process, in which all tests have run before. So what was worked
out then, and kept, is forgotten here: a mutant whose function is never called would survive. So it is before each test
where mutmut notes which functions a test calls: one that finds what another has left calls none.

Child processes of tests run the mutant too, and what they call is noted as well (`children/sitecustomize.py`).

Threads are not copied with a process: a test that waited for those of a library would never end, and mutmut takes that
for a mutant killed. So OpenMP's, which scikit-learn is built with, are told to be one, before it is loaded.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import _lru_cache_wrapper
from itertools import accumulate
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from mutmut.mutation.trampoline import get_mutant_under_test
from mutmut.state import state

os.environ["OMP_NUM_THREADS"] = "1"
_OURS = ("parley.",)
_MOST = 20.0  # seconds of the tests that try one mutant
_ALL = {"", "stats", "list_all_tests"}  # what mutmut says where it wants all tests, and tries no mutant
_ROOT = Path(__file__).parents[2]
os.environ |= {"PARLEY_MUTANTS": str(_ROOT), "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests/mutants/children'}"}
_CALLED = _ROOT / "called"
"""The functions that child processes of a test have called."""
_known: tuple[int, list[_lru_cache_wrapper[Any]]] = 0, []
"""The functions that keep their results, of so many modules."""


def _look() -> None:
    """Find the functions that keep their results, if there are more modules than before."""
    global _known  # noqa: PLW0603 -- to look through all objects takes a while
    if len(sys.modules) != _known[0]:
        gc.unfreeze()  # what tests/conftest.py set aside, too
        caches = [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]
        _known = len(sys.modules), [each for each in caches if each.__module__.startswith(_OURS)]


def _forget() -> None:
    """Forget all that our functions keep of their own results."""
    for each in _known[1]:
        each.cache_clear()


def pytest_sessionstart() -> None:
    """Of what the tests of other mutants left, with the server that starts processes for them."""
    _forget()
    server: Any = forkserver._forkserver
    server.__dict__ |= vars(forkserver.ForkServer()) | {"_preload_modules": server._preload_modules}


def pytest_runtest_setup() -> None:
    """Of what earlier tests left, where it is noted which functions are called."""
    if get_mutant_under_test() == "stats":
        _look()
        _forget()


def pytest_sessionfinish() -> None:
    """Look once for all mutants, whose processes are copies of this one: looking there would copy all of its memory."""
    if get_mutant_under_test() in _ALL:
        _look()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Add what child processes have called to what the test has called, before mutmut looks."""
    if get_mutant_under_test() == "stats" and _CALLED.exists():
        state()._stats.update(_CALLED.read_text().split())
        _CALLED.unlink()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort what was collected; tests that were not measured yet keep their order. Leave out what comes too late."""
    seconds = state().duration_by_test
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    if get_mutant_under_test() in _ALL:
        return
    total = accumulate(seconds.get(item.nodeid, 0.0) for item in items)
    n_first = max(1, sum(so_far <= _MOST for so_far in total))
    config.hook.pytest_deselected(items=items[n_first:])
    del items[n_first:]
