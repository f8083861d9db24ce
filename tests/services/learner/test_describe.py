"""A description as its user asks for it: the owners' own figures, what they paid, and what is refused at no cost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from parley.common.algorithms.describe import Describe
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.privacy.account import MICRO
from parley.common.runs.pricing import price
from parley.learner.cli.main import learner_app
from tests.support.cluster import LEARNER, USER, Cluster, dealt, refused, submit, watch
from tests.support.intercepted import Intercepted, intercepted_parties, learner_of
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

STUDY = Study(
    name="loans",
    features=(Feature(name="age", lower=0, upper=100), Category(name="work", values=("[state]", "private"))),
    label=Label(name="repaid", values=("no", "yes")),
)
N, PARTIES = 1200, 3
DESCRIBE: dict[str, Any] = {"study": "loans", "algorithm": "describe", "epsilon": 2.0, "delta": 1e-5}


def table() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {
        "age": np.clip(rng.normal(70, 20, N).round(), 0, 100),
        "work": rng.choice(["[state]", "private"], N, p=[0.2, 0.8]),
        "repaid": rng.choice(["no", "yes"], N, p=[0.7, 0.3]),
    }


def cluster_of(kind: type[Cluster], root: Path) -> Any:  # noqa: ANN401 -- a cluster of that kind
    return kind(root, given=(STUDY, dealt(table(), PARTIES)), n_examples=N // PARTIES, algorithms=("describe", "dp_gd"))


Services = dict[str, Intercepted]


@asynccontextmanager
async def serving(cluster: Cluster) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
    """A user's client of a learner, and its parties, in this process."""
    services = secure_services(cluster) if isinstance(cluster, SecureCluster) else intercepted_parties(cluster)
    async with services as urls, learner_of(cluster, urls) as client:
        yield client, urls


async def spent(services: Services, name: str) -> list[int]:
    """What a party's ledger has been charged, in whole units."""
    async with httpx.AsyncClient(
        transport=services[name].inner, base_url="http://party", headers={"Authorization": f"Bearer {LEARNER}"}
    ) as client:
        units: list[int] = (await client.get("/v1/budget")).raise_for_status().json()["units"]["spent"]
    return units


@pytest.mark.parametrize(("kind", "terms"), [(Cluster, {}), (SecureCluster, SUMS)], ids=["each answer", "secure sum"])
async def test_describes_what_the_owners_hold_and_charges_what_it_said(
    kind: type[Cluster], terms: dict[str, Any], tmp_path: Path
) -> None:
    cluster = cluster_of(kind, tmp_path)
    async with serving(cluster) as (client, services):
        run = await submit(client, **DESCRIBE, **terms)
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed", events[-1]
        response = await client.get(f"/v1/runs/{run}/description")
        model = (await client.get(f"/v1/runs/{run}/model")).json()
        charged = [await spent(services, name) for name in cluster.names]
        predicted = await client.post(f"/v1/runs/{run}/predictions", json={"records": [{"age": 1, "work": "private"}]})
    description, columns = response.raise_for_status().json(), table()
    age, work, repaid = description["columns"]
    assert description["rows"] == {"value": N, "low": N, "high": N}
    assert age["mean"]["low"] - 2 < columns["age"].mean() < age["mean"]["high"] + 2
    assert abs(age["at_upper"]["rows"]["value"] - (columns["age"] == 100).sum()) < 6 * description["deviation"]
    assert any("the upper bound: if owners clip, it is too low" in remark for remark in age["remarks"])
    for column, name in ((work, "work"), (repaid, "repaid")):
        for part in column["values"]:
            assert abs(part["rows"]["value"] - (columns[name] == part["value"]).sum()) < 6 * description["deviation"]
    assert model["kind"] == "statistics"
    assert (predicted.status_code, predicted.json()["detail"]) == (
        422, "the run trained no model: its counts and sums predict for nobody"
    )  # fmt: skip
    facts = run_spec(cluster, epsilon=2.0, algorithm="describe", parameters={}, **terms).facts()
    total = price(Describe(), facts.of(0)).total
    assert charged == [list(total.units)] * PARTIES
    (cost,) = [data["epsilon"] for kind, data in events if kind == "round"]
    assert cost == dict.fromkeys(cluster.names, pytest.approx(total.epsilon / MICRO))
    assert max(guarantee["epsilon"] for guarantee in model["guarantees"][:1]) <= 2.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"columns": {"wage": None}}, "the study has no column 'wage'"),
        ({"columns": {"work": 5}}, "a histogram without bounds: column 'work' has values"),
        ({"columns": {"age": 1000}}, "columns.age: Input should be less than or equal to 100"),
        ({"columns": {"age": 0}, "moments": False}, "no column is left to describe"),
    ],
)
async def test_bad_input_names_the_column_and_costs_nothing(
    parameters: dict[str, Any], why: str, tmp_path: Path
) -> None:
    cluster = cluster_of(Cluster, tmp_path)
    async with serving(cluster) as (client, services):
        refused = await client.post("/v1/runs", json=DESCRIBE | {"parameters": parameters})
        assert refused.status_code == 422
        assert why in refused.json()["detail"]
        assert not any("runs" in path for service in services.values() for path in service.seen)
        assert [await spent(services, name) for name in cluster.names] == [[0] * 6] * PARTIES


