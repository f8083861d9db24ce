"""The result of a run of `describe`, from its specification and its model's document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.common.algorithms.describe import Describe
from parley.common.errors import InvalidInputError
from parley.common.learning.description import Description
from parley.common.learning.model import Model
from parley.common.runs.model_document import read_document, weights_of_document
from parley.common.runs.specification import RunSpec


def description_of(spec: RunSpec, document: Mapping[str, Any]) -> Description:
    """Return the description of a study's columns that a completed run made.

    Raises InvalidInputError for a run of another algorithm.
    """
    algorithm, read = spec.build(), read_document(document)
    if not isinstance(algorithm, Describe):
        raise InvalidInputError(f"the run is one of {spec.algorithm}; only a run of describe describes columns")
    model = Model(weights_of_document(read), read.kind)
    return algorithm.read(model, spec.facts(), tuple(spec.index(name) for name in read.contributors))
