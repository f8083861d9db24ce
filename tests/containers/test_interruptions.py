"""Runs across containers that are cut off, frozen, rebuilt or robbed of their disk in mid-run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime

import pytest

from parley.learner.cli.client import LearnerClient
from scripts.deployment.sites import HOSPITALS, LEARNER
from tests.support.containers import (
    Project,
    check_charges,
    docker,
    events,
    finish,
    rounds,
    state,
    submit,
    wait_for,
    wait_for_round,
)

N_ROUNDS = {"none": 80, "paillier": 24}
"""By kind of sum: rounds enough that something happens in their midst."""

BEYOND_DEADLINE = 7.0
"""Seconds: the learner waits for a silent party for five."""

each_kind = pytest.mark.parametrize("kind", N_ROUNDS)


def begin(learner: LearnerClient, kind: str) -> str:
    """A run of all parties that has done a few of its many rounds."""
    run = submit(learner, N_ROUNDS[kind], secure_sum=kind, epsilon=0.5)
    wait_for_round(learner, run, 3)
    return run


def states(learner: LearnerClient, run: str) -> list[str]:
    """The states that a run went through, from its start to its end."""
    return [str(event["state"]) for event in events(learner, run, "state")]


@pytest.mark.parametrize(
    ("trouble", "kind"), [(Project.cut_off, "paillier"), (Project.frozen, "none")], ids=["cut off", "frozen"]
)
def test_a_run_waits_for_a_party_that_is_away_for_longer_than_the_deadline(
    services: Project, trouble: Callable[[Project, str], AbstractContextManager[None]], kind: str
) -> None:
    with services.learner() as learner:
        run = begin(learner, kind)
        with trouble(services, "hospital-c"):
            wait_for(lambda: state(learner, run) != "running")
            done = rounds(learner, run)["done"]
        model = finish(learner, run)
        seen = states(learner, run)
        assert "paused" in seen
        assert model["contributors"] == list(HOSPITALS)
        for party in HOSPITALS:
            check_charges(services, learner, run, party)
    print(f"{kind}: away after {done} of {N_ROUNDS[kind]} rounds; {', '.join(seen)}; 0 extra charges at 5 parties")


@each_kind
def test_a_learner_that_stands_still_goes_on_with_its_run(services: Project, kind: str) -> None:
    with services.learner() as learner:
        run = begin(learner, kind)
        with services.frozen(LEARNER):
            time.sleep(BEYOND_DEADLINE)  # what is tried is that so much time passes
        done = rounds(learner, run)["done"]
        finish(learner, run)
        for party in HOSPITALS:
            check_charges(services, learner, run, party)
    print(f"{kind}: learner frozen for {BEYOND_DEADLINE:g} s, {done} of {N_ROUNDS[kind]} rounds done, run completed")


def test_a_run_outlives_every_container_and_image(services: Project) -> None:
    services.rebuild()
    before = {name: services.inspect(name) for name in services.services}
    with services.learner() as learner:
        run = begin(learner, "paillier")
        docker("kill", services.container(LEARNER))  # so that no round is done while the others are stopped
        services.compose("up", "-d", "--no-deps", "--force-recreate", *services.services)
    services.start()
    with services.learner() as learner:
        finish(learner, run)
        for party in HOSPITALS:
            check_charges(services, learner, run, party)
    for name, old in before.items():
        new = services.inspect(name)
        assert new["Id"] != old["Id"]
        assert new["Image"] != old["Image"]
    began = datetime.fromisoformat(services.inspect(LEARNER)["State"]["StartedAt"][:19] + "Z").timestamp()
    after = sum(entry["at"] > began for entry in services.ledger("hospital-a", run))
    assert after > 0
    print(f"{len(before)} containers of new images, {after} of {N_ROUNDS['paillier']} rounds after that, run completed")


def test_a_party_that_lost_its_volume_says_so_and_costs_nobody_else(services: Project) -> None:
    lost, others = HOSPITALS[-1], HOSPITALS[:-1]
    with services.learner() as learner:
        finish(learner, submit(learner, n_rounds=3, epsilon=0.1))
        before = services.owner(lost, "log")
        with services.volume_lost(lost):
            wait_for(lambda: "parley-party init" in services.logs(lost))
            assert not services.is_healthy(lost)
            run = submit(learner, n_rounds=3, epsilon=0.1, parties=list(others))
            assert finish(learner, run)["contributors"] == list(others)
        assert services.owner(lost, "log") == before
        run = submit(learner, n_rounds=3, epsilon=0.1)
        assert finish(learner, run)["contributors"] == list(HOSPITALS)
        check_charges(services, learner, run, lost)
    print(f"{lost} without its volume: refused to start and said why; 4 others went on; restored, it went on too")
