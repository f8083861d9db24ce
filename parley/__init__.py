"""Differentially private learning across parties that do not pool their data.

What a program needs most is here: ``from parley import FederatedClassifier, Learner``. Each name is loaded when it is
first used. `parley.common`, `parley.learner` and `parley.party` are the folders of these names beside this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.learner.client import AsyncLearner, Learner
    from parley.learner.estimators import (
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
    return getattr(import_module("parley.learner.client" if name in _CLIENTS else "parley.learner.estimators"), name)
