"""What holds for all tests: reproducible examples, and logging as it was before other tests ran commands in-process.

Hypothesis tries the same examples in every run, and no example fails for being slow on a busy machine.
"""

from __future__ import annotations

import logging

import pytest
import structlog
from hypothesis import settings

from common.algorithms import REGISTRY

REGISTRY.add("probe", "tests.support.probe:Probe")  # one more algorithm for every suite, from outside the framework
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("reproducible"), max_examples=20)
settings.load_profile("reproducible")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Undo what a command that an earlier test ran in this process has configured."""
    structlog.reset_defaults()
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(logging.WARNING)
