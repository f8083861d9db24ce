"""Each user may do what its role allows, on every route, and nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any, cast, get_args

import httpx
import pytest

from parley.common.service.tokens import hash_token
from parley.learner.api.routes import ROUTES
from parley.learner.settings import UserRole
from tests.support.cluster import Cluster, submit, watch
from tests.support.intercepted import Intercepted, learner_of

ROLES: tuple[UserRole, ...] = get_args(UserRole)
USERS = {"viewer": "vera", "submitter": "sam", "operator": "olga"}
ORDER: dict[str, Any] = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 1}}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/runs"): ORDER,
    ("POST", "/v1/forecasts"): ORDER,
    ("POST", "/v1/runs/{run}/evaluation"): {"epsilon": 1.0, "delta": 1e-5},
    ("PUT", "/v1/runs/{run}/threshold"): {"rule": "none"},
    ("POST", "/v1/runs/{run}/predictions"): {"records": [{"x0": 0.1, "x1": 0.2, "x2": 0.3}]},
}
ENDLESS = {("GET", "/v1/events")}  # asked for in process, its answer is waited for as a whole


@pytest.fixture
async def client(cluster: Cluster, parties: dict[str, Intercepted]) -> AsyncIterator[httpx.AsyncClient]:
    """A learner with a user of each role, and one more submitter, whose name is its token."""
    users = [{"name": name, "token_hash": hash_token(name), "role": role} for role, name in USERS.items()]
    users.append({"name": "ruth", "token_hash": hash_token("ruth")})
    async with learner_of(cluster, parties, users=users) as client:
        yield client


def use(client: httpx.AsyncClient, user: str) -> None:
    client.headers["Authorization"] = f"Bearer {user}"


async def operations(client: httpx.AsyncClient) -> list[tuple[str, str]]:
    """The method and the path of each operation that asks for a token."""
    document = (await client.get("/openapi.json")).json()
    return [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["security"]
    ]


async def test_every_operation_has_a_least_role(client: httpx.AsyncClient) -> None:
    places = await operations(client)
    print(f"{len(places)} operations, each with a least role: {sorted({route.role for route in ROUTES.values()})}")
    assert set(places) == set(ROUTES)
    assert all(ROUTES[place].role != "viewer" for place in places if place[0] != "GET" and place not in BODIES)


async def test_each_role_may_do_its_own_and_no_more(client: httpx.AsyncClient) -> None:
    use(client, "ruth")
    run = await submit(client, parameters={"n_rounds": 1})
    await watch(client, run)
    places = [place for place in await operations(client) if ROUTES[place].role in ROLES and place not in ENDLESS]
    places.sort(key=lambda place: place == ("DELETE", "/v1/runs/{run}"))  # last, for others need the run
    assert {ROUTES[place].role for place in ENDLESS} == {"viewer"}, "what is not asked for is nobody's to be refused"
    refused = 0
    for (method, path), role in product(places, ROLES):
        use(client, USERS[role])
        url = path.replace("{run}", run).replace("{study}", "made-up")
        response = await client.request(method, url, json=BODIES.get((method, path)))
        another_users = ROUTES[method, path].owned and role != "operator"
        may = ROLES.index(role) >= ROLES.index(cast("UserRole", ROUTES[method, path].role)) and not another_users
        assert (response.status_code != 403) == may, (method, path, role, response.text)
        if not may:
            refused += 1
            assert (response.json()["type"], response.json()["rule"]) == ("urn:parley:problem:policy-refusal", "role")
    print(f"{len(places)} operations x {len(ROLES)} roles: {refused} refused, the others as their role may")


async def test_users_are_no_parties(client: httpx.AsyncClient) -> None:
    places = [place for place in await operations(client) if ROUTES[place].role not in ROLES]
    assert len(places) > 2
    for method, path in places:
        use(client, "olga")
        joins = {"public_key": "0" * 64, "connects_with": hash_token("x"), "token": "x" * 20}
        body = {"certificate_request": ""} if path.endswith("certificate") else joins
        response = await client.request(method, path, json=body if method == "POST" else None)
        assert response.status_code == 403, (method, path)


async def test_a_submitter_ends_its_own_runs_and_an_operator_all(client: httpx.AsyncClient) -> None:
    use(client, "sam")
    first, second = [await submit(client, parameters={"n_rounds": 100}) for _ in range(2)]
    use(client, "ruth")
    refused = await client.post(f"/v1/runs/{first}/cancel")
    assert (refused.status_code, refused.json()["rule"]) == (403, "role")
    assert refused.json()["detail"] == "ruth is a submitter; another user's run takes an operator"
    assert (await client.post("/v1/runs/nobody/cancel")).status_code == 404
    for user, run in (("sam", first), ("olga", second)):
        use(client, user)
        assert (await client.post(f"/v1/runs/{run}/cancel")).json()["state"] == "cancelled"


async def test_a_user_without_a_role_is_a_submitter(client: httpx.AsyncClient) -> None:
    use(client, "ruth")
    run = await submit(client, parameters={"n_rounds": 1})
    assert (await watch(client, run))[-1][1]["state"] == "completed"
