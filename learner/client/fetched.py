"""The models that a client gets from a learner: documents that can be logged in MLflow by one call."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from parley.common.runs.model_document import LinearModel, MembersModel, ModelTerms, SoftmaxModel, Statistics
from parley.common.runs.weights import SparseRow


class _Fetched(ModelTerms):
    """What documents that a client got can do."""

    def log_mlflow(self, *, name: str = "model", registered_name: str | None = None) -> str:
        """Log the model in MLflow's active run, or in a new one, and return that run's identifier.

        The run gets parameters, the figures of the evaluation with their intervals, the document, card, evaluation and
        certificate as files, exports, and an MLflow model ``name`` that predicts; it is also registered, if there is a
        ``registered_name``. Raises MissingExtraError without the extra ``mlflow``, and MLflow's own errors.
        """
        from parley.learner.models.mlflow_flavor import log_document  # noqa: PLC0415 -- loads scipy and jinja2

        return log_document(self._stated(), name=name, registered_name=registered_name)

    def _stated(self) -> dict[str, Any]:
        """Return the document as the learner sent it; a row of weights stays an array."""
        weights = dict(self)["weights"]
        stated = self.model_dump(mode="json", exclude={"weights"}, exclude_unset=True)
        return stated | {"weights": dict(weights) if isinstance(weights, SparseRow) else weights}


class FetchedLinearModel(_Fetched, LinearModel):
    """A `LinearModel` that a client got."""


class FetchedSoftmaxModel(_Fetched, SoftmaxModel):
    """A `SoftmaxModel` that a client got."""


class FetchedMembersModel(_Fetched, MembersModel):
    """A `MembersModel` that a client got."""


class FetchedStatistics(_Fetched, Statistics):
    """`Statistics` that a client got."""


FetchedModel = Annotated[
    FetchedLinearModel | FetchedSoftmaxModel | FetchedMembersModel | FetchedStatistics, Field(discriminator="kind")
]
"""A `ModelDocument` that a client got from a learner."""
