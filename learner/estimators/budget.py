"""What several fits on the same examples may cost together.

What estimators raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from threading import Lock
from typing import Any, Self

from pydantic import ValidationError

from parley.common.errors import InvalidInputError
from parley.common.privacy.account import DELTA_UNITS, Account, Cost, limit
from parley.common.privacy.calibration import check_budget
from parley.common.strict import faults


class EstimatorError(InvalidInputError, ValueError):
    """What an estimator was given cannot be right; a ValueError too, as scikit-learn's users expect."""


def check_number(name: str, value: object) -> None:
    """Raise EstimatorError, which names a parameter, unless it is a number that floating point holds."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise EstimatorError(f"{name} must be a number, not {value!r}")
    try:
        float(value)
    except OverflowError:
        raise EstimatorError(f"{name} is beyond what floating point holds, 1.8e308") from None


def refuse_weights(estimator: object, given: Iterable[str]) -> None:
    """Raise TypeError for what `fit` was ``given`` and does not take, such as weights of examples.

    By the words of Python, which scikit-learn's ensembles look for in what they train; and `fit` names no such argument
    itself, or they would take weights for supported.
    """
    for name in given:
        why = ""
        if name == "sample_weight":
            why = ": weights are not supported, for noise and bounds are of examples that count as one each"
        raise TypeError(f"{type(estimator).__name__}.fit() got an unexpected keyword argument {name!r}{why}")


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


class PrivacyBudget:
    """What all fits that are given it may cost together: (epsilon, delta), and not a fit more.

    >>> budget = PrivacyBudget(2.0, 1e-5)
    >>> budget
    PrivacyBudget(epsilon_left=2, delta_left=1e-05, fits=0)

    Give the same one to estimators, pipelines and searches that see the same examples: their copies share it, so that
    each candidate, fold and refit pays. A fit that it cannot bear raises BudgetExhaustedError before any noise is
    drawn. Costs count together as a party's ledger counts them (`parley.common.privacy.account`), by which many fits
    cost less than their sum. It lives in this process: searches need ``n_jobs`` = 1, and saved models have a
    `SavedBudget`.
    """

    def __init__(self, epsilon: float, delta: float = 0.0) -> None:
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        with as_estimator_errors():
            check_budget(epsilon, delta)
        self._account, self._fits, self._lock = limit(epsilon, delta), 0, Lock()

    @property
    def fits(self) -> int:
        """How many fits have paid."""
        return self._fits

    @property
    def delta(self) -> float:
        """The delta that all fits may cost together."""
        return self._account.delta_limit / DELTA_UNITS

    @property
    def epsilon_spent(self) -> float:
        """The epsilon that all fits so far amount to, at the budget's delta.

        It is what they cost if no fit had depended on an earlier result; only the budget is a promise.
        """
        return self._account.epsilon_spent

    @property
    def epsilon_left(self) -> float:
        """The largest epsilon of one more fit at `delta_left`."""
        return self._account.epsilon_left

    @property
    def delta_left(self) -> float:
        """The delta of one more fit."""
        return self._account.delta_left

    def pay(self, cost: Cost) -> None:
        """Charge a fit; raises BudgetExhaustedError, saying what is left, where it does not fit."""
        with self._lock:
            self._account = self._account.charge(cost)
            self._fits += 1

    def __repr__(self) -> str:
        left = f"epsilon_left={self.epsilon_left:g}, delta_left={self.delta_left:g}"
        return f"{type(self).__name__}({left}, fits={self.fits})"

    def __copy__(self) -> Self:
        """Itself: what a copy of an estimator spends is spent."""
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        """Itself, as above."""
        return self

    def __reduce__(self) -> tuple[Callable[..., PrivacyBudget], tuple[Account, int]]:
        """Saved, or sent to another process, it becomes a `SavedBudget`."""
        return _saved, (self._account, self._fits)


class SavedBudget(PrivacyBudget):
    """A budget as it was when an estimator was saved, or sent to another process. It tells what was spent by then.

    It bears no fit: what is spent where it was copied from is not known here.
    """

    def pay(self, cost: Cost) -> None:  # noqa: ARG002
        """Raise EstimatorError."""
        raise EstimatorError(
            "a privacy budget counts in the process that made it, and this is a copy: take n_jobs = 1, and give an "
            "estimator that was loaded a budget of its own before it is fitted again"
        )


def _saved(account: Account, fits: int) -> SavedBudget:
    """The copy of a budget with so much spent."""
    budget = SavedBudget.__new__(SavedBudget)
    budget._account, budget._fits, budget._lock = account, fits, Lock()  # noqa: SLF001
    return budget
