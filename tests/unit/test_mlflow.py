"""A model logged in MLflow: what its run says, which files it has, and that MLflow's model predicts as Parley does."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.extras import MissingExtraError
from parley.common.runs.certificate import signed_certificate
from parley.common.runs.predictions import predict
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.client.fetched import FetchedModel
from parley.learner.models import mlflow_flavor
from tests.support.models import document_of
from tests.support.secure_cluster import signing_key

STUDY = Study(
    name="readmissions",
    features=(
        Feature(name="age", lower=18, upper=100, missing="value", fill=60),
        Category(name="ward", values=("1", "north"), other=True),
    ),
    label=Label(name="days", values=(">30", "<30")),
    hold_out=0.25,
)
RECORDS: list[dict[str, Any]] = [{"age": 30, "ward": "north"}, {"age": 40, "ward": "1"}]
FIGURE = {"estimate": 0.75, "low": None, "high": 0.875}
EVALUATION = {"deviation": 3.0, "accuracy": FIGURE, "recall": {">30": FIGURE, "<30": FIGURE | {"estimate": None}}}
EVALUATION |= {"rows": 50, "contributors": ["party-1"], "epsilon": 0.5, "delta": 1e-6}
PROMISE = {"epsilon": 1.0, "delta": 1e-5, "view": "transcript", "calibration": "tight", "adjacency": "replace_one"}
PROMISE |= {"trust": 0, "assumptions": []}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where MLflow keeps what it logs: a database in a file, as it does if nobody says otherwise."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def mlflow(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow in a folder; it tells nobody of its use."""
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr(mlflow_flavor, "_EXPORTS", {"model.onnx": lambda _: (b"exported", "")})
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        mlflow.set_tracking_uri(store)
        yield mlflow
        mlflow.set_tracking_uri(None)


def fetched(document: dict[str, Any]) -> FetchedModel:
    """A document as a client reads it."""
    return TypeAdapter[FetchedModel](FetchedModel).validate_python(document)


def certified_document() -> dict[str, Any]:
    """A document with all that can be logged."""
    owner = Member(name="party-1", n_examples=100, budget=Budget(epsilon=1, delta=1e-5))
    terms = RunSpec(study=STUDY, parties=(owner,), algorithm="dp_gd", parameters={}, minimum_contributors=1)
    signed: dict[str, Any] = {"specification": terms.model_dump(mode="json"), "approvals": {}, "digests": {}}
    certificate = signed_certificate(signing_key("learner"), run="5f" * 16, sums=None, **signed)
    more: dict[str, Any] = {"evaluation": EVALUATION, "guarantees": [PROMISE], "parameters": {"n_rounds": 7}}
    return document_of(STUDY, certificate=certificate.model_dump(mode="json"), **more)


def test_metrics_are_those_at_the_threshold_by_which_the_model_predicts(mlflow: Any) -> None:  # noqa: ANN401 -- a module
    names = ("accuracy", "balanced_accuracy", "precision", "recall", "specificity", "f1")
    point = {"score": -1.5, "confusion": [[1.0, 2.0], [3.0, 4.0]]} | {
        name: {"estimate": place / 16, "low": place / 16, "high": 1.0} for place, name in enumerate(names)
    }
    threshold = {"rule": "balanced", "score": -1.5, "estimated": True}
    document = document_of(STUDY, evaluation=EVALUATION | {"points": [point]}, threshold=threshold)
    metrics = mlflow.get_run(fetched(document).log_mlflow()).data.metrics
    assert (metrics["accuracy"], metrics["balanced_accuracy"]) == (0, 1 / 16)
    recall = {name: value for name, value in metrics.items() if name.startswith("recall") and "." not in name}
    assert sorted(recall.values()) == [3 / 16, 4 / 16]


def test_a_model_is_logged_with_all_that_is_known_of_it(mlflow: Any, tmp_path: Path) -> None:  # noqa: ANN401 -- a module
    document = certified_document()
    run = mlflow.get_run(fetched(document).log_mlflow())
    assert mlflow.active_run() is None
    assert run.info.run_name == "readmissions"
    assert run.data.params == {
        "algorithm": "dp_gd",
        "study": "readmissions",
        "study_digest": STUDY.digest,
        "spec_digest": "0" * 64,
        "rounds": "1",
        "adjacency": "replace_one",
        "contributors": "party-1",
        "run": "5f" * 16,
        "epsilon": "1.0",
        "delta": "1e-05",
        "parameter.n_rounds": "7",
    }
    assert run.data.metrics == {
        "epsilon/transcript/tight": 1.0,
        "evaluation/epsilon": 0.5,
        "evaluation/rows": 50,
        "accuracy": 0.75,
        "accuracy.high": 0.875,
        "recall/greater-than sign 30": 0.75,
        "recall/greater-than sign 30.high": 0.875,
        "recall/less-than sign 30.high": 0.875,
    }
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path)))
    files = {path.name for path in folder.iterdir()}
    assert files >= {"document.json", "card.md", "evaluation.json", "certificate.json", "model.onnx"}
    assert json.loads((folder / "document.json").read_text()) == document
    assert json.loads((folder / "evaluation.json").read_text())["accuracy"]["estimate"] == FIGURE["estimate"]
    assert "5f5f" in json.loads((folder / "certificate.json").read_text())["run"]
    assert "# readmissions: model card" in (folder / "card.md").read_text()

    (output,) = run.outputs.model_outputs
    model = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    predicted = model.predict(RECORDS)
    for row, expected in zip(predicted.to_dict("records"), predict(document, RECORDS), strict=True):
        assert row["prediction"] == expected["label"]
        assert row["P(<30)"] == pytest.approx(expected["probability"])
        assert row["P(>30)"] == pytest.approx(1 - expected["probability"])


def test_an_active_run_is_gone_on_with_and_statistics_have_no_model(mlflow: Any) -> None:  # noqa: ANN401 -- a module
    counts = document_of(STUDY, kind="statistics", weights=[1.0, 2.0])
    with mlflow.start_run() as active:
        assert fetched(counts).log_mlflow() == active.info.run_id == mlflow.active_run().info.run_id
    assert not mlflow.get_run(active.info.run_id).outputs.model_outputs


def test_a_model_is_shown_in_a_line() -> None:
    shown = "study='readmissions', algorithm='dp_gd', epsilon=1.0, contributors=('party-1',), run='" + "5f" * 16 + "'"
    assert repr(fetched(certified_document())) == f"FetchedLinearModel({shown})"


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"a log in MLflow needs pip install 'parley-learning\[mlflow\]'"):
        fetched(document_of(STUDY)).log_mlflow()
