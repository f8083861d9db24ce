"""Class weights: who may state which, what they do to gradients and minimisers, and that probabilities undo them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.shard import Shard
from parley.common.data.study import SoftmaxLoss, Study
from parley.common.encoding.classes import encode_classes
from parley.common.errors import InvalidInputError
from parley.common.files.studies import read_study
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.forecast.weighted_classes import as_unweighted
from parley.common.learning.erm import minimise
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Hinge, Logistic, Loss, Softmax, build_loss
from parley.common.learning.statistics import unsaid_caution
from parley.common.privacy.mechanisms.output import solvable
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.protocol.cautions import cautions
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.predictions import Predictor, predict
from parley.common.runs.specification import RunSpec
from parley.common.service.commands import read_class_weights
from parley.learner.api.requests import RunRequest
from parley.learner.estimators import PrivateClassifier
from parley.learner.storage.public_rows import PublicRowStore
from tests.contracts.algorithms import ball
from tests.support.models import document_of

FEATURES = (Feature(name="x", lower=-1, upper=1), Feature(name="z", lower=-1, upper=1))
RARE = Label(name="ill", values=("no", "yes"), shares=(0.9, 0.1))


def study_of(label: Label | RealLabel = RARE, **more: object) -> Study:
    return Study.model_validate({"name": "s", "features": FEATURES, "label": label} | more)


def drafted(folder: Path, study: Study, **terms: object) -> RunSpec:
    request = RunRequest.model_validate({"study": study, "epsilon": 1, "delta": 1e-5} | terms)
    return request.draft({}, {"a": None, "b": None}, PublicRowStore(folder))


def facts_of(study: Study) -> FederationFacts:
    return FederationFacts.uniform(
        np.array([2000, 2000]), epsilon=1.0, delta=1e-5, n_features=3, loss=build_loss(study), study=study
    )


# ── what may be stated ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("label", "stated", "words"),
    [
        (RARE, {"no": 1.5}, r"the weight of 'no' must lie in \[0, 1\], not 1.5"),
        (RARE, {"no": -0.1}, r"must lie in \[0, 1\], not -0.1"),
        (RARE, {"maybe": 0.5}, "label 'ill' has no class 'maybe'; it has no, yes"),
        (RARE, {"no": 0, "yes": 0}, "must leave two classes a weight above 0"),
        (RARE, {"no": 0}, "must leave two classes a weight above 0"),
        (RARE, "rare", "balanced"),
        (RARE, {"no": "much"}, "number"),
        (Label(name="ill", values=("no", "yes")), "balanced", "state the shares of label 'ill' in the study"),
        (RealLabel(name="dose", lower=0, upper=1), "balanced", "label 'dose' is a number, without classes to weigh"),
    ],
)
def test_what_cannot_be_is_refused_in_words_by_studies_and_runs(
    tmp_path: Path, label: Label | RealLabel, stated: object, words: str
) -> None:
    content = study_of(label).model_dump(mode="json") | {"class_weights": stated}
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match=words):
        read_study(tmp_path / "s.json")
    with pytest.raises((InvalidInputError, ValidationError), match=words):
        drafted(tmp_path, study_of(label), class_weights=stated)


def test_a_run_may_state_others_than_its_study_and_none_changes_no_digest(tmp_path: Path) -> None:
    plain, weighted = study_of(), study_of(class_weights="balanced")
    assert "class_weights" not in plain.model_dump(mode="json")
    assert plain.digest != weighted.digest
    assert weighted.weights_of_classes == pytest.approx((1 / 9, 1))
    spec = drafted(tmp_path, plain)
    assert "class_weights" not in spec.model_dump(mode="json")
    assert spec.facts().loss == Logistic()
    assert drafted(tmp_path, weighted).facts().loss == Logistic(class_weights=weighted.weights_of_classes)
    own = drafted(tmp_path, weighted, class_weights={"no": 0.5})
    assert own.named_class_weights == {"no": 0.5, "yes": 1.0}
    assert own.digest != drafted(tmp_path, weighted).digest
    assert drafted(tmp_path, weighted, class_weights={"no": 1}).facts().loss == Logistic()
    assert read_class_weights("balanced") == "balanced"
    with pytest.raises(InvalidInputError, match="'no' is named twice"):
        read_class_weights("no=1,no=0.5")


def test_an_algorithm_takes_weights_or_says_at_submission_that_it_does_not(tmp_path: Path) -> None:
    study = study_of(class_weights="balanced")
    facts, refused = facts_of(study), set[str]()
    for name in REGISTRY.keys() - {"probe"}:  # the tests' own
        try:
            build_algorithm(name).check_rows(facts)
        except InvalidInputError:
            refused.add(name)
    assert refused == {"ensemble_vote", "ensemble_soft", "feature", "multilevel_feature", "matrix_perturbation"}
    with pytest.raises(InvalidInputError, match="takes no class weights: to train with them, take dp_gd"):
        drafted(tmp_path, study_of(), class_weights="balanced", algorithm="ensemble_vote")
    with pytest.raises(InvalidInputError, match="describe trains nothing that class_weights could change"):
        drafted(tmp_path, study_of(), class_weights="balanced", algorithm="describe")
    assert drafted(tmp_path, study, algorithm="describe").facts().loss.class_weights
    three = Label(name="kind", values=("a", "b", "c"), shares=(0.8, 0.1, 0.1))
    for mechanism in ("centroids", "one_against_rest"):
        with pytest.raises(InvalidInputError, match="take mechanism = output"):
            build_algorithm("release", {"mechanism": mechanism}).check_noise(
                facts_of(study_of(three, class_weights="balanced")).everyone
            )


# ── what they do ─────────────────────────────────────────────────────────────

WEIGHTS = (1.0, 0.3, 0.05)


@pytest.mark.parametrize("loss", [Logistic(class_weights=WEIGHTS[:2]), Softmax(3, class_weights=WEIGHTS)])
@pytest.mark.parametrize("clip_norm", [0.01, 0.7])
def test_a_clipped_gradient_is_scaled_toward_zero(loss: Loss, clip_norm: float) -> None:
    rng, k = np.random.default_rng(5), len(loss.class_weights)
    weights = rng.normal(size=(4,) if k == 2 else (3, 4)) * 5
    plain = Logistic() if k == 2 else Softmax(3)
    for row in range(60):
        shard = Shard(ball(rng, 1, 4), encode_classes(np.array([row % k]), k))
        whole, part = (gradient_sum(each, shard, weights, clip_norm) for each in (plain, loss))
        assert np.abs(part - WEIGHTS[row % k] * whole).max() <= 2.0**17  # a step of the grid of slopes, times a feature
        assert (np.abs(part) <= np.abs(whole)).all()
        assert (np.sign(part) * np.sign(whole) >= 0).all()


def test_the_minimiser_is_that_of_scikit_learn_with_the_same_weights() -> None:
    rng, d = np.random.default_rng(6), 3
    for k, n in ((2, 400), (3, 400), (3, 2)):
        codes = rng.integers(k, size=n)
        shard = Shard(ball(rng, n, d) / 2 + 0.2 * np.eye(d)[codes], encode_classes(codes, k))
        loss = Logistic(class_weights=WEIGHTS[:2]) if k == 2 else Softmax(3, class_weights=WEIGHTS)
        found = minimise(loss, shard, 2.0)
        gradient = loss.slope(shard.X @ found.T, shard.y).T @ shard.X + 2.0 * found
        assert np.abs(gradient).max() < 1e-8
        if n > k:
            peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000)
            peer.fit(shard.X, codes, sample_weight=np.array(WEIGHTS)[codes])
            assert np.allclose(found, peer.coef_[0] if k == 2 else peer.coef_, atol=1e-5)
    terms = SiteTerms(Hinge(class_weights=WEIGHTS[:2]), 100, d, 0.1, 1.0, 1e-5)
    assert solvable(terms).class_weights == WEIGHTS[:2]


# ── what is said ─────────────────────────────────────────────────────────────


def test_labels_follow_the_scores_and_probabilities_are_of_the_population() -> None:
    weights = {"no": 0.1, "yes": 1.0}
    document = document_of(study_of(), class_weights=weights)
    rows = [{"x": x / 10, "z": z / 10} for x in range(-10, 11) for z in (-9, 0, 9)]
    for plain, told in zip(predict(document_of(study_of()), rows), predict(document, rows), strict=True):
        assert (told["label"], told["score"]) == (plain["label"], plain["score"])
        assert told["probability"] == pytest.approx(expit(told["score"] + np.log(0.1)))
    assert predict(document_of(study_of(), class_weights={"yes": 1.0, "no": 0.1}), rows) == predict(document, rows)
    for wrong in ({"maybe": 0.5}, {"no": 2.0}):
        with pytest.raises(InvalidInputError, match="document: linear: class_weights"):
            predict(document_of(study_of(), class_weights=wrong), rows)
    three = study_of(Label(name="kind", values=("a", "b", "c")), loss=SoftmaxLoss())
    document = document_of(three, class_weights=dict(zip("abc", WEIGHTS, strict=True)))
    scores = Predictor.of(document).scores(np.eye(3))
    chances, found = np.exp(scores) / WEIGHTS, Predictor.of(document).probabilities(scores)
    assert found is not None
    (first, *_), labels = predict(document, rows), Predictor.of(document).labels(scores)
    assert labels == ["abc"[code] for code in scores.argmax(axis=1)]
    assert np.allclose(found, chances / chances.sum(axis=1, keepdims=True))
    assert first["probability"] == first["probabilities"][first["label"]]


def test_a_rare_class_is_a_caution_before_a_run_unless_something_is_done() -> None:
    algorithm = build_algorithm("dp_gd")
    (said,) = cautions(algorithm, facts_of(study_of()))
    assert said.startswith("the model may predict 'yes' (0.1 of the population) of nobody or almost nobody")
    assert said.endswith("take --threshold balanced, or --class-weights balanced")
    assert not cautions(algorithm, facts_of(study_of()), has_threshold=True)
    assert not cautions(algorithm, facts_of(study_of(class_weights="balanced")))
    assert not cautions(build_algorithm("describe"), facts_of(study_of()))
    many = study_of(Label(name="kind", values=tuple("abcdef"), shares=(0.9, 0.02, 0.02, 0.02, 0.02, 0.02)))
    (said,) = cautions(algorithm, facts_of(many))
    assert "'d'" in said
    assert said.endswith("and others of nobody or almost nobody: take --class-weights balanced")
    told = forecast(algorithm, facts_of(study_of()))
    assert isinstance(told, Forecast)
    assert "--class-weights balanced" in (told.warning or "")
    ruled = forecast(algorithm, facts_of(study_of()), has_threshold=True)
    assert isinstance(ruled, Forecast)
    assert ruled.cautions == ()


def test_a_class_that_nobody_is_told_is_a_caution_after_an_evaluation() -> None:
    def recall(**figures: tuple[float | None, float | None]) -> dict[str, Any]:
        return {"recall": {name: {"estimate": e, "low": low, "high": 1.0} for name, (e, low) in figures.items()}}

    assert "'yes' of nobody" in (unsaid_caution(recall(no=(0.99, 0.9), yes=(0.01, None))) or "")
    assert "'yes'" in (unsaid_caution(recall(no=(0.99, 0.9), yes=(0.08, 0.0))) or "")
    for figures in ({"yes": (0.5, 0.0)}, {"yes": (None, None)}, {"yes": (0.09, 0.05)}):
        assert unsaid_caution(recall(no=(0.99, 0.9), **figures)) is None
    assert unsaid_caution(None) is None


def test_a_forecast_is_that_of_the_run_without_weights_that_is_like_it() -> None:
    algorithm, weighted = (
        build_algorithm("dp_gd", {"step": 2.0, "n_rounds": 5}),
        facts_of(study_of(class_weights="balanced")),
    )
    like, facts = as_unweighted(algorithm, weighted)
    assert getattr(like, "step") == pytest.approx(0.4)  # noqa: B009 -- a field of dp_gd
    assert facts.n_examples.tolist() == [400, 400]
    assert facts.study is not None
    assert facts.study.class_shares == pytest.approx((0.5, 0.5))
    told, same = forecast(algorithm, weighted), forecast(like, facts)
    assert isinstance(told, Forecast)
    assert isinstance(same, Forecast)
    assert (told.excess, told.error_lost) == (same.excess, None)


def test_an_estimator_scales_weights_and_tells_probabilities_without_them() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4000, 2))
    y = np.where(X[:, 0] + rng.normal(size=4000) > 2.3, "ill", "well")
    given: dict[str, Any] = {"bounds": (-3, 3), "epsilon": 5.0, "delta": 1e-6, "random_state": 0}
    plain = PrivateClassifier(classes=("ill", "well"), **given).fit(X, y)
    weighted = PrivateClassifier(classes=("ill", "well"), class_weights={"ill": 19}, **given).fit(X, y)
    recalls = [float((model.predict(X)[y == "ill"] == "ill").mean()) for model in (plain, weighted)]
    assert recalls[0] < 0.4
    assert recalls[1] > 0.7
    assert abs(weighted.predict_proba(X)[:, 0].mean() - (y == "ill").mean()) < 0.02
    wrongs: list[tuple[Any, str]] = [("balanced", "private"), ({"dead": 1}, "not among"), ({"ill": -1}, "below 0")]
    for wrong, words in wrongs:
        with pytest.raises(ValueError, match=words):
            PrivateClassifier(classes=("ill", "well"), class_weights=wrong, **given).fit(X, y)
