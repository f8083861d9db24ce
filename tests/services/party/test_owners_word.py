"""Where the policy asks for it, a run waits for the owner's word; what it says counts, once, and is in the ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from parley.common.errors import BudgetExhaustedError, ConflictError, ForbiddenError, NotFoundError
from parley.party.answers.party import open_store
from parley.party.ledger.records import Approved, Ended, OwnerAsked, OwnerDenied
from parley.party.owner.questions import WaitingRuns
from tests.support.cluster import Cluster, asgi_cluster, submit, until_owners_are_asked, watch

MANUAL: dict[str, Any] = {"approval": "manual"}


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=2, policy=MANUAL)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with asgi_cluster(cluster) as client:
        yield client


def say(cluster: Cluster, what: str, run: str, *names: str) -> None:
    """The owners' word, from another process's ledger."""
    for name in names or cluster.names:
        with open_store(cluster.party_settings(name)) as store:
            getattr(store.questions, what)("learner", run)


async def test_a_run_waits_until_all_owners_have_said_yes(cluster: Cluster, client: httpx.AsyncClient) -> None:
    run = await submit(client, parameters={"n_rounds": 3})
    paused = await until_owners_are_asked(client, run)
    assert "its owner was asked, and has not answered yet" in json.dumps(paused)
    assert all(name in json.dumps(paused) for name in cluster.names)
    with open_store(cluster.party_settings("party-1")) as store:
        ((learner, book),) = store.questions.pending()
        proposal, price = store.questions.read(book)
        assert (learner, proposal.run, price.total.epsilon) == ("learner", run, 1_000_000)
        assert store.account().spent.epsilon == store.account().reserved.epsilon == 0
    say(cluster, "allow", run)
    say(cluster, "allow", run)
    with open_store(cluster.party_settings("party-1")) as store:
        assert store.questions.pending() == []
        assert store.account().reserved.epsilon == 1_000_000
    await client.post(f"/v1/runs/{run}/resume")
    await watch(client, run)
    assert (await client.get(f"/v1/runs/{run}")).json()["state"] == "completed"
    with open_store(cluster.party_settings("party-1")) as store:
        kinds = [type(entry.record) for entry in store.entries()]
        assert kinds.count(OwnerAsked) == kinds.count(Approved) == 1


async def test_a_no_ends_the_run_with_its_reason(cluster: Cluster, client: httpx.AsyncClient) -> None:
    run = await submit(client, parameters={"n_rounds": 3})
    await until_owners_are_asked(client, run)
    with open_store(cluster.party_settings("party-2")) as store:
        assert not store.questions.deny("learner", run, "not for marketing")
        assert not store.questions.deny("learner", run, "twice")
        assert [type(entry.record) for entry in store.entries()].count(OwnerDenied) == 1
    say(cluster, "allow", run, "party-1")
    await client.post(f"/v1/runs/{run}/resume")
    await watch(client, run)
    view = (await client.get(f"/v1/runs/{run}")).json()
    assert view["state"] == "failed"
    assert "does not want to take part: not for marketing" in view["problem"]["detail"]


async def test_a_yes_may_be_taken_back(cluster: Cluster, client: httpx.AsyncClient) -> None:
    run = await submit(client, parameters={"n_rounds": 3})
    await until_owners_are_asked(client, run)
    say(cluster, "allow", run)
    with open_store(cluster.party_settings("party-1")) as store:
        assert store.questions.deny("learner", run)
        assert store.account().reserved.epsilon == 0
        assert isinstance(store.entries()[-1].record, Ended)
        with pytest.raises(ConflictError, match="has ended"):
            store.questions.allow("learner", run)
        with pytest.raises(NotFoundError):
            store.questions.allow("learner", "another")
    await client.post(f"/v1/runs/{run}/resume")
    await watch(client, run)
    assert (await client.get(f"/v1/runs/{run}")).json()["state"] == "failed"


async def test_a_question_in_an_older_version_s_form_hides_no_other(
    cluster: Cluster, client: httpx.AsyncClient
) -> None:
    run = await submit(client, parameters={"n_rounds": 3})
    await until_owners_are_asked(client, run)
    with open_store(cluster.party_settings("party-1")) as store:
        ((_, book),) = store.questions.pending()
        proposal, price = store.questions.read(book)
        old: Any = SimpleNamespace(run="old", spec=proposal.spec, model_dump_json=lambda: '{"run": "old"}')
        store.questions.ask("learner", old, price, 60)
        assert [question["run"] for question in WaitingRuns(store).questions()] == [run]
        with pytest.raises(ConflictError, match="an older version of Parley asked about this run"):
            store.questions.allow("learner", "old")
        assert not store.questions.deny("learner", "old")
        assert [book.question.run for _, book in store.questions.pending()] == [run]


async def test_a_budget_allows_one_of_two(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, policy=MANUAL | {"composition": "basic"}, epsilon=1.0)
    async with asgi_cluster(cluster) as client:
        runs = []
        for _ in range(2):
            runs.append(await submit(client, parameters={"n_rounds": 3}))
            await until_owners_are_asked(client, runs[-1])
        with open_store(cluster.party_settings("party-1")) as store:
            assert [store.questions.read(book)[0].run for _, book in store.questions.pending()] == runs
            store.questions.allow("learner", runs[0])
            with pytest.raises(BudgetExhaustedError):
                store.questions.allow("learner", runs[1])


async def test_a_question_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, n_parties=1, policy=MANUAL | {"approval_hours": 1e-9})
    async with asgi_cluster(cluster) as client:
        run = await submit(client, parameters={"n_rounds": 3})
        await watch(client, run)
        problem = (await client.get(f"/v1/runs/{run}")).json()["problem"]
    assert "the owner did not answer in time" in problem["detail"]
    with open_store(cluster.party_settings("party-1")) as store:
        assert store.questions.pending() == []
        with pytest.raises(ConflictError, match="has expired"):
            store.questions.allow("learner", run)


async def test_a_learner_cannot_fill_the_owners_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.party.ledger.ledger.MOST_PENDING", 1)
    cluster = Cluster(tmp_path, n_parties=1, policy=MANUAL)
    async with asgi_cluster(cluster) as client:
        await until_owners_are_asked(client, await submit(client, parameters={"n_rounds": 3}))
        second = await submit(client, parameters={"n_rounds": 3})
        await watch(client, second)
        assert "wait for the owner already" in (await client.get(f"/v1/runs/{second}")).json()["problem"]["detail"]
    assert ForbiddenError.status == 403


async def test_a_cohort_waits_for_owners_as_long_as_its_rule_says(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=3, policy=MANUAL)
    rule = {"least": 2, "seconds": 1}
    async with asgi_cluster(cluster) as client:
        waits = await submit(client, parameters={"n_rounds": 3}, cohort=rule)
        pause = await until_owners_are_asked(client, waits)
        assert sorted(pause["who"]) == sorted(cluster.names)
        say(cluster, "allow", waits, "party-1", "party-2")
        await client.post(f"/v1/runs/{waits}/resume")
        async with asyncio.timeout(30):
            while (await client.get(f"/v1/runs/{waits}")).json()["pause"]["who"] != ["party-3"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        hastes = await submit(client, parameters={"n_rounds": 3}, cohort=rule | {"owner_hours": 0})
        while (await client.get(f"/v1/runs/{hastes}")).json()["pause"] is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        say(cluster, "allow", hastes, "party-1", "party-2")
        await client.post(f"/v1/runs/{hastes}/resume")
        await watch(client, hastes)
        view = (await client.get(f"/v1/runs/{hastes}")).json()
        assert (view["state"], list(view["absent"])) == ("completed", ["party-3"])
        assert (await client.get(f"/v1/runs/{waits}")).json()["state"] == "recruiting"
