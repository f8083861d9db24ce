"""What estimators raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

from pydantic import ValidationError

from common.errors import InvalidInputError
from common.strict import faults


class EstimatorError(InvalidInputError, ValueError):
    """What an estimator was given cannot be right; a ValueError too, as scikit-learn's users expect."""


def check_number(name: str, value: object) -> None:
    """Raise EstimatorError, which names and tells a parameter, unless it is a number."""
    if not isinstance(value, Real):
        raise EstimatorError(f"{name} must be a number, not {value!r}")


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
