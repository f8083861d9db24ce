"""A client generated from the learner's document by a tool that knows nothing of Parley trains a model with it."""

from __future__ import annotations

import io
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import httpx
import pytest

from parley.learner.client.connection import parse_events
from tests.support.cluster import USER, Cluster
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready

pytestmark = pytest.mark.slow
BIN = sysconfig.get_path("scripts")
PACKAGE = "generated_parley_client"


@dataclass(frozen=True, slots=True)
class Generated:
    """The generated package, and a client of it for a user of a learner that runs."""

    models: ModuleType
    types: ModuleType
    client: Any
    functions: dict[str, ModuleType]

    def ask(self, operation: str, **arguments: object) -> Any:  # noqa: ANN401 -- what the operation returns
        """What a generated function makes of the answer."""
        return self.functions[operation].sync(client=self.client, **arguments)

    def status(self, operation: str, **arguments: object) -> int:
        """Return the status of an answer."""
        return int(self.functions[operation].sync_detailed(client=self.client, **arguments).status_code)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("cluster"), n_parties=2)


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    """A learner with two parties."""
    url = f"http://127.0.0.1:{free_port()}"
    with party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls, port=httpx.URL(url).port)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            yield url


@pytest.fixture(scope="module")
def generated(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    """The client, made of the document that the learner hands out; the generator must have nothing to warn of."""
    root = tmp_path_factory.mktemp("generated")
    document = httpx.get(f"{url}/openapi.json", trust_env=False).raise_for_status()
    (root / "openapi.json").write_bytes(document.content)
    command = [f"{BIN}/openapi-python-client", "generate", "--path", str(root / "openapi.json"), "--meta", "none"]
    command += ["--output-path", str(root / PACKAGE), "--fail-on-warning"]
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # it tidies what it wrote up with ruff
    made = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False)
    assert made.returncode == 0, made.stdout
    operations = [operation for methods in document.json()["paths"].values() for operation in methods.values()]
    print(f"a client of {len(operations)} operations, {made.stdout.count('WARNING')} warnings of the generator")
    assert "WARNING" not in made.stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root))
        functions = {
            operation["operationId"]: import_module(
                f"{PACKAGE}.api.{operation['tags'][0].replace(' ', '_')}.{operation['operationId']}"
            )
            for operation in operations
        }
        with import_module(PACKAGE).AuthenticatedClient(
            base_url=url, token=USER, httpx_args={"trust_env": False}
        ) as client:
            yield Generated(import_module(f"{PACKAGE}.models"), import_module(f"{PACKAGE}.types"), client, functions)


def test_trains_a_model_and_predicts(generated: Generated) -> None:
    models = generated.models
    (study,) = generated.ask("list_studies")
    parameters = models.RunRequestParameters.from_dict({"n_rounds": 3})
    order = models.RunRequest(study=study.name, epsilon=50, delta=1e-5, parameters=parameters)
    first, again = (generated.ask("submit_run", body=order, idempotency_key="once") for _ in range(2))
    assert first.id == again.id

    events = list(parse_events(generated.ask("watch_run", run=first.id).splitlines()))
    rounds = [models.RoundNews.from_dict(event.news) for event in events if event.kind == "round"]
    assert [(news.round_, news.of, len(news.contributors)) for news in rounds] == [(1, 3, 2), (2, 3, 2), (3, 3, 2)]
    assert models.StateNews.from_dict(events[-1].news).state == "completed"
    run = generated.ask("show_run", run=first.id)
    assert (run.state, run.rounds.done, run.problem) == ("completed", 3, None)

    model = generated.ask("show_model", run=first.id)
    assert isinstance(model, models.LinearModel)
    assert len(model.weights) == len(model.column_names) == 4
    assert model.study == generated.ask("show_study", study=study.name)
    assert model.guarantees[0].epsilon <= 50
    records = [models.PredictionRequestRecordsItem.from_dict({f"x{i}": x for i in range(3)}) for x in (0.9, -0.9)]
    predicted = generated.ask("make_predictions", run=first.id, body=models.PredictionRequest(records=records))
    assert [prediction.label for prediction in predicted] == ["yes", "no"]
    print(
        f"submitted, watched {len(events)} events, fetched {type(model).__name__}, predicted {len(predicted)} records"
    )


def test_sends_back_what_it_was_shown(generated: Generated) -> None:
    study = generated.ask("show_study", study="made-up")
    order = generated.models.RunRequest(study=study, epsilon=1, delta=1e-5)
    assert generated.ask("submit_run", body=order).study == "made-up"


def test_every_other_operation_answers_as_it_says(generated: Generated, cluster: Cluster) -> None:
    models = generated.models
    table = generated.types.File(payload=io.BytesIO(cluster.public_table()))
    rows = generated.ask("upload_public_rows", body=table, study="made-up")
    assert (rows.rows, generated.ask("list_public_rows").rows) == (6, [rows])
    assert [party.facts.studies[0].n_examples for party in generated.ask("list_parties")] == [40, 41]
    assert "dp_gd" in generated.ask("list_algorithms").additional_properties
    forecast = generated.ask("forecast_run", body=models.ForecastRequest(study="made-up", epsilon=1, delta=1e-5))
    assert [owner.name for owner in forecast.owners] == ["party-1", "party-2"]

    order = models.RunRequest(study="made-up", epsilon=1, delta=1e-5)
    runs = [generated.ask("submit_run", body=order).id for _ in range(3)]
    page = generated.ask("list_runs", limit=2)
    assert [run.id for run in page.runs] == runs[:0:-1]
    assert generated.ask("list_runs", limit=1, after=page.next_).runs[0].id == runs[0]
    generated.ask("watch_run", run=runs[0])
    assert generated.ask("list_receipts", run=runs[0]) == []
    problem = generated.ask("cancel_run", run=runs[0])
    assert (type(problem), problem.status) == (models.ProblemDocument, 409)
    for operation in ("check_health", "check_readiness", "show_metrics"):
        assert generated.status(operation) == 200


def test_a_refusal_is_a_problem_document(generated: Generated) -> None:
    order = generated.models.RunRequest(study="unknown", epsilon=1, delta=1e-5)
    problem = generated.ask("submit_run", body=order)
    assert isinstance(problem, generated.models.ProblemDocument)
    assert (problem.status, problem.type_) == (422, "urn:parley:problem:invalid-input")
