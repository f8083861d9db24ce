"""Models evaluated on rows that owners hold out: by a run of its own, or by the rest of a run's budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.special import logit

from parley.common.algorithms.evaluate import Evaluate
from parley.common.arrays import FloatArray
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.evaluation import NoisyCounts, ScoreCells, tally
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.common.privacy.account import MICRO
from parley.common.privacy.noise import NoNoise
from parley.common.runs.evaluation import divide, evaluation_of, evaluation_spec, statistics_of, weights_of
from parley.common.runs.specification import Budget, PublicRows, RunSpec
from parley.party.answers.party import open_store
from tests.support.cluster import Cluster, asgi_cluster, refused, submit, train, watch
from tests.support.intercepted import Intercepted, intercepted_parties, learner_of, unreachable
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SUMS, Hang, SecureCluster, charges, due, secure_services

ALLOWED = ("dp_gd", "evaluate")
ORDER: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=3, algorithms=ALLOWED, hold_out=0.25)


@pytest.fixture
async def parties(cluster: Cluster) -> AsyncIterator[dict[str, Intercepted]]:
    async with intercepted_parties(cluster) as parties:
        yield parties


def pooled(cluster: Cluster) -> Shard:
    """Return all held-out rows as one shard."""
    return Shard.stack([cluster.part(index, "held_out") for index in range(len(cluster.names))]).pooled()


def evaluation_of_run(cluster: Cluster, document: dict[str, Any], **terms: Any) -> RunSpec:  # noqa: ANN401 -- fields
    """The specification that an evaluation of a run's model should have."""
    budgets = dict.fromkeys(cluster.names, Budget(**ORDER))
    rows = PublicRows.of(weights_of(document))
    draft = evaluation_spec(run_spec(cluster, **terms), budgets, {}, rows)
    return draft.with_sizes({name: cluster.n_examples + index for index, name in enumerate(cluster.names)})


def exact_counts(shard: Shard, trained: dict[str, Any], evaluation: dict[str, Any]) -> FloatArray:
    """The counts of a model's scores between the edges of an evaluation."""
    edges = logit([each["high"] for each in evaluation["calibration"][:-1]])
    return to_reals(tally(ScoreCells(edges), shard, np.array([trained["weights"]])))


def deviation_of(spec: RunSpec) -> float:
    """That of the noise of one party alone in the second round."""
    return math.sqrt(2) * float(np.max(Evaluate().scale(2, spec.facts().of(0))))


async def evaluate(client: httpx.AsyncClient, run: str, **order: object) -> dict[str, Any]:
    """The document of an evaluation of a run, and its identifier."""
    response = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER | order)
    assert response.status_code == 202, response.text
    queued = response.json()
    assert response.headers["Location"] == f"/v1/runs/{queued['id']}"
    assert (queued["evaluates"], queued["algorithm"]) == (run, "evaluate")
    events = await watch(client, queued["id"])
    assert events[-1][1]["state"] == "completed", events[-1]
    document = await model_of(client, queued["id"])
    assert events[-1][1]["evaluation"] == document["evaluation"]
    return document | {"id": queued["id"]}


