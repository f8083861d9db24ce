"""The losses that a study may name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.common.strict import Strict


class LogisticLoss(Strict):
    """The logistic loss."""

    kind: Literal["logistic"] = "logistic"


class HuberLoss(Strict):
    """The Huber loss of half-width h."""

    kind: Literal["huber"] = "huber"
    h: Annotated[float, Field(gt=0, le=1)] = 0.5


class SquaredLoss(Strict):
    """Half the squared error."""

    kind: Literal["squared"] = "squared"


class HingeLoss(Strict):
    """The hinge loss of the support vector machine."""

    kind: Literal["hinge"] = "hinge"


class SoftmaxLoss(Strict):
    """The logistic loss of more than two classes."""

    kind: Literal["softmax"] = "softmax"


AnyLoss = Annotated[LogisticLoss | HuberLoss | SquaredLoss | HingeLoss | SoftmaxLoss, Field(discriminator="kind")]
