"""Limits what several fits on the same examples may cost together, and defines the estimators' errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from threading import Lock

from pydantic import ValidationError

from parley.common.errors import InvalidInputError
from parley.common.privacy.account import Account, limit
from parley.common.privacy.calibration import check_budget
from parley.common.privacy.payer import Fit, Payer
from parley.common.strict import faults


class EstimatorError(InvalidInputError, ValueError):
    """A parameter or argument of an estimator is invalid; also a ValueError, as scikit-learn's users expect."""


def check_number(name: str, value: object) -> None:
    """Raise EstimatorError, which names the parameter, unless its value is a number that floating point holds."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise EstimatorError(f"{name} must be a number, not {value!r}")
    try:
        float(value)
    except OverflowError:
        raise EstimatorError(f"{name} is beyond what floating point holds, 1.8e308") from None


@contextmanager
def as_estimator_errors() -> Iterator[None]:
    """Raise EstimatorError in the place of pydantic's ValidationError and of any other InvalidInputError."""
    try:
        yield
    except ValidationError as error:
        raise EstimatorError(faults(error)) from None
    except EstimatorError:
        raise
    except InvalidInputError as error:
        raise EstimatorError(error.detail) from None


class PrivacyBudget(Payer):
    """The (epsilon, delta) that all fits with this budget may cost together; it refuses a fit that would cost more.

    >>> budget = PrivacyBudget(2.0, 1e-5)
    >>> budget
    PrivacyBudget(epsilon_left=2, delta_left=1e-05, fits=0)

    Give the same budget to estimators, pipelines and searches that see the same examples: their copies share it, so
    that each candidate, fold and refit pays. A fit that costs more than is left raises BudgetExhaustedError before any
    noise is drawn. Costs compose as in a party's ledger (`parley.common.privacy.account`), so many fits cost less than
    their sum. The budget lives in this process: searches need ``n_jobs`` = 1, and saved models have a `SavedBudget`.
    Fits of an owner that has a party pay from its ledger, by `parley.LedgerBudget`.
    """

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        with as_estimator_errors():
            check_budget(epsilon, delta)
        self._account, self._fits, self._lock = limit(epsilon, delta), 0, Lock()

    @property
    def account(self) -> Account:
        """The account as it is now."""
        return self._account

    @property
    def fits(self) -> int:
        """How many fits have paid."""
        return self._fits

    def pay(self, fit: Fit) -> None:
        """Charge a fit; raises BudgetExhaustedError, which says what is left, if the fit costs more."""
        with self._lock:
            self._account = self._account.charge(fit.price.total)
            self._fits += 1

    def __reduce__(self) -> tuple[Callable[..., PrivacyBudget], tuple[Account, int]]:
        """Make a `SavedBudget` when this is saved or sent to another process."""
        return _saved, (self._account, self._fits)


class SavedBudget(PrivacyBudget):
    """A budget as it was when an estimator was saved, or sent to another process: it states what was spent by then.

    It pays for no fit, because it does not know what the original has spent since.
    """

    def pay(self, fit: Fit) -> None:  # noqa: ARG002
        """Raise EstimatorError: a saved budget pays for nothing."""
        raise EstimatorError(
            "a privacy budget counts in the process that made it, and this is a copy: take n_jobs = 1 or a "
            "LedgerBudget, and give an estimator that was loaded a budget of its own before it is fitted again"
        )


def _saved(account: Account, fits: int) -> SavedBudget:
    """Restore the copy of a budget with its account."""
    budget = SavedBudget.__new__(SavedBudget)
    budget._account, budget._fits, budget._lock = account, fits, Lock()  # noqa: SLF001
    return budget