async def test_an_owner_who_does_not_allow_it_is_not_asked_again(tmp_path: Path) -> None:
    cluster = cluster_of(Cluster, tmp_path)
    cluster.algorithms = ("dp_gd",)
    async with serving(cluster) as (client, services):
        everybody = {name: ["the owner does not allow describe"] for name in cluster.names}
        assert await refused(client, **DESCRIBE) == everybody
        assert [await spent(services, name) for name in cluster.names] == [[0] * 6] * PARTIES


async def test_a_model_is_no_description(tmp_path: Path) -> None:
    async with serving(cluster_of(Cluster, tmp_path)) as (client, _):
        run = await submit(client, **(DESCRIBE | {"algorithm": "dp_gd"}))
        await watch(client, run)
        refused = await client.get(f"/v1/runs/{run}/description")
        assert (refused.status_code, refused.json()["detail"]) == (
            422, "the run is one of dp_gd; only a run of describe describes columns"
        )  # fmt: skip


# ── the command ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A learner with its parties, as processes."""
    cluster = cluster_of(Cluster, tmp_path_factory.mktemp("cluster"))
    url = f"http://127.0.0.1:{free_port()}"
    with party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls, port=httpx.URL(url).port)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            yield url


def command(url: str, *arguments: str, status: int = 0) -> Result:
    """What ``parley-learner describe`` prints."""
    env = {"PARLEY_URL": url, "PARLEY_TOKEN": USER, "COLUMNS": "100"}
    terms = ["describe", "loans", "--epsilon", "2", "--delta", "1e-5", *arguments]
    result = CliRunner().invoke(learner_app, terms, env=env)
    assert result.exit_code == status, result.output
    return result


def test_the_command_prints_what_lets_a_person_judge_bounds(url: str) -> None:
    result = command(url, "--purpose", "to check bounds")
    assert "it trains no model: of 1,200 rows, each count will be right to ± 21 rows (1.8%)" in result.stderr
    stdout = result.stdout
    assert "1,200 ± 0 rows; noise of deviation" in stdout
    words = " ".join(stdout.split())
    assert "column bounds mean sd at lower between at upper" in words
    assert "column value rows share" in words
    assert "0 to 100" in stdout
    assert "█" in stdout
    assert "[state]" in stdout  # not taken for a colour
    assert "age: at least" in stdout
    assert "of the rows lie at the upper bound: if owners clip, it is too low" in stdout
    assert "repaid: the majority is 'no': to predict it for all is right for " in stdout
    assert "cost, in epsilon: party-1 2, party-2 2, party-3 2" in stdout
    assert "epsilon 2, delta 1e-05 for one record replaced, against anyone who sees the transcript" in stdout


def test_the_command_speaks_json(url: str) -> None:
    arguments = ("--column", "age=4", "--column", "work", "--format", "json", "--party", "party-2")
    document = json.loads(command(url, *arguments).stdout)
    assert document.keys() == {"run", "cost", "guarantees", "description"}
    age, work = document["description"]["columns"]
    assert (len(age["histogram"]), work["name"], document["cost"].keys()) == (4, "work", {"party-2"})
    without = command(url, "--bins", "0").stdout
    assert "█" not in without
    assert "the noise hides much" in command(url, "--epsilon", "0.3").stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--column", "work=3"), "a histogram without bounds: column 'work'"),
        (("--column", "wage"), "the study has no column 'wage'"),
        (("--bins", "200"), "bins: Input should be less than or equal to 100"),
        (("--secure-sum", "paillier"), "this learner has no key holders"),
    ],
)
def test_the_command_says_what_is_wrong_in_a_line(url: str, arguments: tuple[str, ...], word: str) -> None:
    error = command(url, *arguments, status=3)
    assert word in error.stderr
    assert not error.stdout


def test_a_refused_description_is_a_failed_command(url: str) -> None:
    error = command(url, "--epsilon", "1000", status=3)
    assert "would refuse the run: one run may cost at most epsilon 100" in error.stderr.replace("\n", " ")