async def model_of(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    document: dict[str, Any] = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
    return document


async def shown_tags(client: httpx.AsyncClient, run: str) -> dict[str, str]:
    """The entity tags of what is shown of a run, by path."""
    paths = [f"/v1/runs/{run}{part}" for part in ("", "/model", "/card", "/card?to=markdown")]
    tags = {path: (await client.get(path)).headers["etag"] for path in paths}
    assert len(set(tags.values())) == len(paths)
    return tags


async def statuses_of(client: httpx.AsyncClient, tags: dict[str, str]) -> dict[str, int]:
    """The statuses of the answers to one who has these."""
    answers = {path: await client.get(path, headers={"If-None-Match": tag}) for path, tag in tags.items()}
    assert {answer.headers["cache-control"] for answer in answers.values()} == {"private, no-cache"}
    return {path: answer.status_code for path, answer in answers.items()}


async def test_an_evaluation_is_about_the_rows_held_out_and_is_charged_as_priced(cluster: Cluster) -> None:
    quiet = dict.fromkeys(cluster.names, lambda _kept: NoNoise())
    async with asgi_cluster(cluster, quiet) as client:
        trained = await train(client)
        (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
        assert trained["evaluation"] is None
        shown = await shown_tags(client, run)
        assert await statuses_of(client, shown) == dict.fromkeys(shown, 304)
        document = await evaluate(client, run)
        assert await statuses_of(client, shown) == dict.fromkeys(shown, 200), "the model is an evaluated one now"
        model_view = await model_of(client, run)
        assert (await client.get(f"/v1/runs/{run}")).json()["evaluations"] == [document["id"]]
        refused = await client.post(
            f"/v1/runs/{document['id']}/predictions", json={"records": [{"x0": 1, "x1": 0, "x2": 0}]}
        )
        assert refused.status_code == 422
        assert "predict for nobody" in refused.json()["detail"]
    spec = evaluation_of_run(cluster, trained)
    assert document["spec_digest"] == spec.digest
    assert (document["kind"], document["public"]["digest"]) == ("statistics", spec.public and spec.public.digest)
    assert charges(cluster, document["id"]) == due(spec)
    shard, model = pooled(cluster), Model(np.array(trained["weights"]))
    evaluation = document["evaluation"]
    assert document["weights"] == exact_counts(shard, trained, evaluation).tolist()
    assert evaluation["accuracy"]["estimate"] == pytest.approx(accuracy(model, shard))
    assert (evaluation["rows"], evaluation["contributors"]) == (len(shard.y), list(cluster.names))
    assert evaluation["epsilon"] == pytest.approx(2.0, abs=1e-6)
    assert evaluation["deviation"] == pytest.approx(math.sqrt(3) * deviation_of(spec))
    identity = {"run": document["id"], "certificate": document["certificate"]}
    assert model_view == trained | {"evaluation": evaluation | identity}


async def test_an_evaluation_in_a_secure_sum_is_on_the_terms_of_its_run(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3, algorithms=ALLOWED, hold_out=0.25)
    async with (
        secure_services(cluster, dict.fromkeys(cluster.names, lambda _kept: NoNoise())) as services,
        learner_of(cluster, services) as client,
    ):
        trained = await train(client, **SUMS)
        (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
        evaluation = await evaluate(client, run)
        assert len((await client.get(f"/v1/runs/{evaluation['id']}/receipts")).json()) == 2
    spec = evaluation_of_run(cluster, trained, **SUMS, colluders=1)
    assert evaluation["spec_digest"] == spec.digest
    assert charges(cluster, evaluation["id"]) == due(spec)
    assert evaluation["weights"] == exact_counts(pooled(cluster), trained, evaluation["evaluation"]).tolist()
    due_deviation = math.sqrt(3 / 2) * deviation_of(spec)
    assert evaluation["evaluation"]["deviation"] == pytest.approx(due_deviation), "one of three may collude"


async def test_a_run_may_end_with_its_evaluation_within_its_budget(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client, evaluate=0.25, purpose="to see")
        last = (await watch(client, run))[-1][1]
        follower = last["evaluated_by"]
        assert (await watch(client, follower))[-1][1]["state"] == "completed"
        first, second = [(await client.get(f"/v1/runs/{run_id}")).json() for run_id in (run, follower)]
        model = await model_of(client, run)
    assert (first["evaluations"], second["evaluates"]) == ([follower], run)
    assert [set(shown["epsilon"].values()) for shown in (first, second)] == [{1.0}, {0.25}]
    assert (second["user"], second["purpose"], second["algorithm"]) == ("alice", "to see", "evaluate")
    spent = [sum(rounds) for run_id in (run, follower) for rounds in charges(cluster, run_id).values()]
    assert 750_000 < max(spent[:3]) <= 1_000_000
    assert max(spent[3:]) <= 250_000
    for name in cluster.names:
        with open_store(cluster.party_settings(name)) as store:
            (statement,) = store.statements()
        training, held_out = statement.rows
        assert max(training.spent, held_out.spent) <= statement.account.parts["spent"] < training.spent + held_out.spent
    assert model["evaluation"]["run"] == follower
    assert model["evaluation"]["epsilon"] == pytest.approx(0.25, abs=1e-6)


async def test_an_evaluation_needs_no_delta(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client)
        await watch(client, run)
        document = await evaluate(client, run, delta=0.0)
    assert (document["evaluation"]["epsilon"], document["evaluation"]["delta"]) == (pytest.approx(2.0, abs=1e-6), 0.0)
    assert all(sum(rounds) <= 2_000_000 for rounds in charges(cluster, document["id"]).values())


async def test_a_tenth_is_kept_by_itself_where_it_is_of_use_and_all_is_said_before(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
    few = "the model is not evaluated: 30 held-out rows are too few at epsilon 0.1; ask for it later"
    enough = "a tenth of the budget (epsilon 0.1) evaluates the model on 30 held-out rows"
    async with asgi_cluster(cluster) as client:
        assert few in (await client.post("/v1/forecasts", json=order)).json()["evaluation"]
        run = await submit(client)
        assert "evaluated_by" not in (await watch(client, run))[-1][1]
        shown = (await client.get(f"/v1/runs/{run}")).json()
        assert (few in shown["evaluation"], set(shown["epsilon"].values())) == (True, {1.0})
        monkeypatch.setattr("parley.common.runs.self_evaluation.is_of_use", lambda _: True)
        foreseen = (await client.post("/v1/forecasts", json=order)).json()
        assert foreseen["evaluation"] == enough
        assert 0.9 < foreseen["owners"][0]["epsilon"] <= 1.0, "the model, and no more for its evaluation"
        assert (await client.post("/v1/forecasts", json=order | {"evaluate": 0})).json()["evaluation"] is None
        run = await submit(client)
        follower = (await watch(client, run))[-1][1]["evaluated_by"]
        assert (await watch(client, follower))[-1][1]["state"] == "completed"
        shown = (await client.get(f"/v1/runs/{run}")).json()
        assert (shown["evaluation"], set(shown["epsilon"].values())) == (enough, {1.0})
        run = await submit(client, evaluate=0)
        assert "evaluated_by" not in (await watch(client, run))[-1][1]
    spent = [sum(rounds) for run_id in (shown["id"], follower) for rounds in charges(cluster, run_id).values()]
    assert 900_000 < max(spent[:3]) <= 1_000_000
    assert max(spent[3:]) <= 100_000


async def test_an_evaluation_survives_a_stop_between_the_two(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    async with learner_of(cluster, parties) as client:
        run = await submit(client, evaluate=0.5)
        follower = (await watch(client, run))[-1][1]["evaluated_by"]
    async with learner_of(cluster, parties) as client:
        assert (await watch(client, follower))[-1][1]["state"] == "completed"
        assert (await model_of(client, run))["evaluation"]["run"] == follower
        assert (await client.get(f"/v1/runs/{run}")).json()["evaluations"] == [follower]


async def test_a_stop_in_mid_run_forgets_no_evaluation(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    parties["party-1"].intercept = hang = Hang("/rounds/4")
    async with learner_of(cluster, parties) as client:
        run = await submit(client, evaluate=0.5)
        async with asyncio.timeout(30):
            await hang.reached.wait()
    parties["party-1"].intercept = _pass_on
    async with learner_of(cluster, parties) as client:
        follower = (await watch(client, run))[-1][1]["evaluated_by"]
        assert (await watch(client, follower))[-1][1]["state"] == "completed"
    assert all(sum(rounds) <= 1_000_000 for rounds in charges(cluster, run).values())
    assert all(sum(rounds) <= 500_000 for rounds in charges(cluster, follower).values())


async def _pass_on(_request: httpx.Request) -> None:
    return None


async def test_the_newest_evaluation_is_shown_and_a_key_queues_one_alone(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client)
        await watch(client, run)
        first, second = await evaluate(client, run), await evaluate(client, run, parameters={"largest_error": 1.0})
        assert (await model_of(client, run))["evaluation"]["run"] == second["id"]
        keyed = [
            (await client.post(f"/v1/runs/{run}/evaluation", json=ORDER, headers={"Idempotency-Key": "k"})).json()["id"]
            for _ in range(2)
        ]
        assert keyed[0] == keyed[1]
        ids = (await client.get(f"/v1/runs/{run}")).json()["evaluations"]
        assert ids == [first["id"], second["id"], keyed[0]]


async def test_one_key_is_not_for_two_orders_that_differ_in_their_evaluation(cluster: Cluster) -> None:
    headers = {"Idempotency-Key": "one"}
    order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
    half = {"study": "made-up", "epsilon": 0.5, "delta": 5e-6}
    async with asgi_cluster(cluster) as client:
        both = [await client.post("/v1/runs", json=order | {"evaluate": 0.5}, headers=headers) for _ in range(2)]
        assert both[0].json()["id"] == both[1].json()["id"]
        assert (await client.post("/v1/runs", json=half, headers=headers)).status_code == 409


@pytest.mark.parametrize("share", [1, 1.0, 1.5, -0.1, "0.1", math.nan])
async def test_a_share_that_is_none_is_refused(cluster: Cluster, share: object) -> None:
    async with asgi_cluster(cluster) as client:
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "evaluate": share if share == share else "NaN"}  # noqa: PLR0124
        refused = await client.post("/v1/runs", json=order)
        assert refused.status_code == 422
        assert (await client.get("/v1/runs")).json()["runs"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"delta": 1e-18}, "a share of 0.1 of epsilon 1, delta 1e-18 is less than a ledger counts"),
        ({"epsilon": 1e-6}, "a share of 0.1 of epsilon 1e-06, delta 1e-05 is less than a ledger counts"),
        ({"algorithm": "evaluate", "public": "known"}, "evaluate makes no model that can be evaluated"),
        ({"algorithm": "describe"}, "describe makes no model that can be evaluated"),
    ],
)
async def test_a_run_that_cannot_be_evaluated_is_refused_before_any_party_is_asked(
    cluster: Cluster, change: dict[str, Any], words: str
) -> None:
    async with asgi_cluster(cluster) as client:
        if "public" in change:
            body = cluster.public_table(1)
            named = await client.put("/v1/public?study=made-up", content=body, headers={"Content-Type": OCTETS})
            change = change | {"public": named.json()["digest"]}
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "evaluate": 0.1} | change
        refused = await client.post("/v1/runs", json=order)
        assert (refused.status_code, refused.json()["detail"]) == (422, words)
        assert (await client.get("/v1/runs")).json()["runs"] == []


OCTETS = "application/octet-stream"


async def test_a_study_that_holds_no_row_out_has_no_evaluation(tmp_path: Path) -> None:
    words = "evaluate is about held-out rows, and the study's hold_out is not set"
    async with asgi_cluster(Cluster(tmp_path, n_parties=2, algorithms=ALLOWED)) as client:
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "evaluate": 0.1}
        refused = await client.post("/v1/runs", json=order)
        assert (refused.status_code, refused.json()["detail"]) == (422, words)
        run = await submit(client)
        await watch(client, run)
        refused = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER)
        assert (refused.status_code, refused.json()["detail"]) == (422, words)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"budgets": {"nobody": {"epsilon": 1, "delta": 1e-6}}}, "budgets: unknown parties: nobody"),
        ({"parameters": {"bins": 20}}, "parameters of evaluate: unknown: bins; there are "),
        ({"parameters": {"threshold": 1.0}}, "parameters of evaluate: unknown: threshold; there are "),
        ({"parameters": {"largest_error": 3}}, "largest_error: Input should be less than or equal to 2"),
        ({"parameters": {"edges": 3}}, "unknown: edges; there are "),
    ],
)
async def test_an_evaluation_out_of_range_is_refused(cluster: Cluster, order: dict[str, Any], words: str) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client)
        running = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER)
        await watch(client, run)
        refused = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER | order)
        assert refused.status_code == 422
        assert words in refused.json()["detail"]
        assert running.status_code in {202, 409}
        assert (await client.post("/v1/runs/nobodys/evaluation", json=ORDER)).status_code == 404


