"""What holds for all tests: reproducible examples, and logging as it was before other tests ran commands in-process.

Hypothesis tries the same examples in every run, and no example fails for being slow on a busy machine. What was
imported and collected stays for good: garbage is not looked for in it again, which took a tenth of the time. Several
processes begin with what takes long.
"""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from parley.common.algorithms import REGISTRY

REGISTRY.add("probe", "tests.support.probe:Probe")  # one more algorithm for every suite, from outside the framework
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("reproducible"), max_examples=20)
settings.load_profile("reproducible")


def pytest_configure() -> None:
    """Let garbage be while tests are collected; forget the learner that the shell's user asks, and its token."""
    gc.disable()
    for name in ("PARLEY_URL", "PARLEY_TOKEN", "PARLEY_TOKEN_FILE", "PARLEY_CA", "PARLEY_PROXY"):
        os.environ.pop(name, None)


@pytest.hookimpl(optionalhook=True)  # unknown without the plugin
def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than cores for ``-n auto``: tests wait for a fifth of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)  # when those that nobody asked for are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each of several processes begin with files that have slow tests, so that none runs alone at the end.

    First of all come faults, which wait the longest.
    """
    if (processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) == 1:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    first = [path for path, tests in files.items() if any(map(_is_slow, tests))]
    first.sort(key=lambda path: "faults" not in path.parts)
    others = [item for path, tests in files.items() if path not in first for item in tests]
    count = len(items)
    items.clear()
    for number in range(processes):
        share = (count - len(items)) // (processes - number)  # as pytest-xdist deals them out
        mine = [item for path in first[number::processes] for item in files[path]]
        more = max(0, share - len(mine))
        items += mine + others[:more]
        del others[:more]


def _is_slow(test: pytest.Item) -> bool:
    return test.get_closest_marker("slow") is not None


def pytest_collection_finish() -> None:
    """Collect garbage again, but not what is there by now."""
    gc.enable()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Take it up again, for libraries that count what is left of theirs at the end."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Undo what a command that an earlier test ran in this process has configured."""
    structlog.reset_defaults()
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    root.setLevel(logging.WARNING)
