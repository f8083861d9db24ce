"""Provides private models by scikit-learn's conventions: trained on a learner's federations, or on arrays.

Each module is loaded when one of its names is first used, because training on arrays needs no client of a learner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.learner.estimators.budget import PrivacyBudget
    from parley.learner.estimators.federated import FederatedClassifier, FederatedRegressor
    from parley.learner.estimators.private import PrivateClassifier
    from parley.learner.estimators.regressions import PrivateLinearRegression, PrivateLogisticRegression

__all__ = [
    "FederatedClassifier",
    "FederatedRegressor",
    "PrivacyBudget",
    "PrivateClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
]

_MODULES = {
    "FederatedClassifier": "federated",
    "FederatedRegressor": "federated",
    "PrivacyBudget": "budget",
    "PrivateClassifier": "private",
    "PrivateLinearRegression": "regressions",
    "PrivateLogisticRegression": "regressions",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- what a module of this package has
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
