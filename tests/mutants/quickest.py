"""A plugin of pytest for mutmut: the quickest tests first, as it measured them, for the first that fails will do.

Tests that take long are left out, and so are those past the first seconds of a mutant that all before have passed.

mutmut runs the tests of each mutant in a copy of one process, in which all tests have run before. So what was worked
out then, and kept, is forgotten here: a mutant whose function is never called would survive. So it is before each test
where mutmut notes which functions a test calls: one that finds what another has left calls none.

Threads are not copied with a process: a test that waited for those of a library would never end, and mutmut takes that
for a mutant killed. So OpenMP's, which scikit-learn is built with, are told to be one, before it is loaded.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import _lru_cache_wrapper
from itertools import accumulate, compress
from typing import Any

import pytest
from mutmut.mutation.trampoline import get_mutant_under_test
from mutmut.state import state

os.environ["OMP_NUM_THREADS"] = "1"
_OURS = ("parley.",)
_LONGEST, _MOST = 1.0, 20.0  # seconds of one test, and of all that try one mutant
_ALL = {"stats", "list_all_tests"}  # what mutmut does when it measures tests, and when it looks for new ones
_known: tuple[int, list[_lru_cache_wrapper[Any]]] = 0, []
"""The functions that keep their results, of so many modules."""


def _forget() -> None:
    """Forget all that our functions keep of their own results."""
    global _known  # noqa: PLW0603 -- to look through all objects takes a while
    if len(sys.modules) != _known[0]:
        gc.unfreeze()  # what tests/conftest.py set aside, too
        caches = [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]
        _known = len(sys.modules), [each for each in caches if each.__module__.startswith(_OURS)]
    for each in _known[1]:
        each.cache_clear()


def pytest_sessionstart() -> None:
    """Of what the tests of other mutants left."""
    _forget()


def pytest_runtest_setup() -> None:
    """Of what earlier tests left, where it is noted which functions are called."""
    if get_mutant_under_test() == "stats":
        _forget()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort what was collected, and leave out what takes long; tests that were not measured yet keep their order."""
    seconds = state().duration_by_test
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    mutant = get_mutant_under_test()
    if mutant in _ALL:
        return
    total = list(accumulate(seconds.get(item.nodeid, 0.0) for item in items))
    is_in = [
        seconds.get(item.nodeid, 0.0) <= _LONGEST and (not mutant or so_far <= _MOST)
        for item, so_far in zip(items, total, strict=True)
    ]
    config.hook.pytest_deselected(items=list(compress(items, (not chosen for chosen in is_in))))
    items[:] = compress(items, is_in)
