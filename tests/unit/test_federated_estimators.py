"""Federated estimators on documents made here; against services: tests/services/learner/test_learner_client.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import has_fit_parameter

from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.study import HuberLoss, LogisticLoss, SquaredLoss, Study
from parley.common.encoding.number_lines import document_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.guarantee import Guarantee
from parley.common.runs.model_document import model_document
from parley.common.runs.predictions import predict
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.api.schemas import RunView
from parley.learner.client import Learner
from parley.learner.estimators import FederatedClassifier, FederatedRegressor
from parley.learner.estimators import federated as module
from parley.learner.estimators.budget import EstimatorError
from parley.learner.runs.run import Run, RunTerms

STUDY = Study(
    name="rates",
    features=(Feature(name="income", lower=0, upper=100), Category(name="purpose", values=("car", "house"))),
    label=RealLabel(name="rate", lower=0, upper=20),
    loss=SquaredLoss(),
)
RECORDS: list[dict[str, Any]] = [{"income": 10.0, "purpose": "car"}, {"income": 90.0, "purpose": "house"}]


def document(study: Study = STUDY, views: tuple[str, ...] = ("model", "transcript")) -> dict[str, Any]:
    """A model of a study by two parties."""
    members = tuple(Member(name=f"party-{i}", n_examples=100, budget=Budget(epsilon=1, delta=1e-5)) for i in (1, 2))
    spec = RunSpec(
        study=study, algorithm="dp_gd", parameters={}, parties=members, minimum_contributors=2, colluders=0,
        secure_sum="none", answer_every=1, adjacency="replace_one", public=None,
    )  # fmt: skip
    outputs = study.n_classes if study.loss.kind == "softmax" else 1
    weights = np.linspace(-0.5, 0.5, outputs * study.n_features).reshape(outputs, -1).squeeze()
    promises = [Guarantee(1.0, 1e-5, view, "tight").to_json() for view in views]  # type: ignore[arg-type]
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


# ── classes ──────────────────────────────────────────────────────────────────

LOANS = Study(name="loans", features=STUDY.features, label=Label(name="repaid", values=("1", "2")), loss=LogisticLoss())
KINDS = Study(name="kinds", features=STUDY.features, label=Label(name="kind", values=("a", "b", "c")))
HUBER = Study(name="loans", features=STUDY.features, label=LOANS.label, loss=HuberLoss())


class Service(list[tuple[str, str, Any]]):
    """A learner with one study, and one run that completed; notes what it was asked."""

    def __init__(
        self, study: Study, cautions: tuple[str, ...] = (), views: tuple[str, ...] = ("model", "transcript")
    ) -> None:
        super().__init__()
        self.study = study
        self.known = document(study, views)
        self.known["run"] |= {"cautions": list(cautions)}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.append((request.method, path, json.loads(request.content) if request.content else None))
        if path.endswith("/events"):
            return httpx.Response(200, text='event: state\ndata: {"state": "completed"}\nid: 1\n\n')
        if path.endswith("/model"):
            return httpx.Response(200, text="".join(document_lines(self.known["model"])))
        if path.startswith("/v1/studies/"):
            return httpx.Response(200, json=self.study.model_dump(mode="json"))
        return httpx.Response(200, json=self.known["run"])

    def learner(self) -> Learner:
        """A client of it."""
        return Learner("http://learner", "token", httpx.MockTransport(self))


def test_a_classifier_is_trained_as_its_parameters_say() -> None:
    service = Service(LOANS)
    model = FederatedClassifier(
        "loans",
        learner=service.learner(),
        epsilon=0.5,
        delta=1e-6,
        algorithm="psgd",
        parameters={"n_rounds": 3},
        secure_sum="paillier",
        overlap=2,
        purpose="to see",
        options={"minimum_contributors": 2, "purpose": "to learn"},
        progress=False,
    )
    assert model.fit() is model
    assert service[0][:2] == ("GET", "/v1/studies/loans")
    (body,) = (body for method, path, body in service if (method, path) == ("POST", "/v1/runs"))
    asked = {
        "study": "loans", "epsilon": 0.5, "delta": 1e-6, "algorithm": "psgd", "parameters": {"n_rounds": 3},
        "secure_sum": "paillier", "overlap": 2, "purpose": "to learn", "minimum_contributors": 2,
    }  # fmt: skip
    assert {name: body[name] for name in asked} == asked
    assert model.run_.id == "a"
    assert model.document_.study == model.study_ == LOANS
    assert (model.n_features_in_, model.feature_names_in_.tolist()) == (2, ["income", "purpose"])
    assert [promise.view for promise in model.guarantees_] == ["model", "transcript"]
    assert (model.guarantee_.view, model.evaluation_) == ("transcript", None)
    assert model.classes_.tolist() == ["1", "2"]
    assert model.card_.startswith("# loans: model card\n")


def test_a_study_of_ones_own_is_submitted_whole() -> None:
    service = Service(LOANS)
    FederatedClassifier(LOANS, learner=service.learner(), progress=False).fit()
    method, path, body = service[0]
    assert (method, path) == ("POST", "/v1/runs")
    assert body["study"]["name"] == "loans"
    assert (body["algorithm"], body["parameters"], body["purpose"]) == ("dp_gd", {}, "")


@pytest.mark.parametrize("study", [LOANS, KINDS], ids=["two", "three"])
def test_classes_and_their_probabilities_are_those_that_the_model_predicts(study: Study) -> None:
    service = Service(study)
    model = FederatedClassifier(study.name, learner=service.learner(), progress=False).take("a")
    told = predict(service.known["model"], RECORDS)
    assert isinstance(study.label, Label)
    found = model.predict(RECORDS)
    assert found.dtype == object
    assert found.tolist() == [each["label"] for each in told]
    chances = model.predict_proba(RECORDS)
    assert chances.shape == (2, len(study.label.values))
    assert chances.sum(axis=1) == pytest.approx([1, 1])
    if study is KINDS:
        assert chances.tolist() == [[each["probabilities"][name] for name in study.label.values] for each in told]
        assert model.decision_function(RECORDS).shape == (2, 3)
    else:
        assert chances[:, 1].tolist() == [each["probability"] for each in told]
        assert model.score(RECORDS, [int(each["label"]) for each in told]) == 1.0
        assert model.score(RECORDS, [float(told[0]["label"]), 7]) == 0.5


def test_only_a_loss_of_probabilities_has_them() -> None:
    fresh = FederatedClassifier("loans")
    assert hasattr(fresh, "predict_proba")
    for study, has_them in ((LOANS, True), (KINDS, True), (HUBER, False)):
        model = FederatedClassifier(study.name, learner=Service(study).learner(), progress=False).take("a")
        assert hasattr(model, "predict_proba") == has_them


def test_what_a_run_cautions_of_is_a_warning() -> None:
    model = FederatedClassifier("loans", learner=Service(LOANS, ("few rows",)).learner(), progress=False)
    with pytest.warns(UserWarning, match="^few rows$") as warned:
        model.take("a")
    assert warned[0].filename == __file__


def test_without_a_guarantee_of_all_rounds_the_last_is_told() -> None:
    model = FederatedClassifier("loans", learner=Service(LOANS, views=("model", "model")).learner(), progress=False)
    assert model.take("a").guarantee_.view == "model"


def test_rows_that_do_not_fit_are_named_by_number_and_column() -> None:
    model = FederatedClassifier("loans", learner=Service(LOANS).learner(), progress=False).take("a")
    with pytest.raises(InvalidInputError, match="row 1: feature 'income' is not a number"):
        model.predict([RECORDS[0], {"income": "much", "purpose": "car"}])


def test_rows_of_lists_are_predicted_for_too() -> None:
    entries = SparseFeatures(name="entries", columns=4, entries=2)
    study = Study(name="lists", features=(entries,), label=LOANS.label)
    service = Service(study)
    model = FederatedClassifier("lists", learner=service.learner(), progress=False).take("a")
    records: list[dict[str, Any]] = [{"index": [1, 3], "value": [1.0, -0.5]}, {"index": [], "value": []}]
    assert model.predict(records).tolist() == [each["label"] for each in predict(service.known["model"], records)]
    with pytest.raises(InvalidInputError, match="row 1"):
        model.predict([records[0], {"index": [9], "value": [1.0]}])


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda model: model.fit([[1.0]]), "fit takes no data: the owners of the study have them, and they stay there"),
        (
            lambda model: model.fit(y=[1.0]),
            "fit takes no data: the owners of the study have them, and they stay there",
        ),
        (
            lambda model: model.set_params(study="").fit(),
            "study is missing: name one of Learner.studies()",
        ),
        (lambda model: model.set_params(study="other").take("a"), "run a is of the study 'loans', not of 'other'"),
        (lambda model: model.set_params(study=KINDS).take("a"), "run a is of the study 'loans', not of 'kinds'"),
        (
            lambda model: FederatedRegressor("loans", learner=model.learner).fit(),
            "FederatedRegressor is not for study 'loans', whose label is classes",
        ),
    ],
)
def test_a_fit_that_cannot_be_is_refused_in_full(fit: Callable[[Any], object], message: str) -> None:
    service = Service(LOANS)
    with pytest.raises(EstimatorError) as refused:
        fit(FederatedClassifier("loans", learner=service.learner(), progress=False))
    assert refused.value.detail == message
    assert not any(method == "POST" for method, *_ in service)


def test_what_is_not_fitted_says_so() -> None:
    for use in ("predict", "decision_function"):
        with pytest.raises(NotFittedError, match=r"^this FederatedClassifier is not fitted yet: call fit first$"):
            getattr(FederatedClassifier("loans"), use)(RECORDS)
    with pytest.raises(NotFittedError):
        _ = FederatedClassifier("loans").card_
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weight'"):
        FederatedClassifier("loans").fit(sample_weight=[1])
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'groups': .* a study names the column, person"):
        FederatedClassifier("loans").fit(groups=[1])
    assert not has_fit_parameter(FederatedClassifier("loans"), "sample_weight")


def test_a_learner_by_its_address_is_connected_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Learner] = []
    closed: list[Learner] = []

    def close(learner: Learner) -> None:
        closed.append(learner)

    def connect(url: str) -> Learner:
        assert url == "http://elsewhere"
        made.append(Service(LOANS).learner())
        return made[0]

    monkeypatch.setattr(module, "Learner", type("Stub", (), {"__new__": lambda _, url: connect(url)}))
    monkeypatch.setattr(Learner, "close", close)
    FederatedClassifier("loans", learner="http://elsewhere", progress=False).take("a")
    assert closed == made
    assert FederatedClassifier().learner == "http://127.0.0.1:8000"
