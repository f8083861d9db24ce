"""Parley for programs, under a name that is its own: ``from parley import FederatedClassifier, Learner``.

The packages behind it are called `common`, `learner` and `party`, which other projects may call theirs too. Importing
this one raises ImportError where another `common` or `learner` comes first on the path. What it has is loaded when it
is asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learner.client import AsyncLearner, Learner
    from learner.estimators import (
        FederatedClassifier,
        FederatedRegressor,
        PrivacyBudget,
        PrivateClassifier,
        PrivateLinearRegression,
        PrivateLogisticRegression,
    )

__all__ = [
    "AsyncLearner",
    "FederatedClassifier",
    "FederatedRegressor",
    "Learner",
    "PrivacyBudget",
    "PrivateClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
]

_CLIENTS = ("AsyncLearner", "Learner")


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- what one of the two packages has
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("learner.client" if name in _CLIENTS else "learner.estimators"), name)


def _check(package: str) -> None:
    """Refuse to go on with another project's package of this name."""
    ours, found = Path(__file__).parents[1] / package / "__init__.py", find_spec(package)
    if found is None or found.origin is None or not ours.samefile(found.origin):
        where = "nowhere" if found is None else found.origin or list(found.submodule_search_locations or ())
        raise ImportError(
            f"Parley's package {package!r} should be {ours}, but Python finds {where}: install Parley into a virtual "
            "environment of its own, and start Python in a folder that holds no other package of this name"
        )


for _package in ("common", "learner"):
    _check(_package)
