"""A plugin of pytest for mutmut: the quickest tests first, as it measured them, for the first that fails will do."""

from __future__ import annotations

import pytest
from mutmut.state import state


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort what was collected; tests that were not measured yet keep their order."""
    items.sort(key=lambda item: state().duration_by_test.get(item.nodeid, 0.0))
