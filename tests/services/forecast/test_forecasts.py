"""What the learner's service says of a run before it is run."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.forecast.forecast import Forecast, forecast
from parley.common.privacy.account import MICRO, limit
from parley.common.runs.pricing import highest_charge, price
from tests.services.forecast.conftest import BUDGETS, DELTA, ModelViewers, OfRareClass, Owners, left_after
from tests.support.cluster import DEADLINE, Cluster, submit, watch
from tests.support.intercepted import Intercepted, always, learner_of, silent, unreachable
from tests.support.rounds import run_spec

Parties = dict[str, Intercepted]
ROSTER: dict[str, Any] = {
    "study": "made-up",
    "algorithm": "wu_strongly_convex",
    "epsilon": 0.5,
    "delta": 1e-5,
    "parameters": {"n_rounds": 5},
}


async def ask(client: httpx.AsyncClient, request: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/forecasts", json=request)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


async def test_says_who_should_be_left_out_and_asks_nobody(
    client: httpx.AsyncClient, parties: Parties, fraud: dict[str, Any]
) -> None:
    answer = await ask(client, fraud)
    outcome = answer["outcome"]
    assert outcome["coalition"] == ["bank-a", "bank-b"]
    assert outcome["left_out"] == ["shop"]
    assert [owner["value"] > 0 for owner in answer["owners"]] == [True, True, False]
    assert outcome["best"]["estimate"] < outcome["excess"]["estimate"]
    assert outcome["excess"]["low"] <= outcome["excess"]["estimate"] <= outcome["excess"]["high"]
    assert outcome["printed"]["noise_energy"] == pytest.approx(outcome["proven"]["noise_energy"] / 4)
    assert answer["rounds"] == 20
    assert answer["run_time"]["seconds"] is None
    assert [party.seen for party in parties.values()] == [[]] * 5
    estimates = [outcome[name]["estimate"] for name in ("excess", "best")]
    print(f"forecast over HTTP: excess {estimates[0]:.3g} with the shop, {estimates[1]:.3g} without")


@pytest.mark.parametrize("owners", [OfRareClass], indirect=True)
@pytest.mark.parametrize("sizes", [None, {"bank": 2900, "shop": 200}])
async def test_a_rule_for_the_threshold_answers_the_warning_of_a_rare_class(
    client: httpx.AsyncClient, sizes: dict[str, int] | None
) -> None:
    rules = (None, "probability=.1", "none")
    answers = [await ask(client, ROSTER | {"owners": sizes, "threshold": rule}) for rule in rules]
    said = ["take --threshold balanced" in str(answer["outcome"]["warning"]) for answer in answers]
    assert said == [True, False, True]


async def test_of_the_roster_it_says_what_each_owner_has_left(
    client: httpx.AsyncClient, owners: Cluster, parties: Parties
) -> None:
    answer = await ask(client, ROSTER)
    views = {owner["name"]: owner for owner in answer["owners"]}
    assert {name: view["epsilon_now"] for name, view in views.items()} == BUDGETS
    spec = run_spec(owners, algorithm="wu_strongly_convex", parameters={"n_rounds": 5}, epsilon=0.5).settled()[0]
    most = highest_charge(spec.build(), spec.facts().of(0))
    assert views["party-1"]["epsilon"] == most.epsilon / MICRO
    fits = {name: limit(epsilon, DELTA).fits(most) for name, epsilon in BUDGETS.items()}
    assert {name: view["fits"] for name, view in views.items()} == fits
    assert {name: view["exhausted"] is None for name, view in views.items()} == fits
    assert list(fits.values()) == [True, True, True, True, False]
    remaining = {name: limit(BUDGETS[name], DELTA).charge(most).epsilon_left for name in fits if fits[name]}
    assert {name: view["epsilon_left"] for name, view in views.items()} == remaining | {"party-5": None}
    expected = forecast(spec.build(), spec.facts())
    assert isinstance(expected, Forecast)
    assert answer["outcome"]["excess"]["estimate"] == pytest.approx(expected.excess.estimate)
    assert "bare round trips" in answer["run_time"]["basis"]
    assert answer["run_time"]["seconds"] == pytest.approx(5 * answer["run_time"]["ms_per_round"] / 1000)
    assert all(not party.rounds() for party in parties.values())


async def test_the_run_time_is_that_of_an_earlier_run_like_it(client: httpx.AsyncClient, owners: Cluster) -> None:
    terms = ROSTER | {"epsilon": 0.1}
    run = await submit(client, **terms)
    events = await watch(client, run)
    answer = await ask(client, terms | {"parameters": {"n_rounds": 50}})
    ms = median(data["ms"] for kind, data in events if kind == "round")
    assert answer["run_time"] == {
        "seconds": pytest.approx(50 * ms / 1000),
        "ms_per_round": ms,
        "basis": f"the median round of run {run}",
    }
    spec = run_spec(owners, algorithm="wu_strongly_convex", parameters={"n_rounds": 5}, epsilon=0.1)
    remaining = left_after(price(spec.build(), spec.facts().of(0)).total)
    assert {owner["name"]: owner["epsilon_now"] for owner in answer["owners"]} == remaining


@pytest.mark.parametrize(
    ("terms", "owners"),
    [
        pytest.param({"algorithm": "wu_strongly_convex"}, Owners, id="Laplace noise"),
        pytest.param({"algorithm": "dp_gd"}, Owners, id="Gaussian noise"),
        pytest.param({"algorithm": "psgd", "parameters": {"n_rounds": 2}}, Owners, id="more than the budget"),
        pytest.param({"algorithm": "psgd"}, ModelViewers, id="the final model's claim"),
    ],
    indirect=["owners"],
)
async def test_what_it_says_a_run_costs_is_what_the_ledgers_are_charged_at_most(
    client: httpx.AsyncClient, terms: dict[str, Any]
) -> None:
    order = ROSTER | terms | {"epsilon": 0.1}
    before = (await ask(client, order))["owners"]
    assert (await watch(client, await submit(client, **order)))[-1][1]["state"] == "completed"
    after = (await ask(client, order))["owners"]
    spared = [now["epsilon_now"] - earlier["epsilon_left"] for now, earlier in zip(after, before, strict=True)]
    assert spared == [0] * 5, "what counts across runs is known exactly"
    assert all(earlier["fits"] for earlier in before)
    charged = before[0]["epsilon_now"] - after[0]["epsilon_now"]
    print(f"{order['algorithm']}, declared {order['epsilon']}: forecast {before[0]['epsilon']}, charged {charged:.6f}")


async def test_says_plainly_that_there_is_no_forecast_and_that_no_budget_allows_it(client: httpx.AsyncClient) -> None:
    answer = await ask(client, ROSTER | {"algorithm": "local", "parameters": {}})
    assert answer["outcome"] is None
    assert "every owner keeps a model of its own" in answer["no_forecast"]
    for name in ("value", "alone", "worth_joining", "recommended", "epsilon", "epsilon_left"):
        assert [owner[name] for owner in answer["owners"]] == [None] * 5
    assert [owner["epsilon_now"] for owner in answer["owners"]] == list(BUDGETS.values())
    refusals = ["the owner does not allow local", "the run releases answers without noise; no budget allows that"]
    assert [owner["objections"] for owner in answer["owners"]] == [refusals] * 5


@pytest.mark.parametrize(("algorithm", "epsilon"), [("gop", 10.0), ("pooled", None)])
async def test_says_what_a_curator_would_achieve_whom_nobody_runs(
    client: httpx.AsyncClient, fraud: dict[str, Any], algorithm: str, epsilon: float | None
) -> None:
    answer = await ask(client, fraud | {"algorithm": algorithm, "parameters": {}, "budgets": {}})
    assert answer["outcome"]["best"]["estimate"] > 0
    likely = answer["outcome"]["likely"]
    assert (likely is None) == (epsilon is None)
    assert likely is None or 0 < likely["excess"] < likely["printed"]
    assert [owner["epsilon"] for owner in answer["owners"]] == [epsilon] * 3
    refused = await client.post(
        "/v1/runs", json={k: v for k, v in ROSTER.items() if k != "parameters"} | {"algorithm": algorithm}
    )
    assert "trusted curator" in refused.json()["detail"]


async def test_a_party_whose_budget_cannot_be_read_is_forecast_without(owners: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable("/v1/budget")
    parties["party-3"].intercept = always(403, b"{}", "/v1/budget")
    parties["party-4"].intercept = always(403, b"{}", "/v1/budget/room")
    async with learner_of(owners, parties, deadline_seconds=DEADLINE) as client:
        answer = await ask(client, ROSTER)
    budgets = {owner["name"]: owner["epsilon_now"] for owner in answer["owners"]}
    assert budgets == BUDGETS | {"party-2": None, "party-3": None}
    fits = {owner["name"]: owner["fits"] for owner in answer["owners"]}
    assert fits == {"party-1": True, "party-2": None, "party-3": None, "party-4": None, "party-5": False}
    assert answer["outcome"] is not None


async def test_a_run_that_others_have_left_no_room_for_is_said_not_to_fit(owners: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = always(200, b'{"fits": false}', "/v1/budget/room")
    async with learner_of(owners, parties, deadline_seconds=DEADLINE) as client:
        first = (await ask(client, ROSTER))["owners"][0]
        asked = [path for path in parties["party-1"].seen if "/v1/budget" in path]
    assert (first["fits"], first["epsilon_now"], first["epsilon_left"]) == (False, BUDGETS["party-1"], None)
    assert first["exhausted"].endswith("other studies or learners of this owner have spent or reserved what your own "
                                       "runs have left")  # fmt: skip
    assert len(asked) == 2 + 6, "what its own runs have left, whether this one fits, and whether a smaller one would"


async def test_a_party_that_is_silent_is_named(owners: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = silent()
    async with learner_of(owners, parties, deadline_seconds=DEADLINE) as client:
        response = await client.post("/v1/forecasts", json=ROSTER)
    assert response.status_code == 503
    assert "party-2 did not answer" in response.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"budgets": {"nobody": {"epsilon": 1, "delta": 1e-5}}}, "budgets: unknown parties: nobody"),
        ({"parties": ["bank-a", "nobody"]}, "unknown parties: nobody"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"parameters": {"overlap": 0}}, "overlap: Input should be greater than or equal to 1"),
        ({"parameters": {"rho": 0}}, "rho: Input should be greater than 0"),
        ({"parameters": {"n_rounds": 0}}, "n_rounds"),
        ({"algorithm": "wu_subgradient", "parameters": {"step": -1}}, "step: Input should be greater than or equal to"),
        ({"minimum_contributors": 4}, "minimum_contributors"),
    ],
)
def test_refuses_what_cannot_be_run(
    alone: TestClient, fraud: dict[str, Any], changes: dict[str, Any], word: str
) -> None:
    response = alone.post("/v1/forecasts", json=fraud | {"parameters": {}, "budgets": {}} | changes)
    assert response.status_code == 422
    assert word in response.json()["detail"]


@pytest.mark.parametrize("owners_given", [{}, {"bank-a": 0}, {"bank-a": 2**60}, {"": 3}])
def test_refuses_owners_of_no_size(alone: TestClient, fraud: dict[str, Any], owners_given: dict[str, int]) -> None:
    response = alone.post("/v1/forecasts", json=fraud | {"budgets": {}, "owners": owners_given})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"][:2] == ["body", "owners"]


async def test_of_the_least_budget_there_are_figures(client: httpx.AsyncClient, fraud: dict[str, Any]) -> None:
    answer = await ask(client, fraud | {"budgets": {}, "epsilon": 1e-6})
    assert answer["outcome"]["excess"]["estimate"] > 0
    refused = await client.post("/v1/forecasts", json=fraud | {"budgets": {}, "epsilon": 1e-7})
    assert (refused.status_code, "must lie between 1e-06 and 1e+12" in refused.text) == (422, True)


@pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        ("wu_strongly_convex", {"n_rounds": 100, "calibration": "paper"}),
        ("wu_subgradient", {"n_rounds": 100, "calibration": "tight"}),
        ("dp_gd", {"n_rounds": 100}),
        ("psgd", {"n_rounds": 100}),
        ("local_average", {}),
    ],
)
async def test_ten_owners_take_little_time(
    client: httpx.AsyncClient, fraud: dict[str, Any], algorithm: str, parameters: dict[str, Any]
) -> None:
    """Each with a budget of its own."""
    owners = {f"owner-{i}": 100 * i for i in range(1, 11)}
    request = fraud | {"algorithm": algorithm, "parameters": parameters, "owners": owners}
    times = []
    for epsilon in range(1, 4):  # budgets that differ, so that nothing is remembered
        budgets = {name: {"epsilon": epsilon + i / 10, "delta": i * 1e-6} for i, name in enumerate(owners, start=1)}
        started = perf_counter()
        await ask(client, request | {"budgets": budgets})
        times.append(1000 * (perf_counter() - started))
    print(f"forecast over HTTP, {algorithm}: {median(times):.1f} ms for 10 owners of different budgets (goal 50)")


async def test_every_field_is_described(client: httpx.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    for name in ("ForecastRequest", "ForecastView", "OutcomeView", "OwnerView", "RunTime"):
        assert schemas[name]["description"]
    undescribed = [field for field, schema in schemas["OwnerView"]["properties"].items() if "description" not in schema]
    assert undescribed == ["name"]


async def test_the_algorithm_may_be_left_open(client: httpx.AsyncClient, owners: Owners) -> None:
    terms = {"study": "made-up", "algorithm": "auto", "epsilon": 0.1, "delta": 1e-5}
    answer = (await client.post("/v1/forecasts", json=terms)).raise_for_status().json()
    others = [
        (await client.post("/v1/forecasts", json=terms | {"algorithm": name})).raise_for_status().json()
        for name in ("dp_gd", "psgd")
    ]
    assert answer["outcome"]["excess"]["estimate"] <= min(other["outcome"]["excess"]["estimate"] for other in others)
    estimate = answer["outcome"]["excess"]["estimate"]
    assert f"{estimate:.3g} is expected of it, of others more: " in answer["chosen"]["algorithm"]
    run = await submit(client, algorithm="auto", epsilon=0.1)
    assert (await watch(client, run))[-1][1]["state"] == "completed", (await client.get(f"/v1/runs/{run}")).json()
    document = (await client.get(f"/v1/runs/{run}")).json()
    assert document["algorithm"] == answer["algorithm"]
    assert document["chosen"]["algorithm"].startswith("an excess fitness of ")
    refused = await client.post("/v1/forecasts", json=terms | {"parameters": {"n_rounds": 3}})
    assert refused.status_code == 422
    assert "parameters are those of an algorithm: name one" in refused.json()["detail"]


async def test_nobody_is_asked_for_an_algorithm_among_owners_who_may_join(client: httpx.AsyncClient) -> None:
    terms = {"study": "made-up", "algorithm": "auto", "epsilon": 1, "delta": 1e-5, "owners": {"a": 900, "b": 500}}
    answer = (await client.post("/v1/forecasts", json=terms)).raise_for_status().json()
    assert "algorithm" in answer["chosen"]
    response = await client.post("/v1/forecasts", json=terms | {"adjacency": "whole_party"})
    assert response.status_code == 422
    assert "there is no forecast of what the parties allow" in response.json()["detail"]