async def test_a_run_without_a_model_is_not_evaluated(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    parties["party-1"].intercept = hang = Hang("/rounds/1")
    async with learner_of(cluster, parties) as client:
        run = await submit(client)
        await hang.reached.wait()
        refused = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER)
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            f"run {run} is running; it has no model yet: parley-learner watch {run} says why, and waits for it",
        )
        assert (await client.get(f"/v1/runs/{run}/evaluation?epsilon=1&delta=1e-6")).status_code == 409
        await client.post(f"/v1/runs/{run}/cancel")


async def test_what_evaluated_a_model_is_no_model(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        run = await submit(client)
        await watch(client, run)
        evaluation = await evaluate(client, run)
        assert (await client.get(f"/v1/runs/{evaluation['id']}/evaluation?epsilon=1&delta=1e-6")).status_code == 409
        assert (await client.get(f"/v1/runs/{run}/evaluation?epsilon=0&delta=1e-6")).status_code == 422
        refused = await client.post(f"/v1/runs/{evaluation['id']}/evaluation", json=ORDER)
        assert refused.status_code == 422
        assert "of the kind 'statistics', and predicts for nobody" in refused.json()["detail"]


async def test_an_owner_who_allows_no_evaluation_is_known_beforehand(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2, algorithms=("dp_gd",), hold_out=0.25)
    async with intercepted_parties(cluster) as parties, learner_of(cluster, parties) as client:
        everybody = {name: ["the owner does not allow evaluate"] for name in cluster.names}
        assert await refused(client, evaluate=0.1) == everybody
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "evaluate": 0.1}
        answer = (await client.post("/v1/forecasts", json=order)).json()
        assert [owner["objections"] for owner in answer["owners"]] == [*everybody.values()]
        assert answer["helps"] == ["to leave --evaluate out"]
        for party in parties.values():  # owners that were away have not been asked before
            party.intercept = unreachable("/v1/party", times=1)
        run = await submit(client, evaluate=0.1)
        follower = (await watch(client, run))[-1][1]["evaluated_by"]
        ended = (await watch(client, follower))[-1][1]
        assert ended["state"] == "failed"
        assert "the owner does not allow evaluate" in ended["problem"]["detail"]
        assert (await model_of(client, run))["evaluation"] is None
        refusal = await client.post(f"/v1/runs/{run}/evaluation", json=ORDER)
        assert "would refuse the run: the owner does not allow evaluate" in refusal.json()["detail"]
    assert charges(cluster, follower) == {name: [] for name in cluster.names}


