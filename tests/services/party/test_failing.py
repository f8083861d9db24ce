"""Work on the data that ends in an error nobody foresaw: it is charged, and reported by its type and place alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from parley.common.algorithms.dp_gd import DpGd
from parley.common.algorithms.release import PrivateRelease
from parley.common.errors import InvalidInputError, WorkFailedError
from parley.common.privacy.account import MICRO, Cost
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, open_store
from parley.party.api.app import create_party_app
from parley.party.ledger import audit
from parley.party.ledger.records import Answered, Ended
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

SECRET = "4711"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Parties that allow an algorithm that prepares, and one that does not."""
    return Cluster(tmp_path, algorithms=("dp_gd", "release"))


@pytest.fixture
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """A party that is asked."""
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        yield client


def failing(error: Exception, after: int = 0) -> Callable[..., Any]:
    """A method in the place of another that fails with this error, after so many calls that answer zeros."""
    calls: list[object] = []

    def work(*arguments: Any) -> Any:  # noqa: ANN401 -- all that the other takes
        calls.append(arguments)
        if len(calls) > after:
            raise error
        return np.zeros(arguments[2].shape[-1], np.int64)

    return work


def charged(cluster: Cluster) -> float:
    """What all answers, and all that failed, cost by themselves."""
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().reserved == Cost(0, 0)
        entries = [entry.record for entry in ledger.entries()]
    return sum(record.cost.epsilon for record in entries if isinstance(record, Answered | Ended)) / MICRO


def test_who_cannot_prepare_charges_the_whole_run_and_ends_it(
    cluster: Cluster, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivateRelease, "prepare", failing(ValueError(SECRET)))
    spec = run_spec(cluster, algorithm="release", parameters={"mechanism": "output"})
    with capture_logs() as logs:
        first = propose(client, spec)
    assert not first.json()["prepared"]
    again = propose(client, spec)
    assert (again.status_code, again.json()["type"]) == (409, "urn:parley:problem:work-failed")
    assert charged(cluster) == first.json()["epsilon"]
    (logged,) = (log for log in logs if log["event"] == "failed")
    assert (logged["error"], "test_failing.py:" in logged["place"]) == ("ValueError", True)
    assert SECRET not in json.dumps([logs, again.json()])
    assert ask(client, 1, np.zeros(0), "run", "release", "each").status_code == 409
    assert charged(cluster) == first.json()["epsilon"], "once"


def test_a_run_that_is_ended_before_its_work_fails_is_charged_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or who ends it in time would learn for nothing whether it failed, by asking whether it is prepared."""
    monkeypatch.setattr(PrivateRelease, "prepare", failing(ValueError(SECRET)))
    spec = run_spec(cluster, algorithm="release", parameters={"mechanism": "output"})
    with Party(cluster.party_settings("party-1")) as owner:
        proposal = RunProposal(run="run", spec=spec)
        owner.approve("learner", proposal)
        owner.end("learner", "run")
        for _ in range(2):
            with pytest.raises(WorkFailedError):
                owner.make_ready("learner", "run")
        with pytest.raises(WorkFailedError):
            owner.find_approval("learner", proposal)
        consent = owner.store.consents.find("learner", "run")
        assert consent is not None
        assert owner.store.account().spent == consent.price.total


def test_a_round_that_cannot_be_answered_charges_what_is_left_of_the_run(
    cluster: Cluster, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon = propose(client, run_spec(cluster, n_rounds=4)).json()["epsilon"]
    ask(client, 1, weights(cluster, 1)).raise_for_status()
    monkeypatch.setattr(DpGd, "local", failing(ZeroDivisionError(SECRET)))
    failed = ask(client, 2, weights(cluster, 2))
    assert (failed.status_code, failed.json()["type"]) == (409, "urn:parley:problem:work-failed")
    assert SECRET not in failed.text
    assert charged(cluster) == epsilon
    assert "has ended" in ask(client, 2, weights(cluster, 2)).json()["detail"]
    assert ask(client, 1, weights(cluster, 1)).is_success, "what was answered stays so"


def test_a_refusal_on_purpose_costs_nothing(
    cluster: Cluster, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(client, run_spec(cluster, n_rounds=4)).raise_for_status()
    monkeypatch.setattr(DpGd, "local", failing(InvalidInputError("no")))
    assert ask(client, 1, weights(cluster, 1)).status_code == 422
    client.delete("/v1/runs/run").raise_for_status()
    assert charged(cluster) == 0


def test_the_ledger_records_it_and_an_audit_checks_the_charge(
    cluster: Cluster, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DpGd, "local", failing(RuntimeError()))
    propose(client, run_spec(cluster, n_rounds=4)).raise_for_status()
    ask(client, 1, weights(cluster, 1))
    settings = cluster.party_settings("party-1")
    with open_store(settings) as ledger:
        entries, _ = audit.verify(audit.export(ledger), settings.identity.key)
        last, account = entries[-1].record, ledger.account()
    assert isinstance(last, Ended)
    assert (last.by, last.cost, last.adjacency) == ("failed", account.spent, "replace_one")
    (run,) = audit.by_run(entries)
    assert (run.ended, run.charged, run.seen) == ("failed", account.spent, "that work on the data failed")


def test_after_a_restart_one_run_that_fails_keeps_no_other_from_being_prepared(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = cluster.party_settings("party-1")
    good = run_spec(cluster, algorithm="release", parameters={"mechanism": "output"})
    bad = run_spec(cluster, algorithm="release", parameters={"mechanism": "output", "regularization": 0.5})
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        propose(client, good, "good").raise_for_status()
        propose(client, bad, "bad").raise_for_status()
    prepare = PrivateRelease.prepare

    def sometimes(self: PrivateRelease, *arguments: Any) -> Any:  # noqa: ANN401 -- as the other
        if self.regularization == 0.5:
            raise ValueError(SECRET)
        return prepare(self, *arguments)

    monkeypatch.setattr(PrivateRelease, "prepare", sometimes)
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        ask(client, 1, np.zeros(0), "good", "release", "each").raise_for_status()
        assert propose(client, bad, "bad").json()["type"] == "urn:parley:problem:work-failed"
