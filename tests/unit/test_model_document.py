"""A model's document is read back whole, or refused with what is wrong with it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.common.encoding.number_lines import document_lines, read_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.runs.model_document import model_document, model_of, read_document, read_model
from parley.common.runs.predictions import predict
from tests.support.cluster import Cluster
from tests.support.rounds import run_spec

pytestmark = pytest.mark.long

WIDE = 200_000


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root: Path = tmp_path_factory.mktemp("document")
    spec = run_spec(Cluster(root, n_parties=2))
    return model_document(spec, [], Model(np.array([1.0, -2.0, 0.5, 0.25])), spec.names)


def test_what_is_written_is_read(document: dict[str, Any]) -> None:
    study, model = read_model(document)
    assert study.digest == document["study_digest"]
    assert (model.kind, model.weights.tolist()) == ("linear", [1.0, -2.0, 0.5, 0.25])
    assert [row["label"] for row in predict(document, [{"x0": 1, "x1": -1, "x2": 0}])] == ["yes"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "tree"}, "unknown kind of model 'tree'; there are linear, softmax, members, statistics"),
        ({"kind": None}, "unknown kind of model None"),
        ({"kind": ["linear"]}, "unknown kind of model"),
        ({"format": "parley-model-9"}, "the model's format must be 'parley-model-2', not 'parley-model-9'"),
        ({"format": "parley-model-9"}, "the version of Parley that wrote it, or train the model again"),
        ({"format": None}, "not None"),
        ({"kind": "softmax"}, "the model's document: softmax.weights.0: Input should be a valid tuple"),
        ({"weights": [1.0, 2.0]}, "not of the shape that its study has"),
        ({"weights": [[1.0] * 4] * 2}, "linear.weights.whole.0: Input should be a valid number"),
        ({"kind": "members", "weights": [[1.0] * 4, [1.0] * 3]}, "not of the shape that its study has"),
        ({"weights": ["1.0"] * 4}, "linear.weights.whole.0: Input should be a valid number"),
        ({"weights": "much"}, "linear.weights.whole: Input should be a valid tuple"),
        ({"weights": None}, "linear.weights.whole: Input should be a valid tuple"),
        ({"study": {"name": "x"}}, "linear.study.features: Field required"),
        ({"guarantees": [{"epsilon": 1.0}]}, "linear.guarantees.0.delta: Field required"),
    ],
)
def test_a_document_that_is_none_is_refused(document: dict[str, Any], change: dict[str, Any], why: str) -> None:
    for read in (read_model, lambda wrong: predict(wrong, [{"x0": 1, "x1": 1, "x2": 1}])):
        with pytest.raises(InvalidInputError) as refused:
            read(document | change)
        assert why in refused.value.detail


def test_statistics_of_any_shape_are_read_and_predict_for_nobody(document: dict[str, Any]) -> None:
    for weights in ([3.0], [[1.0, 2.0]] * 3):
        statistics = document | {"kind": "statistics", "weights": weights}
        _, model = read_model(statistics)
        assert (model.kind, model.weights.tolist()) == ("statistics", weights)
        with pytest.raises(InvalidInputError, match="its counts and sums predict for nobody"):
            predict(statistics, [{"x0": 1, "x1": 1, "x2": 1}])


def test_a_wide_document_takes_little_more_than_its_weights(tmp_path: Path) -> None:
    """Bytes a weight: its own 8 for each copy, where lists of Python's and the text take 32 and 20."""
    spec = run_spec(Cluster(tmp_path, n_parties=2))
    model = Model(np.random.default_rng(1).normal(size=(2, WIDE)), "members")
    file = tmp_path / "model.json"

    def peak_of_writing() -> None:
        document = model_document(spec, [], model, spec.names)
        assert len(read_document(document).digests["weights"]) == 64
        with file.open("w") as opened:
            opened.writelines(document_lines(document))

    def peak_of_reading() -> None:
        with file.open("rb") as opened:
            read = read_document(read_lines(opened))
        assert read.kind == "members"
        assert read.digests["weights"]
        with pytest.raises(InvalidInputError, match="not of the shape that its study has"):
            model_of(read)

    for work, most in ((peak_of_writing, 4), (peak_of_reading, 20)):
        tracemalloc.start()
        work()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < most * model.weights.size, work.__name__
