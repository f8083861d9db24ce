"""The client against services as processes: trains, watches while the learner is killed, predicts, is refused."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from threading import Thread

import httpx
import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from parley.common.errors import (
    ConflictError,
    ForeseenRefusalError,
    InvalidInputError,
    NotFoundError,
    UnauthorizedError,
)
from parley.common.runs.model_document import LinearModel
from parley.learner.client import AsyncLearner, Learner
from parley.learner.estimators import FederatedClassifier, FederatedRegressor
from parley.learner.estimators.budget import EstimatorError
from tests.support.cluster import USER, Cluster
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready

pytestmark = pytest.mark.slow
RECORDS = [{"x0": x, "x1": x, "x2": x} for x in (0.9, -0.9)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("cluster"), n_parties=2, algorithms=("dp_gd", "evaluate", "describe"))


@pytest.fixture(scope="module")
def parties(cluster: Cluster) -> Iterator[dict[str, str]]:
    with party_processes(cluster) as urls:
        yield urls


@pytest.fixture(scope="module")
def url(cluster: Cluster, parties: dict[str, str]) -> Iterator[str]:
    """A learner that keeps running."""
    url = f"http://127.0.0.1:{free_port()}"
    settings = cluster.learner_settings(parties, port=httpx.URL(url).port, state=cluster.root / "steady")
    with stopped_at_exit(start_learner(settings)):
        wait_until_ready(url)
        yield url


def test_trains_watches_and_predicts(url: str) -> None:
    with Learner(url, USER) as learner:
        (study,) = learner.studies()
        assert learner.study(study.name).digest == study.digest
        assert [party.name for party in learner.parties()] == ["party-1", "party-2"]
        assert learner.user().name == "alice"
        foreseen = learner.forecast(study.name, epsilon=50, delta=1e-5, owners={"a": 100, "b": 200})
        assert [owner.n_examples for owner in foreseen.owners] == [100, 200]

        run = learner.submit(study.name, epsilon=50, delta=1e-5, parameters={"n_rounds": 4}, idempotency_key="one")
        again = learner.submit(study.name, epsilon=50, delta=1e-5, parameters={"n_rounds": 4}, idempotency_key="one")
        assert again.id == run.id
        assert learner.wait(run.id).rounds.done == 4
        model = learner.model(run.id)
        assert isinstance(model, LinearModel)
        assert [prediction.label for prediction in learner.predict(run.id, RECORDS)] == ["yes", "no"]
        columns = {name: np.array([record[name] for record in RECORDS]) for name in RECORDS[0]}
        assert learner.predict(run.id, columns) == learner.predict(run.id, RECORDS)
        assert run.id in [prediction.id for prediction in learner.runs()]
        assert learner.opened(run.id) == []


def test_an_event_loop_does_the_same(url: str) -> None:
    async def train() -> list[str | float]:
        async with AsyncLearner(url, USER) as learner:
            (study,) = await learner.studies()
            run = await learner.submit(study.name, epsilon=50, delta=1e-5, parameters={"n_rounds": 4})
            rounds = [event.news["round"] async for event in learner.watch(run.id) if event.kind == "round"]
            assert rounds == [1, 2, 3, 4]
            assert (await learner.wait(run.id)).state == "completed"
            assert run.id in [listed.id async for listed in learner.runs()]
            return [listed.label for listed in await learner.predict(run.id, RECORDS)]

    assert asyncio.run(train()) == ["yes", "no"]


def test_refusals_are_exceptions(url: str) -> None:
    with Learner(url, USER) as learner:
        with pytest.raises(InvalidInputError, match="unknown study 'none'"):
            learner.submit("none", epsilon=1, delta=1e-5)
        with pytest.raises(InvalidInputError, match="epsilon"):
            learner.submit("made-up", epsilon=0, delta=1e-5)
        with pytest.raises(NotFoundError):
            learner.wait("none")
        with pytest.raises(ForeseenRefusalError, match="one run may cost at most epsilon 100") as foreseen:
            learner.submit("made-up", epsilon=1000, delta=1e-5)
        assert "--epsilon " in str(foreseen.value.facts["helps"])
        run = learner.submit("made-up", epsilon=1, delta=1e-5)
        learner.wait(run.id)
        with pytest.raises(ConflictError) as caught:
            learner.cancel(run.id)
        assert caught.value.facts["state"] == "completed"
        with pytest.raises(InvalidInputError, match="x1"):
            learner.predict(run.id, [{"x0": 0.5}])
    with Learner(url, "of-no-one") as stranger, pytest.raises(UnauthorizedError):
        stranger.runs().__next__()


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_no_event_is_lost_while_the_learner_restarts(cluster: Cluster, parties: dict[str, str], end: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    settings = cluster.learner_settings(parties, port=httpx.URL(url).port, state=cluster.root / end)
    running = [start_learner(settings)]
    wait_until_ready(url)

    def restart() -> None:
        getattr(running[-1], end)()
        running[-1].join()
        running.append(start_learner(settings))

    events, keepers = [], list[Thread]()
    with Learner(url, USER) as learner:
        run = learner.submit("made-up", epsilon=1, delta=1e-5, parameters={"n_rounds": 400})
        for event in learner.watch(run.id):
            events.append(event)
            if event.kind == "round" and event.news["round"] in {50, 200}:
                keepers.append(Thread(target=restart))
                keepers[-1].start()
        for keeper in keepers:
            keeper.join()
        with stopped_at_exit(running[-1]):
            wait_until_ready(url)  # the last restart may still go on when the last event has come
            assert [event.news["round"] for event in events if event.kind == "round"] == list(range(1, 401))
            assert len({event.number for event in events}) == len(events)
            assert learner.run(run.id).state == "completed"
            assert len(learner.predict(run.id, RECORDS)) == 2
    print(f"{len(events)} events, each once, of a run whose learner was restarted {len(keepers)} times ({end})")


@pytest.fixture(scope="module")
def fitted(url: str) -> Iterator[FederatedClassifier]:
    with Learner(url, USER) as learner:
        yield FederatedClassifier("made-up", learner=learner, epsilon=50, parameters={"n_rounds": 4}).fit()


def asked(estimator: FederatedClassifier) -> Learner:
    assert isinstance(estimator.learner, Learner)
    return estimator.learner


class TestEstimators:
    def test_fit_trains_among_the_owners(self, fitted: FederatedClassifier) -> None:
        assert fitted.run_.rounds.done == 4
        assert fitted.document_.study == fitted.study_
        assert fitted.guarantee_.view == "transcript"
        assert fitted.guarantee_.epsilon == pytest.approx(50, rel=1e-3)
        assert fitted.classes_.tolist() == ["no", "yes"]
        assert fitted.feature_names_in_.tolist() == ["x0", "x1", "x2"]
        assert fitted.n_features_in_ == 3
        assert fitted.card_ == asked(fitted).card(fitted.run_.id)
        assert fitted.card_.startswith("# made-up: model card")

    def test_rows_may_have_any_form(self, fitted: FederatedClassifier) -> None:
        columns = {name: np.array([record[name] for record in RECORDS]) for name in RECORDS[0]}
        forms = (RECORDS, columns, pa.table(columns), np.column_stack(list(columns.values())))
        for rows in forms:
            assert fitted.predict(rows).tolist() == ["yes", "no"]
            assert fitted.score(rows, ["yes", "no"]) == 1.0
        chances = fitted.predict_proba(RECORDS)
        served = asked(fitted).predict(fitted.run_.id, RECORDS)
        assert chances[:, 1].tolist() == pytest.approx([prediction.probability for prediction in served], abs=1e-12)
        assert fitted.decision_function(RECORDS).tolist() == pytest.approx(
            [prediction.score for prediction in served], abs=1e-12
        )

    def test_a_copy_asks_for_a_run_of_its_own(self, fitted: FederatedClassifier) -> None:
        twin = clone(fitted)
        assert twin.get_params() == fitted.get_params()
        with pytest.raises(NotFittedError):
            twin.predict(RECORDS)
        assert twin.take(fitted.run_.id).predict(RECORDS).tolist() == ["yes", "no"]

    def test_a_run_of_another_study_is_refused(self, fitted: FederatedClassifier) -> None:
        with pytest.raises(EstimatorError, match="is of the study 'made-up', not of 'another'"):
            clone(fitted).set_params(study="another").take(fitted.run_.id)
        assert clone(fitted).set_params(study="").take(fitted.run_.id).study_ == fitted.study_

    def test_what_cannot_be_is_said_before_a_run_is_asked_for(self, fitted: FederatedClassifier) -> None:
        learner = asked(fitted)
        before = len(list(learner.runs()))
        with pytest.raises(EstimatorError, match="takes no data"):
            clone(fitted).fit([[1.0]], [1])
        with pytest.raises(EstimatorError, match="study is missing"):
            FederatedClassifier(learner=learner).fit()
        with pytest.raises(EstimatorError, match="whose label is classes"):
            FederatedRegressor("made-up", learner=learner).fit()
        with pytest.raises(NotFoundError, match="no study"):
            FederatedClassifier("none", learner=learner).fit()
        assert len(list(learner.runs())) == before

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([{"x0": 0.5, "x1": 0.1}], "row 0: feature 'x2' is missing"),
            ({"x0": ["a"], "x1": [0.0], "x2": [0.0]}, "row 0: feature 'x0' is not a number"),
            ({"x0": [0.0]}, "lack 'x1', 'x2'"),
            ([[0.0]], "3 columns"),
            (None, "need names"),
        ],
    )
    def test_rows_that_do_not_fit_are_named(self, fitted: FederatedClassifier, rows: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            fitted.predict(rows)

    def test_an_address_and_the_environment_are_enough(self, fitted: FederatedClassifier, url: str) -> None:
        alone = clone(fitted).set_params(learner=url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PARLEY_TOKEN", USER)
            alone.take(fitted.run_.id)
        assert copy.deepcopy(alone).predict(RECORDS).tolist() == ["yes", "no"]
