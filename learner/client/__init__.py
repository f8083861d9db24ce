"""A learner, as a program asks it: `Learner`, and `AsyncLearner` with the same methods.

What they return is typed by what the service answers, which takes a second to import: it is loaded when one of the two
is asked for, so that the command line, which prints JSON, goes without.
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
