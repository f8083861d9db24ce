"""An account that is nearly spent changes what is chosen, and pays for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.party.settings import PartySettings
from tests.services.forecast.conftest import Owners
from tests.support.cluster import Cluster, submit, watch
from tests.support.intercepted import Intercept, Intercepted

Parties = dict[str, Intercepted]
ORDER: dict[str, Any] = {"study": "made-up", "epsilon": 0.15, "delta": 1e-6, "algorithm": "release"}
SPENDS: dict[str, Any] = {"algorithm": "dp_gd", "epsilon": 0.8, "delta": 9.5e-6, "parameters": {"n_rounds": 2}}
"""Leaves party-3 an epsilon of .2, and a delta of 5e-7."""
WHY = "gaussian would be more accurate, but party-3's account does not pay for it"


class OneIsShort(Owners):
    """Three parties, of whose budgets epsilons and deltas add up; the last has a small one."""

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """Return a party's settings, with its own budget."""
        own = {"epsilon": 1.0, "delta": 1e-5} if name == "party-3" else {"epsilon": 10.0, "delta": 1e-4}
        most = {"max_epsilon_per_run": 2.0, "max_delta_per_run": 1e-5, "max_rounds": 50}
        self.policy = own | most | {"composition": "basic"}
        return Cluster.party_settings(self, name, **changes)


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return OneIsShort(tmp_path, n_parties=3, n_features=30, algorithms=("dp_gd", "wu_subgradient", "release"))


async def forecast(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    response = await client.post("/v1/forecasts", json=ORDER | terms)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_what_an_account_no_longer_pays_for_is_not_chosen(client: httpx.AsyncClient, parties: Parties) -> None:
    before = await forecast(client)
    assert (before["parameters"]["law"], before["instead"]) == ("gaussian", None)
    assert (await watch(client, await submit(client, **SPENDS)))[-1][1]["state"] == "completed"

    after = await forecast(client)
    assert (after["parameters"]["law"], after["instead"]) == ("l2_laplace", f"law = l2_laplace: {WHY}")
    assert after["chosen"]["law"].startswith(f"{WHY}; ")
    assert [(owner["fits"], owner["exhausted"]) for owner in after["owners"]] == [(True, None)] * 3
    assert after["more_runs"] == after["owners"][2]["more_runs"] == 0
    assert min(owner["more_runs"] for owner in after["owners"][:2]) > 10
    fixed = await forecast(client, parameters={"law": "gaussian"})
    assert not fixed["owners"][2]["fits"], "what a request fixes is not changed"
    assert fixed["more_runs"] is None
    refused = await forecast(client, delta=1.01e-5, parties=["party-1", "party-2"])
    assert all("delta" in owner["objections"][0] for owner in refused["owners"])
    assert [owner["fits"] for owner in refused["owners"]] == [True] * 2
    assert refused["more_runs"] is None, "what is refused once is refused again"

    asked = [path for path in parties["party-3"].seen if "/v1/budget/room" in path]
    run = await submit(client, **{name: value for name, value in ORDER.items() if name != "study"})
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    shown = (await client.get(f"/v1/runs/{run}")).json()
    assert shown["parameters"]["law"] == "l2_laplace"
    assert shown["chosen"]["law"].startswith(WHY)
    again = [path for path in parties["party-3"].seen if "/v1/budget/room" in path][len(asked) :]
    assert len(again) <= 4, "a check and a run ask about two prices, or fewer"


async def test_where_no_choice_fits_the_refusal_says_which_epsilon_would(client: httpx.AsyncClient) -> None:
    assert (await watch(client, await submit(client, **SPENDS)))[-1][1]["state"] == "completed"
    response = await client.post("/v1/runs", json=ORDER | {"epsilon": 0.3})
    problem = response.json()
    assert response.status_code == 422, problem
    assert [refusal["party"] for refusal in problem["refusals"]] == ["party-3"]
    assert problem["helps"][0] == "--epsilon 0.2 --delta 5e-07"
    answer = await forecast(client, epsilon=0.2, delta=5e-7)
    assert all(owner["fits"] for owner in answer["owners"]), "by what is chosen then"


def refusing(times: int, prices: list[str]) -> Intercept:
    """A party whose account has no room for the first prices that it is asked about, because others have spent."""

    async def intercept(request: httpx.Request) -> httpx.Response | None:
        if "/v1/budget/room" not in request.url.path:
            return None
        prices.append(str(request.url.query))
        return httpx.Response(200, stream=httpx.ByteStream(b'{"fits": false}')) if len(prices) <= times else None

    return intercept


async def test_what_others_have_spent_changes_the_choice_by_a_yes_or_no_alone(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    prices: list[str] = []
    parties["party-3"].intercept = refusing(1, prices)
    answer = await forecast(client)
    assert answer["instead"] is not None
    assert answer["instead"].endswith("would be more accurate, but party-3's account does not pay for it")
    assert len(prices) == len(set(prices)) == 2, "each price once"
    assert [owner["fits"] for owner in answer["owners"]] == [True] * 3


async def test_an_algorithm_that_is_left_open_is_the_best_that_accounts_pay_for(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    open_to_any = {"algorithm": "auto", "delta": 1e-5}
    best = (await forecast(client, **open_to_any))["algorithm"]
    parties["party-3"].intercept = refusing(1, [])
    answer = await forecast(client, **open_to_any)
    assert answer["algorithm"] != best
    words = f"{best} would be more accurate, but party-3's account does not pay for it"
    assert answer["instead"] == f"algorithm = {answer['algorithm']}: {words}"
    assert answer["chosen"]["algorithm"].startswith(f"{words}; an excess fitness of ")


async def test_where_others_have_spent_too_much_a_smaller_epsilon_that_fits_is_offered(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    prices: list[str] = []
    parties["party-3"].intercept = refusing(2, prices)
    fixed = {"parameters": {"mechanism": "output", "law": "gaussian"}}
    answer = await forecast(client, **fixed)
    assert answer["owners"][2]["exhausted"].endswith("have spent or reserved what your own runs have left")
    assert answer["helps"][0] == "--epsilon 0.03", "a half was refused, and a fifth fits"
    assert len(prices) == 3
