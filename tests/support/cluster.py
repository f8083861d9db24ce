"""A learner and its parties for tests, on data made up here or given: in this process over ASGI, or as processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from fastapi import FastAPI
from pyarrow.csv import write_csv
from pydantic import TypeAdapter

from parley.common.arrays import FloatArray
from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.data.columns import Columns, Feature, Label
from parley.common.data.loading import Loaded, shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import LogisticLoss, Rows, Study
from parley.common.files.tables import read_columns
from parley.common.privacy.noise import SeededNoise, SystemNoise
from parley.common.service.tokens import hash_token
from parley.learner.api.app import create_learner_app as create_learner
from parley.learner.api.tables import read_labelled, read_rows
from parley.learner.client.connection import parse_events
from parley.learner.runs.news import NEWS
from parley.learner.settings import LearnerSettings
from parley.party.answers.party import KeepingNoise, NoiseFactory
from parley.party.api.app import create_party_app as create_party
from parley.party.data.owner_data import Holding
from parley.party.ledger.ledger import OneTimeNoise
from parley.party.settings import PartySettings
from tests.support.ledgers import make_ledger
from tests.support.lines import line_over

USER, LEARNER = "a-users-token", "the-learners-token"
AUTHORIZED = {"Authorization": f"Bearer {USER}"}
DEADLINE = 2.0
"""For tests in which some peers are silent on purpose: others, in this process, keep it on a busy machine."""


class Stream:
    """A noise factory whose draws are one seeded stream, round after round, which a simulation can repeat."""

    def __init__(self, *seed: int) -> None:
        self.noise = SeededNoise(seed)

    def __call__(self, one_time: OneTimeNoise | None) -> KeepingNoise:
        return self.noise


@dataclass
class Cluster:
    """K parties' data and the settings of all services, under ``root``.

    ``hold_out`` is the study's. ``policy`` and ``learner`` change the parties' policies and the learner's settings.
    ``classifiers`` are what owners chose to train, by party. ``given`` is a study and each party's columns of it, or
    its rows as LIBSVM, in place of the made-up ones. Ledgers are made at once, unless it says otherwise.
    """

    root: Path
    n_parties: int = 5
    n_examples: int = 40
    n_features: int = 3
    epsilon: float = 100.0
    algorithms: tuple[str, ...] = ("dp_gd", "psgd", "local_average")
    policy: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)
    given: tuple[Study, Sequence[Columns] | Sequence[str]] | None = None
    makes_ledgers: bool = True
    hold_out: float | None = None
    classifiers: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.study, tables = self.given or (made_up(self.n_features), ())
        self.study = self.study.model_copy(update={"hold_out": self.hold_out or self.study.hold_out})
        self.n_parties = len(tables) or self.n_parties
        self.names = tuple(f"party-{index + 1}" for index in range(self.n_parties))
        self.study_path = self.root / "studies" / f"{self.study.name}.json"
        self.study_path.parent.mkdir(parents=True)
        self.study_path.write_text(self.study.model_dump_json())
        for index, name in enumerate(self.names):
            match tables[index] if tables else None:
                case None:
                    self._make_data_up(index, self.root / f"{name}.csv")
                case str(lines):
                    (self.root / f"{name}.svm").write_text(lines)
                case columns:
                    write_csv(pa.table(dict(columns)), self.root / f"{name}.csv")
            if self.makes_ledgers:
                make_ledger(self.party_settings(name))

    def _make_data_up(self, index: int, path: Path) -> None:
        """One party's examples: separable by the sum of the features, sizes that differ."""
        rng = np.random.default_rng([11, index])
        X = rng.uniform(-1, 1, (self.n_examples + index, self.n_features)).round(3)
        y = np.where(X.sum(axis=1) > 0, "yes", "no")
        header = ",".join([*self.study.feature_names, "y"])
        rows = [",".join([*map(str, x), label]) for x, label in zip(X.tolist(), y.tolist(), strict=True)]
        path.write_text("\n".join([header, *rows]) + "\n")

    def public_table(self, n: int = 6) -> bytes:
        """Rows that are no secret, as a CSV of the study's features, and a label."""
        X = np.random.default_rng(12).uniform(-1, 1, (n, self.n_features)).round(3)
        labels = (
            [self.study.label.values[i % 2] for i in range(n)] if isinstance(self.study.label, Label) else [0.0] * n
        )
        rows = [",".join(map(str, [*x, label])) for x, label in zip(X.tolist(), labels, strict=True)]
        return "\n".join([",".join([*self.study.feature_names, self.study.label.name]), *rows]).encode()

    def public_rows(self, n: int = 6, *, labelled: bool = False) -> FloatArray:
        """The same in the study's design."""
        path = self.root / "public.csv"
        path.write_bytes(self.public_table(n))
        return (read_labelled if labelled else read_rows)(path, self.study)

    def shard(self, index: int) -> Shard:
        """The shard of one party, as it loads it: the rows held out come last."""
        return shard_of(self.study, read_columns(self.root / f"{self.names[index]}.csv"))

    def part(self, index: int, rows: Rows) -> Shard:
        """The rows of one party that runs are about."""
        return Holding(self.study, Loaded(self.shard(index))).parts[rows]

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """A party's settings, which pin the study's column of persons."""
        person = self.study.person
        policy = {
            "epsilon": self.epsilon,
            "delta": 0.1,
            "max_epsilon_per_run": self.epsilon,
            "max_delta_per_run": 0.1,
            "algorithms": self.algorithms,
            "minimum_contributors": 1,
            "classifier": self.classifiers.get(name),
        }
        fields: dict[str, Any] = {
            "name": name,
            "state": self.root / name,
            "study": self.study_path,
            "data": {"source": str(next(self.root.glob(f"{name}.[cs]*[vm]"))), "person": person and person.column},
            "policy": policy | self.policy,
            "learners": [{"name": "learner", "token_hash": hash_token(LEARNER)}],
        }
        return PartySettings(**(fields | changes))

    def learner_settings(self, urls: Mapping[str, str] | None = None, **changes: object) -> LearnerSettings:
        """The learner's settings; ``urls`` by party, made up where they are not given."""
        fields: dict[str, Any] = {
            "name": "learner",
            "state": self.root / "learner",
            "studies": self.study_path.parent,
            "parties": [
                {"name": name, "url": (urls or {}).get(name, f"http://{name}"), "token": LEARNER, "plain_http": True}
                for name in self.names
            ],
            "users": [{"name": "alice", "token_hash": hash_token(USER)}],
        }
        return LearnerSettings(**(fields | self.learner | changes))


