"""What a run of `describe` found, from its specification and its model's document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.algorithms.describe import Describe
from common.errors import InvalidInputError
from common.learning.description import Description
from common.learning.model import Model
from common.runs.model_document import read_document, weights_of_document
from common.runs.specification import RunSpec


def description_of(spec: RunSpec, document: Mapping[str, Any]) -> Description:
    """The description of a study's columns that a completed run came to.

    Raises InvalidInputError for a run of another algorithm.
    """
    algorithm, read = spec.build(), read_document(document)
    if not isinstance(algorithm, Describe):
        raise InvalidInputError(f"the run is one of {spec.algorithm}; only one of describe describes columns")
    model = Model(weights_of_document(read), read.kind)
    return algorithm.read(model, spec.facts(), tuple(spec.index(name) for name in read.contributors))
