"""One program, five ways to its replies: simulation, services over ASGI, over sockets, in a secure sum, and the log.

With the noise fixed (each party draws a seeded stream of its own) they come to the same model, bit for bit.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from parley.common.algorithms import REGISTRY, build_algorithm, parameter_schema
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.learning.losses import Logistic
from parley.common.privacy.events import NonPrivateEvent
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.driver import drive, logged_reply
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import simulate
from parley.common.runs.specification import Budget, Member, PublicRows, RunSpec
from parley.learner.storage.run_store import RunStore
from parley.party.api.app import create_party_app
from tests.support.cluster import AUTHORIZED, Cluster, Stream, asgi_cluster, refused, train, upload
from tests.support.intercepted import learner_of
from tests.support.nightly import NIGHTLY
from tests.support.noises import StackedNoise
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.rounds import ASKING, propose, run_spec
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services
from tests.support.studies import numbers_study

BUDGETS = {
    "party-1": Budget(epsilon=1.0, delta=1e-5),
    "party-2": Budget(epsilon=2.0, delta=1e-5),
    "party-3": Budget(epsilon=0.5, delta=1e-6),
}


def imagined(k: int, name: str) -> FederationFacts:
    """Facts of k parties and some public rows, or a model to evaluate, for what does not depend on more."""
    terms = {"epsilon": 1.0, "delta": 1e-5, "n_features": 2, "loss": Logistic()}
    width = 2 + (build_algorithm(name).public_rows == "labelled")
    terms |= {"public_shape": (1 if REGISTRY[name].rows == "held_out" else 5, width), "study": numbers_study(2)}
    return FederationFacts.uniform(np.full(k, 10), **terms)  # type: ignore[arg-type]


def is_private(name: str) -> bool:
    """Whether the algorithm's answers carry noise."""
    facts = imagined(1 if REGISTRY[name].curator else 3, name)
    return not isinstance(build_algorithm(name).event(1, facts.of(0)), NonPrivateEvent)


PRIVATE = [name for name in REGISTRY if is_private(name)]
NON_PRIVATE = [name for name in REGISTRY if name not in PRIVATE]


class Case:
    """An algorithm among three parties of different sizes and budgets, or with a curator alone."""

    cluster_type: ClassVar[type[Cluster]] = Cluster
    terms: ClassVar[dict[str, str]] = {}

    def __init__(self, name: str, root: Path) -> None:
        fixed: dict[str, object] = {"n_rounds": 4, "regularization": 0.01}  # what is chosen depends on who adds noise
        if name == "average":
            fixed |= {"mechanism": "output", "law": "gaussian"}
        if name == "simplex":  # so few examples allow a draw under no less
            fixed["regularization"] = 10.0
        properties = parameter_schema(name)["properties"]
        self.parameters: dict[str, Any] = {
            parameter: value for parameter, value in fixed.items() if parameter in properties
        }
        self.algorithm = build_algorithm(name, self.parameters)
        if name == "dp_gd":
            self.parameters = asdict(self.algorithm)  # type: ignore[call-overload]
        is_held_out = self.algorithm.rows == "held_out"
        self.cluster = self.cluster_type(
            root,
            n_parties=1 if self.algorithm.curator else 3,
            algorithms=tuple(REGISTRY),
            hold_out=0.25 if is_held_out else None,
        )
        self.n_public = 1 if is_held_out else 6
        self.budgets = {name: BUDGETS[name] for name in self.cluster.names}
        questions = self.algorithm.questions(imagined(1 if self.algorithm.curator else 3, name))
        self.labelled = self.algorithm.public_rows == "labelled"
        asks = self.labelled or any(question.public for question in questions)
        self.rows = self.cluster.public_rows(self.n_public, labelled=self.labelled) if asks else None
        self.request: dict[str, Any] = {
            "algorithm": name,
            "parameters": self.parameters,
            "budgets": {name: budget.model_dump() for name, budget in self.budgets.items()},
            **self.terms,
        }
        if self.rows is not None:
            self.request["public"] = PublicRows.of(self.rows).digest

    @property
    def spec(self) -> RunSpec:
        """The specification that the learner should make of the request."""
        members = tuple(
            Member(name=name, n_examples=int(self.cluster.shard(index).n_examples), budget=budget)
            for index, (name, budget) in enumerate(self.budgets.items())
        )
        terms = {"algorithm": self.request["algorithm"], "parameters": self.parameters, "parties": members}
        terms["colluders"] = int("secure_sum" in self.terms)
        public = None if self.rows is None else PublicRows.of(self.rows)
        return run_spec(self.cluster, **(terms | self.terms), public=public).settled()[0]

    def noises(self) -> dict[str, Stream]:
        """Each party's stream, from its start."""
        return {name: Stream(7, index) for index, name in enumerate(self.cluster.names)}

    def simulated(self) -> FloatArray:
        """The weights of a simulation with the parties' streams."""
        shard = Shard.stack([self.cluster.part(index, self.algorithm.rows) for index in range(len(self.cluster.names))])
        noises = [stream.noise for stream in self.noises().values()]
        noise = noises[0] if self.algorithm.curator else StackedNoise(noises)
        spec = self.spec
        facts = replace(spec.facts(self.rows), run=spec.digest)
        return simulate(spec.build(), shard, facts, noise).weights

    async def train(self, client: httpx.AsyncClient) -> dict[str, Any]:
        """The model document of a run by the services, to which public rows are uploaded first if it asks for any."""
        if self.rows is not None:
            uploaded = await upload(client, self.cluster.public_table(self.n_public), labelled=self.labelled)
            assert uploaded["digest"] == self.request["public"]
        return await train(client, **self.request)


