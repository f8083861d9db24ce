"""Documents of models that nobody trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.common.data.columns import Label
from parley.common.data.study import Study


def document_of(study: Study, seed: int = 1, **more: object) -> dict[str, Any]:
    """A model's document with weights of no training; ``more`` are fields in the place of its own."""
    outputs = (study.n_classes,) if study.loss.kind == "softmax" else ()
    weights = np.random.default_rng(seed).normal(size=(*outputs, study.n_features))
    return {
        "format": "parley-model-2",
        "kind": "softmax" if outputs else "linear",
        "weights": weights.tolist(),
        "column_names": list(study.column_names),
        "classes": list(study.label.values) if isinstance(study.label, Label) else None,
        "study": study.model_dump(mode="json"),
        "study_digest": study.digest,
        "spec_digest": "0" * 64,
        "algorithm": "dp_gd",
        "parameters": {},
        "rounds": 1,
        "public": None,
        "contributors": ["party-1"],
        "adjacency": "replace_one",
        "guarantees": [],
        "evaluation": None,
    } | more
