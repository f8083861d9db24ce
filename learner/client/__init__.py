"""Clients of a learner for programs: `Learner`, and `AsyncLearner` with the same methods as coroutines.

Their answers have the types of the service's schemas, which take a second to import. They are loaded when one of the
two classes is first used, so that the command line, which prints JSON, does not load them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.learner.client.learner import AsyncLearner, Learner

__all__ = ["AsyncLearner", "Learner"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a class of this package
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.learner"), name)
