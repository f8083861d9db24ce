"""The feature method of four sites and an aggregator; one of them is killed in each round."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.learner.test_ensemble import resumed_until, until_up
from tests.support.cluster import submit
from tests.support.outage import check_end, outage_scene
from tests.support.rounds import run_spec

TERMS: dict[str, Any] = {
    "algorithm": "feature",
    "parameters": {"second": "full", "aggregator": "party-5", "regularization": 0.05, "law": "gaussian"},
}


@pytest.mark.slow
async def test_a_site_and_the_aggregator_killed_in_their_rounds(tmp_path: Path) -> None:
    async with outage_scene(tmp_path, "none", 5, made={"algorithms": ("feature",)}, deadline_seconds=5.0) as scene:
        site, aggregator = scene.proxies["party-2"], scene.proxies["party-5"]
        site.faults, site.faulty, site.delay_seconds = ("delay",), 1.0, 0.7
        run = await submit(scene.client, **TERMS, minimum_contributors=5)
        await scene.until(run, "running")
        scene.restart("party-2")
        await until_up(scene, "party-2")
        site.faulty = 0.0
        aggregator.faults, aggregator.faulty, aggregator.delay_seconds = ("delay",), 1.0, 0.7
        while (await scene.view(run))["rounds"]["done"] < 1:  # noqa: ASYNC110 -- another process's
            await asyncio.sleep(0.05)
        scene.restart("party-5")
        await until_up(scene, "party-5")
        aggregator.faulty = 0.0
        await resumed_until(scene, run, "completed")
        spec = run_spec(scene.cluster, **TERMS, minimum_contributors=5).settled()[0]
        await check_end(scene.client, run, scene.cluster, spec)
        model = (await scene.client.get(f"/v1/runs/{run}/model")).json()
        assert len(model["made_of"]["site_weights"]) == 5
    print("4 sites and an aggregator, one killed in each round: twin =, charges = price, each ledger its own round")
