"""An ensemble of eight owners, five kinds of classifier and a secure sum; several owners are killed on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley.common.runs.specification import PublicRows, RunSpec
from tests.support.cluster import submit, upload
from tests.support.outage import Scene, check_end, outage_scene
from tests.support.processes import wait_until_ready
from tests.support.rounds import run_spec

N_PUBLIC = 40
OWNERS: dict[str, dict[str, Any]] = {
    "party-1": {"kind": "tree", "max_depth": 4},
    "party-2": {"kind": "knn"},
    "party-3": {"kind": "bayes"},
    "party-4": {"kind": "forest", "n_trees": 1000},  # a second or two of training, in which to be killed
}
"""The others train what the run says: a linear classifier."""


def spec_of(scene: Scene) -> RunSpec:
    """The specification that the parties approve."""
    rows = PublicRows.of(scene.cluster.public_rows(N_PUBLIC))
    terms: dict[str, Any] = {"minimum_contributors": 8, "colluders": 1, "secure_sum": "paillier", "public": rows}
    return run_spec(scene.cluster, algorithm="ensemble_vote", parameters={}, **terms).settled()[0]


async def until_up(scene: Scene, *names: str) -> None:
    """Wait until services listen again."""
    for name in names:
        port = scene.settings.port if name == "learner" else scene.proxies[name].upstream_port
        await asyncio.to_thread(wait_until_ready, f"http://127.0.0.1:{port}")


async def resumed_until(scene: Scene, run: str, state: str) -> None:
    """Wait for a state, and where the run is paused ask it to go on."""
    while (view := await scene.until(run, state, "paused", "failed"))["state"] == "paused":
        await scene.client.post(f"/v1/runs/{run}/resume")
    assert view["state"] == state, view


@pytest.mark.slow
async def test_owners_and_learner_killed_in_training_and_in_the_vote(tmp_path: Path) -> None:
    made = {"algorithms": ("ensemble_vote",), "classifiers": OWNERS, "policy": {"adjacency": "whole_party"}}
    async with outage_scene(tmp_path, "paillier", 8, made=made, deadline_seconds=5.0) as scene:
        digest = (await upload(scene.client, scene.cluster.public_table(N_PUBLIC)))["digest"]
        slow = scene.proxies["party-2"]
        slow.faults, slow.faulty, slow.delay_seconds = ("delay",), 1.0, 0.7
        terms: dict[str, Any] = {"algorithm": "ensemble_vote", "parameters": {}, "public": digest}
        run = await submit(scene.client, **terms, secure_sum="paillier", minimum_contributors=8)
        await asyncio.sleep(0.5)
        assert (await scene.view(run))["state"] == "recruiting"
        scene.restart("party-4")  # while its forest grows
        await until_up(scene, "party-4")
        await resumed_until(scene, run, "running")
        await asyncio.sleep(0.3)  # in which the others vote
        scene.restart("party-2")
        scene.restart("learner")
        await until_up(scene, "party-2", "learner")
        assert (await scene.view(run))["rounds"]["done"] == 0
        slow.faulty = 0.0
        await resumed_until(scene, run, "completed")
        await check_end(scene.client, run, scene.cluster, spec_of(scene), scene.cluster.public_rows(N_PUBLIC))
        model = (await scene.client.get(f"/v1/runs/{run}/model")).json()
        (transcript, *_) = model["guarantees"]
        assert (transcript["adjacency"], transcript["view"], transcript["trust"]) == ("whole_party", "transcript", 1)
    print("8 owners, 5 kinds of classifier, a secure sum; two owners and the learner killed: twin =, charges = price")
