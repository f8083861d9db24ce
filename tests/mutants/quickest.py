"""A plugin of pytest for mutmut: the quickest tests first, as it measured them, for the first that fails will do.

mutmut runs the tests of each mutant in a copy of one process, in which all tests have run before. So what was worked
out then, and kept, is forgotten here: a mutant whose function is never called would survive.
"""

from __future__ import annotations

import gc
from functools import _lru_cache_wrapper

import pytest
from mutmut.state import state

_OURS = ("common.", "learner.", "party.")


def pytest_sessionstart() -> None:
    """Forget all that our functions keep of their own results."""
    for each in gc.get_objects():
        if isinstance(each, _lru_cache_wrapper) and each.__module__.startswith(_OURS):
            each.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort what was collected; tests that were not measured yet keep their order."""
    items.sort(key=lambda item: state().duration_by_test.get(item.nodeid, 0.0))
