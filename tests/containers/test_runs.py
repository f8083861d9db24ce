"""Runs across containers, in the open and under secure sum: from end to end, and while services die."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.common.errors import ParleyError
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Opened
from parley.learner.cli.client import LearnerClient
from parley.learner.experiments.datasets import BIOPSIES
from scripts.deployment.sites import HOSPITALS, KEY_HOLDER, LEARNER
from tests.support.containers import (
    Project,
    check_charges,
    docker,
    events,
    finish,
    model_by_two_requests,
    rounds,
    submit,
    wait_for_round,
)

MANY = {"none": 80, "paillier": 20}
"""By kind of sum: rounds enough that a service dies in their midst."""

JOURNAL = """
import json, sqlite3, sys
journal = sqlite3.connect("file:/var/lib/parley/keyholder.db?mode=ro", uri=True)
found = [json.loads(record) for (record,) in journal.execute("SELECT record FROM entries ORDER BY number")]
opened = [each for each in found if each["kind"] == "opened" and each["session"] == sys.argv[1]]
print(json.dumps([[each["round"], each["contributors"]] for each in opened]))
"""
"""Prints the sets that the key holder has opened in a session: [[round, hash of the contributions] ...]."""

PUBLIC_KEY = """
from pathlib import Path
from parley.common.secure_sum.envelope import public_hex
from parley.common.storage.keys import read_key
print(public_hex(read_key(Path("secrets/identity.key").read_bytes(), "identity.key")))
"""

each_kind = pytest.mark.parametrize("kind", MANY)


def begin(learner: LearnerClient, kind: str, **request: object) -> str:
    """A run that has done a few of its many rounds."""
    run = submit(learner, MANY[kind], secure_sum=kind, **request)
    wait_for_round(learner, run, 3)
    return run


def check_openings(services: Project, learner: LearnerClient, run: str) -> list[dict[str, Any]]:
    """Each round was opened for one set, which key holder and learner agree on; the learner's receipts."""
    pinned = services.run(KEY_HOLDER, "python", "-c", PUBLIC_KEY).strip()
    opened: list[dict[str, Any]] = learner.ask("GET", f"/v1/runs/{run}/receipts")
    statements = [read_receipt(pinned, *opening["receipts"]) for opening in opened]
    assert [statement.round for statement in statements] == list(range(1, rounds(learner, run)["of"] + 1))
    journal = services.run(KEY_HOLDER, "python", "-c", JOURNAL, statements[0].session)
    assert json.loads(journal) == [[statement.round, statement.contributors] for statement in statements]
    return opened


def read_receipt(pinned: str, receipt: dict[str, str]) -> Opened:
    """What the only key holder signed."""
    signed = Signed(receipt["statement"].encode(), bytes.fromhex(receipt["signature"]))
    signed.verify(Opened.TAG, pinned)
    return Opened.parse(signed.body)


def test_a_fresh_clone_takes_one_command_and_two_requests_to_a_model(services: Project) -> None:
    assert "token: docker compose run --rm setup token" in services.logs("setup")
    model = model_by_two_requests(services)
    assert model["contributors"] == list(HOSPITALS)
    assert len(model["weights"]) == BIOPSIES.n_features
    services.compose("up", "-d")
    assert services.token == services.setup("token"), "a second start makes nothing again"


def test_a_user_trains_a_model_over_loopback(services: Project) -> None:
    with services.learner() as learner:
        assert [party["name"] for party in learner.ask("GET", "/v1/parties") if party["facts"]] == list(HOSPITALS)
        run = submit(learner, n_rounds=10)
        model = finish(learner, run)
        assert len(model["weights"]) == BIOPSIES.n_features
        assert model["contributors"] == list(HOSPITALS)
        transcript, *_ = (guarantee for guarantee in model["guarantees"] if guarantee["view"] == "transcript")
        assert transcript["epsilon"] <= 1.0
        told = events(learner, run, "round")
        assert [news["round"] for news in told] == list(range(1, 11))
        with LearnerClient(learner.url, "of-no-one") as stranger, pytest.raises(ParleyError, match="not known here"):
            stranger.ask("GET", "/v1/runs")
    print(f"five parties in containers: accuracy {told[-1]['accuracy']:.3f} on public examples after 10 rounds")


@each_kind
def test_a_party_that_dies_is_dropped_by_name_and_the_run_completes(services: Project, kind: str) -> None:
    remaining = [name for name in HOSPITALS if name != "hospital-c"]
    with services.learner() as learner:
        run = begin(learner, kind, minimum_contributors=4)
        docker("kill", services.container("hospital-c"))
        try:
            model = finish(learner, run)
            (dropped,) = events(learner, run, "dropped")
        finally:
            services.start()
        assert dropped["party"] == "hospital-c"
        assert model["contributors"] == remaining
        check_charges(services, learner, run, "hospital-a")
        assert len(services.ledger("hospital-c", run)) <= dropped["round"]
        if kind == "paillier":
            opened = check_openings(services, learner, run)
            assert opened[0]["contributors"] == list(HOSPITALS)
            assert opened[-1]["contributors"] == remaining
    print(f"{kind}: hospital-c killed in round {dropped['round']} of {MANY[kind]}, dropped by name, run completed")


@each_kind
def test_a_learner_that_dies_resumes_its_run_and_no_round_is_charged_twice(services: Project, kind: str) -> None:
    with services.learner() as learner:
        run = begin(learner, kind)
        docker("kill", services.container(LEARNER))
    docker("start", services.container(LEARNER))
    with services.learner() as learner:
        done = rounds(learner, run)["done"]
        assert done < MANY[kind]
        finish(learner, run)
        for party in HOSPITALS:
            check_charges(services, learner, run, party)
        if kind == "paillier":
            check_openings(services, learner, run)
    print(f"{kind}: learner killed after {done} of {MANY[kind]} rounds, run completed, 0 extra charges at 5 parties")


def test_a_key_holder_that_dies_opens_no_round_again(services: Project) -> None:
    with services.learner() as learner:
        run = begin(learner, "paillier")
        docker("kill", services.container(KEY_HOLDER))
        done = rounds(learner, run)["done"]
        assert done < MANY["paillier"]
        docker("start", services.container(KEY_HOLDER))
        finish(learner, run)
        check_openings(services, learner, run)
        check_charges(services, learner, run, "hospital-e")
    print(f"key holder killed after {done} of {MANY['paillier']} rounds: run completed, each round opened for one set")


def spent(services: Project, party: str) -> dict[str, Any]:
    """A party's budget, without what its disk has to do with it."""
    budget: dict[str, Any] = json.loads(services.owner(party, "budget"))
    return {name: figure for name, figure in budget.items() if name != "ledger"}


def test_a_ledger_outlives_its_container(services: Project) -> None:
    with services.learner() as learner:
        finish(learner, submit(learner, n_rounds=3))
        before = services.owner("hospital-b", "log"), spent(services, "hospital-b")
        services.compose("restart", "hospital-b")
        services.compose("up", "-d", "--force-recreate", "hospital-b")
        services.start()
        assert (services.owner("hospital-b", "log"), spent(services, "hospital-b")) == before
        run = submit(learner, n_rounds=3)
        finish(learner, run)
    assert len(services.ledger("hospital-b", run)) == 3
