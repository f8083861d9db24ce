"""What one user may have of a learner: the next is refused with 429, which says what it is and what helps."""

from __future__ import annotations

import asyncio

import httpx

from tests.support.cluster import DEADLINE, Cluster, submit, until_paused, watch
from tests.support.intercepted import Intercepted, learner_of, pass_on, unreachable

Parties = dict[str, Intercepted]
ORDER = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}


def share_of(response: httpx.Response) -> str:
    """Which share a refusal names; checks what every such refusal says."""
    problem = response.json()
    assert response.status_code == 429
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "urn:parley:problem:share-used-up"
    assert response.headers["retry-after"] == str(problem["retry_after"])
    assert f"(shares.{problem['share']}): " in problem["detail"]
    return str(problem["share"])


async def test_runs_that_have_not_ended_are_a_share(cluster: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = unreachable("/rounds/2")
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, shares={"queued_runs": 1}) as client:
        headers = {"Idempotency-Key": "first"}
        first = (await client.post("/v1/runs", json=ORDER, headers=headers)).raise_for_status().json()["id"]
        await until_paused(client, first)
        assert share_of(await client.post("/v1/runs", json=ORDER)) == "queued_runs"
        assert (await client.post("/v1/runs", json=ORDER, headers=headers)).json()["id"] == first, "it is no second"
        (await client.post(f"/v1/runs/{first}/cancel")).raise_for_status()
        parties["party-1"].intercept = pass_on
        assert (await watch(client, await submit(client)))[-1][1]["state"] == "completed"


async def test_uploads_and_forecasts_are_shares(cluster: Cluster, parties: Parties) -> None:
    forecast = ORDER | {"owners": {"one": 1000, "other": 2000}}
    table, media = cluster.public_table(), {"Content-Type": "application/octet-stream"}
    async with learner_of(cluster, parties, shares={"uploads": 1, "forecasts": 1}) as client:
        for name, request in (
            ("forecasts", client.build_request("POST", "/v1/forecasts", json=forecast)),
            ("uploads", client.build_request("PUT", "/v1/public?study=made-up", content=table, headers=media)),
        ):
            answers = await asyncio.gather(*(client.send(request) for _ in range(5)))
            refused = [answer for answer in answers if not answer.is_success]
            assert {share_of(answer) for answer in refused} == {name}
            assert len(refused) < len(answers)
            assert (await client.send(request)).is_success, "what is over counts no more"


async def test_failed_sign_ins_are_told_to_wait_and_tokens_that_count_pass(client: httpx.AsyncClient) -> None:
    wrong = {"Authorization": "Bearer nobody's"}
    answers = [await client.get("/v1/user", headers=wrong) for _ in range(1000)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429] * 970
    assert share_of(answers[-1]) == "failed_sign_ins"
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert (await client.get("/v1/user")).is_success