async def test_a_study_that_holds_another_share_out_is_refused_as_changed(cluster: Cluster) -> None:
    studied = cluster.study.model_copy(update={"hold_out": 0.5})
    async with asgi_cluster(cluster) as client:
        order = {"study": studied.model_dump(mode="json"), "epsilon": 1.0, "delta": 1e-5}
        answer = await client.post("/v1/runs", json=order)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("the study 'made-up' of party-1, party-2, party-3 has other settings")


async def test_too_few_rows_to_hold_any_out_are_refused_at_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2, algorithms=ALLOWED, hold_out=0.02)
    async with asgi_cluster(cluster) as client:
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
        answer = await client.post("/v1/runs", json=order | {"evaluate": 0.5})
        by_itself = await client.post("/v1/runs", json=order)
    assert by_itself.status_code == 202, "it trains, and nothing evaluates it"
    words = "the study's hold_out = 0.02 leaves none of the 40 rows of party-1 to evaluate on"
    assert (answer.status_code, answer.json()["detail"]) == (422, words)


STUDIES = {
    "classes": Study(
        name="made-up",
        features=(Feature(name="x", lower=-1, upper=1),),
        label=Label(name="y", values=("a", "b", "c")),
        hold_out=0.2,
    ),
    "real": Study(
        name="made-up",
        features=(Feature(name="x", lower=-1, upper=1),),
        label=RealLabel(name="y", lower=0, upper=10),
        hold_out=0.2,
    ),
}


