"""Processes in which an owner fits and pays from its party's ledger."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.payer import Fit, Payer
from parley.learner.estimators.array_runs import ArrayRun
from parley.learner.estimators.private import PrivateClassifier
from parley.party.owner.budget import LedgerBudget
from tests.support import processes

PRICE = Price.at_once(Cost(100_000, 10**9, 10**9))
FIT = Fit("dp_gd", {"epsilon": 0.1}, PRICE)


def examples() -> tuple[FloatArray, IntArray]:
    """Rows of four columns within (-1, 1), and their classes."""
    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 4))
    return X, (X.sum(axis=1) > 0).astype(np.int64)


def fitted(budget: Payer, **parameters: Any) -> PrivateClassifier:  # noqa: ANN401 -- those of an estimator
    """A classifier of the examples, which has paid."""
    terms: dict[str, Any] = {"bounds": (-1, 1), "classes": (0, 1), "epsilon": 0.5, "delta": 1e-6, "budget": budget}
    return PrivateClassifier(**(terms | parameters)).fit(*examples())


def start_paying(budget: LedgerBudget, granted: Path) -> BaseProcess:
    """A process that is sent a budget, pays until it is refused, and then writes for how many fits."""
    return _start(_pay_until_refused, budget, granted)


def start_dying(budget: LedgerBudget) -> BaseProcess:
    """A process that is killed after it has paid for a fit, before any noise is drawn."""
    return _start(_die_once_charged, budget)


def _start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    process = processes._CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def _pay_until_refused(budget: LedgerBudget, granted: Path) -> None:
    n_fits = 0
    try:
        while True:
            budget.pay(FIT)
            n_fits += 1
    except BudgetExhaustedError:
        granted.write_text(str(n_fits))


def _die_once_charged(budget: LedgerBudget) -> None:
    ArrayRun.model = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    fitted(budget)