def made_up(n_features: int) -> Study:
    """The study of data that is made up here."""
    return Study(
        name="made-up",
        features=tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(n_features)),
        label=Label(name="y", values=("no", "yes")),
        loss=LogisticLoss(),
    )


def dealt(columns: Columns, n_parties: int, seed: int = 1) -> list[Columns]:
    """The rows of a table dealt to parties at random, as evenly as it goes."""
    n = len(next(iter(columns.values())))
    hands = np.array_split(np.random.default_rng(seed).permutation(n), n_parties)
    return [{name: column[hand] for name, column in columns.items()} for hand in hands]


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[FastAPI]:
    """An application between its start and its stop."""
    async with app.router.lifespan_context(app):
        yield app


@asynccontextmanager
async def party_apps(
    cluster: Cluster, noises: Mapping[str, NoiseFactory] = MappingProxyType({})
) -> AsyncIterator[dict[str, FastAPI]]:
    """The parties' applications by name; real noise unless said otherwise."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                running(create_party(cluster.party_settings(name), noises.get(name, SystemNoise)))
            )
            for name in cluster.names
        }


@asynccontextmanager
async def asgi_learner(
    settings: LearnerSettings, transports: Callable[[str], httpx.AsyncBaseTransport]
) -> AsyncIterator[httpx.AsyncClient]:
    """A user's client of a learner in this process, which reaches each party by its transport."""

    def connect_party(entry: PeerEntry) -> Line:
        return line_over(entry, transports(entry.name))

    async with running(create_learner(settings, connect_party)) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://learner", headers=AUTHORIZED) as client:
            yield client


@asynccontextmanager
async def asgi_cluster(
    cluster: Cluster, noises: Mapping[str, NoiseFactory] = MappingProxyType({})
) -> AsyncIterator[httpx.AsyncClient]:
    """A user's client of a learner whose parties are in this process too."""
    async with (
        party_apps(cluster, noises) as apps,
        asgi_learner(cluster.learner_settings(), lambda name: httpx.ASGITransport(apps[name])) as client,
    ):
        yield client


async def upload(client: httpx.AsyncClient, table: bytes, *, labelled: bool = False) -> dict[str, Any]:
    """The name of public rows, uploaded as CSV."""
    headers = {"Content-Type": "application/octet-stream"}
    response = await client.put(
        f"/v1/public?study=made-up{'&labelled=true' if labelled else ''}", content=table, headers=headers
    )
    assert response.status_code == 201, response.text
    name: dict[str, Any] = response.json()
    return name


async def submit(client: httpx.AsyncClient, **terms: object) -> str:
    """The identifier of a new run on the cluster's study, of ten rounds of dp_gd; ``terms`` are further fields."""
    descent = {} if "algorithm" in terms else {"parameters": {"n_rounds": 10}}
    request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5} | descent | terms
    response = await client.post("/v1/runs", json=request)
    assert response.status_code == 202, response.text
    run: str = response.json()["id"]
    return run


async def refused(client: httpx.AsyncClient, **terms: object) -> dict[str, list[str]]:
    """Why parties would refuse such a run, by party, for which it is refused when it is asked for."""
    request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5} | terms
    response = await client.post("/v1/runs", json=request)
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["type"]) == (422, "urn:parley:problem:foreseen-refusal"), problem
    return {refusal["party"]: refusal["reasons"] for refusal in problem["refusals"]}


_NEWS = {kind: TypeAdapter(news) for kind, news in NEWS.items()}


async def watch(client: httpx.AsyncClient, run: str, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """All of a run's events to its end, as (kind, data), which are of the types that are documented."""
    response = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": str(after)}, timeout=60)
    events: list[tuple[str, dict[str, Any]]]
    events = [(event.kind, json.loads(event.data)) for event in parse_events(response.text.splitlines())]
    for kind, news in events:
        _NEWS[kind].validate_python(news)
        assert news.keys() <= NEWS[kind].__annotations__.keys(), news
    return events


async def until_paused(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    """Why a run is paused, once it is."""
    async with asyncio.timeout(60):
        while (view := (await client.get(f"/v1/runs/{run}")).json())["state"] != "paused":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    pause: dict[str, Any] = view["pause"]
    return pause


async def until_owners_are_asked(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    """Why a run that recruits stands still, once it does."""
    async with asyncio.timeout(60):
        while (view := (await client.get(f"/v1/runs/{run}")).json())["pause"] is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert view["state"] == "recruiting"
    pause: dict[str, Any] = view["pause"]
    return pause


async def train(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    """A new run's model document."""
    run = await submit(client, **terms)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed", events[-1]
    model: dict[str, Any] = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
    return model
