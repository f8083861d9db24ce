"""The losses that a study may name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from common.learning.losses import Hinge, Huber, Logistic, Loss, Squared
from common.strict import Strict


class LogisticLoss(Strict):
    """The logistic loss."""

    kind: Literal["logistic"] = "logistic"

    def build(self) -> Loss:
        """The loss."""
        return Logistic()


class HuberLoss(Strict):
    """The Huber loss of half-width h."""

    kind: Literal["huber"] = "huber"
    h: Annotated[float, Field(gt=0, le=1)] = 0.5

    def build(self) -> Loss:
        """The loss."""
        return Huber(self.h)


class SquaredLoss(Strict):
    """Half the squared error."""

    kind: Literal["squared"] = "squared"

    def build(self) -> Loss:
        """The loss."""
        return Squared()


class HingeLoss(Strict):
    """The hinge loss of the support vector machine."""

    kind: Literal["hinge"] = "hinge"

    def build(self) -> Loss:
        """The loss."""
        return Hinge()


AnyLoss = Annotated[LogisticLoss | HuberLoss | SquaredLoss | HingeLoss, Field(discriminator="kind")]