SAME = ("rows", "contributors", "deviation", "rate")


@pytest.mark.parametrize("kind", STUDIES)
async def test_classes_and_real_labels_have_figures_of_their_own(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (2, 200)).round(3)
    y = np.array(["a", "b", "c"])[np.digitize(x, [-0.3, 0.3])] if kind == "classes" else (5 + 4 * x).round(3)
    tables = [{"x": x[i], "y": y[i]} for i in range(2)]
    cluster = Cluster(tmp_path, algorithms=ALLOWED, given=(STUDIES[kind], tables), epsilon=1000.0)
    async with asgi_cluster(cluster) as client:
        run = await submit(client, epsilon=50.0)
        await watch(client, run)
        at_most = (await client.get(f"/v1/runs/{run}/evaluation?epsilon=50&delta=1e-3")).json()
        nothing = (await client.get(f"/v1/runs/{run}/evaluation?epsilon=.001&delta=1e-3")).json()
        evaluation = (await evaluate(client, run, epsilon=50.0, delta=1e-3))["evaluation"]
    assert {name: at_most[name] for name in SAME} == {name: evaluation[name] for name in SAME}
    figure = "accuracy" if kind == "classes" else "rmse"
    assert at_most[figure]["estimate"] == pytest.approx(float(kind == "classes"))
    assert at_most[figure]["high"] - at_most[figure]["low"] < 0.9
    assert nothing[figure]["estimate"] is None
    if kind == "classes":
        assert set(evaluation["recall"]) == {"a", "b", "c"}
        assert np.shape(evaluation["confusion"]) == (3, 3)
        assert evaluation["accuracy"]["low"] < evaluation["accuracy"]["estimate"]
        assert set(evaluation["auc"]) == {"a", "b", "c"}
        assert evaluation["points"] is evaluation["rmse"] is None
    else:
        assert evaluation["rmse"]["low"] <= evaluation["rmse"]["estimate"] <= evaluation["rmse"]["high"] <= 10
        assert evaluation["r_squared"]["high"] <= 1
        assert evaluation["accuracy"] is evaluation["confusion"] is None
    assert evaluation["rows"] == 80


