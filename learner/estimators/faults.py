"""What estimators raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real

from pydantic import ValidationError

from parley.common.errors import InvalidInputError
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
