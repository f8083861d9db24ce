"""Differentially private learning across parties that do not pool their data.

What a program needs most is here: ``from parley import FederatedClassifier, Learner``. Each name is loaded when it is
first used; the estimators need the extra ``sklearn``. By `LedgerBudget` an owner's fits pay from its party's ledger.
`parley.common`, `parley.learner` and `parley.party` are the folders of these names beside this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from parley.common.extras import require_extra

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
    from parley.party.owner.budget import LedgerBudget

__all__ = [
    "AsyncLearner",
    "FederatedClassifier",
    "FederatedRegressor",
    "Learner",
    "LedgerBudget",
    "PrivacyBudget",
    "PrivateClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
]

_CLIENTS = ("AsyncLearner", "Learner")


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- what one of the two packages has
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _CLIENTS:
        return getattr(import_module("parley.learner.client"), name)
    if name == "LedgerBudget":
        return import_module("parley.party.owner.budget").LedgerBudget
    require_extra("sklearn", f"parley.{name}")
    return getattr(import_module("parley.learner.estimators"), name)
