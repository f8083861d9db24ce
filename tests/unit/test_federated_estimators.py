"""Federated estimators on documents made here; against services: tests/services/learner/test_learner_client.py."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.data.columns import Category, Feature, RealLabel
from parley.common.data.study import SquaredLoss, Study
from parley.common.encoding.number_lines import document_lines
from parley.common.learning.model import Model
from parley.common.privacy.guarantee import Guarantee
from parley.common.runs.model_document import model_document
from parley.common.runs.predictions import predict
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.api.schemas import RunView
from parley.learner.client import Learner
from parley.learner.estimators import FederatedClassifier, FederatedRegressor
from parley.learner.estimators.budget import EstimatorError
from parley.learner.runs.run import Run, RunTerms

STUDY = Study(
    name="rates",
    features=(Feature(name="income", lower=0, upper=100), Category(name="purpose", values=("car", "house"))),
    label=RealLabel(name="rate", lower=0, upper=20),
    loss=SquaredLoss(),
)
RECORDS: list[dict[str, Any]] = [{"income": 10.0, "purpose": "car"}, {"income": 90.0, "purpose": "house"}]


def document() -> dict[str, Any]:
    """A model of the study by two parties."""
    members = tuple(Member(name=f"party-{i}", n_examples=100, budget=Budget(epsilon=1, delta=1e-5)) for i in (1, 2))
    spec = RunSpec(
        study=STUDY, algorithm="dp_gd", parameters={}, parties=members, minimum_contributors=2, colluders=0,
        secure_sum="none", answer_every=1, adjacency="replace_one", public=None,
    )  # fmt: skip
    weights = np.linspace(-0.5, 0.5, STUDY.n_features)
    promises = [Guarantee(1.0, 1e-5, view, "tight").to_json() for view in ("model", "transcript")]
    made = model_document(spec, promises, Model(weights), ["party-1", "party-2"])
    run = Run("a", "alice", "", "now", "completed", "running", "{}", RunTerms.of(spec, 60.0, {}), 1, None)
    return {"model": made, "run": RunView.of(run).model_dump(mode="json")}


@pytest.fixture
def learner() -> Learner:
    """A learner that knows one run, which completed."""
    known = document()

    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/v1/runs/a/events":
                return httpx.Response(200, text='event: state\ndata: {"state": "completed"}\nid: 1\n\n')
            case "/v1/runs/a/model":
                return httpx.Response(200, text="".join(document_lines(known["model"])))
            case _:
                return httpx.Response(200, json=known["run"])

    return Learner("http://learner", "token", httpx.MockTransport(answer))


def test_a_regression_predicts_in_its_unit(learner: Learner) -> None:
    model = FederatedRegressor("rates", learner=learner).take("a")
    told = [each["label"] for each in predict(document()["model"], RECORDS)]
    assert model.predict(RECORDS).tolist() == pytest.approx(told)
    columns = {"purpose": np.array(["car", "house"]), "income": np.array([10.0, 90.0])}
    assert model.predict(columns).tolist() == pytest.approx(told)
    assert model.predict([[10.0, "car"], [90.0, "house"]]).tolist() == pytest.approx(told)
    assert model.score(RECORDS, told) == pytest.approx(1.0)
    assert model.guarantee_.view == "transcript"
    assert model.feature_names_in_.tolist() == ["income", "purpose"]


def test_a_model_of_another_kind_is_refused(learner: Learner) -> None:
    with pytest.raises(EstimatorError, match="whose label is a number"):
        FederatedClassifier("rates", learner=learner).take("a")