class SecureCase(Case):
    """An algorithm of whose answers the learner sees the sums alone."""

    cluster: SecureCluster
    cluster_type = SecureCluster
    terms = SUMS


def sums(name: str) -> bool:
    """Whether several parties answer and the program asks for their sum."""
    case = build_algorithm(name)
    return not case.curator and all(question.reveal == "sum" for question in case.questions(imagined(2, name)))


SUMMING = [name for name in PRIVATE if sums(name)]


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


class Nobody:
    """A federation that must not be asked."""

    async def answer(self, run: str, query: Query) -> NoReturn:
        pytest.fail(f"round {query.round} was asked again")


class WrittenLog:
    """The log of a run in a learner's store, to be read alone."""

    def __init__(self, store: RunStore, run: str) -> None:
        self.store, self.run = store, run

    async def recall(self, query: Query) -> Reply | None:
        return logged_reply(self.store.reply(self.run, query.round), query)

    async def append(self, query: Query, reply: Reply) -> NoReturn:
        pytest.fail(f"round {query.round} was logged again")


@pytest.mark.parametrize("case", PRIVATE, indirect=True)
@pytest.mark.slow
async def test_services_over_asgi_equal_the_simulation_and_the_replay(case: Case) -> None:
    async with asgi_cluster(case.cluster, case.noises()) as client:
        model = await case.train(client)
        (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
    assert model["spec_digest"] == case.spec.digest
    assert np.array(model["weights"]).tobytes() == case.simulated().tobytes()

    store = RunStore(case.cluster.learner_settings().state / "learner.sqlite")
    replayed = await drive(case.spec.build().program(case.spec.facts(case.rows)), Nobody(), run, WrittenLog(store, run))
    store.close()
    assert np.array(model["weights"]).tobytes() == replayed.weights.tobytes()
    print(f"{case.request['algorithm']}: simulation = HTTP over ASGI bit for bit with noise fixed; replay = run")


@pytest.mark.parametrize("case", PRIVATE if NIGHTLY else PRIVATE[::3], indirect=True)
@pytest.mark.slow
async def test_services_over_sockets_equal_the_simulation(case: Case) -> None:
    with party_processes(case.cluster, case.noises()) as urls:
        url = f"http://127.0.0.1:{free_port()}"
        settings = case.cluster.learner_settings(urls, port=httpx.URL(url).port)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            async with httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60) as client:
                model = await case.train(client)
    assert np.array(model["weights"]).tobytes() == case.simulated().tobytes()
    print(f"{case.request['algorithm']}: simulation = sockets bit for bit with noise fixed")


@pytest.mark.parametrize("case", NON_PRIVATE, indirect=True)
async def test_no_service_runs_an_algorithm_without_noise(case: Case) -> None:
    async with asgi_cluster(case.cluster) as client:
        reasons = await refused(client, **case.request)
    no_budget = ["the run releases answers without noise; no budget allows that"]
    assert reasons == dict.fromkeys(case.cluster.names, no_budget)
    with TestClient(create_party_app(case.cluster.party_settings("party-1")), headers=ASKING) as learner:
        response = propose(learner, case.spec)  # by a learner that asks nevertheless
    assert response.json()["type"] == "urn:parley:problem:budget-exhausted", response.text


@pytest.mark.parametrize("name", SUMMING)
@pytest.mark.slow
async def test_secure_sums_equal_the_simulation(name: str, tmp_path: Path) -> None:
    case = SecureCase(name, tmp_path)
    async with (
        secure_services(case.cluster, case.noises()) as services,
        learner_of(case.cluster, services) as client,
    ):
        model = await case.train(client)
    assert model["spec_digest"] == case.spec.digest
    assert np.array(model["weights"]).tobytes() == case.simulated().tobytes()
    print(f"{name}: simulation = secure sum over services bit for bit with noise fixed")


@pytest.mark.parametrize("name", SUMMING if NIGHTLY else SUMMING[::2])
@pytest.mark.slow
async def test_a_model_is_the_same_with_and_without_secure_sums(name: str, tmp_path: Path) -> None:
    plain, secure = Case(name, tmp_path / "plain"), SecureCase(name, tmp_path / "secure")
    quiet = dict.fromkeys(plain.cluster.names, lambda kept: NoNoise())
    async with asgi_cluster(plain.cluster, quiet) as client:
        seen = await plain.train(client)
    async with (
        secure_services(secure.cluster, quiet) as services,
        learner_of(secure.cluster, services) as client,
    ):
        summed = await secure.train(client)
    assert summed["weights"] == seen["weights"]
    print(f"{name}: the same model bit for bit with and without secure sum, noise fixed at zero")