def test_what_did_not_evaluate_has_no_evaluation(cluster: Cluster) -> None:
    spec = run_spec(cluster)
    assert evaluation_of(spec, Model(np.zeros(4)), spec.names) is None


def test_figures_are_those_of_who_contributed(cluster: Cluster) -> None:
    spec = evaluation_of_run(cluster, {"kind": "linear", "weights": [0.0] * 4}, minimum_contributors=2)
    edges = np.linspace(-1, 1, Evaluate().n_edges(spec.facts()))
    values = np.full(2 * len(edges) + 2, 500.0)
    evaluation = evaluation_of(spec, Model(values, "statistics", {"edges": edges}), ("party-1", "party-3"))
    assert evaluation
    assert evaluation.rows == 10 + 10
    law = Evaluate().noise_law(2, spec.facts(), (0, 2))
    plain = statistics_of(NoisyCounts(values, law, ("no", "yes"), edges))
    assert evaluation.accuracy == plain.accuracy
    assert evaluation.deviation == pytest.approx(math.sqrt(2) * deviation_of(spec))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.3, 1e-6), (0.1, 0.0), (3.0, 1e-16), (0.000_01, 1e-5)])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9, 1 / 3])
def test_two_parts_of_a_budget_are_no_more_than_it(epsilon: float, delta: float, share: float) -> None:
    parts = divide(Budget(epsilon=epsilon, delta=delta), share)
    units = [round(part.epsilon * MICRO) for part in parts]
    assert sum(units) <= round(epsilon * MICRO)
    assert units[1] == pytest.approx(share * epsilon * MICRO, abs=1)
    assert sum(round(part.delta * 10**18) for part in parts) <= round(delta * 10**18)
