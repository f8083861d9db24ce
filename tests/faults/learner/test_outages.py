"""Runs wait for all that is out of use for a while: none is lost, no model changes, nothing is paid twice."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest

from tests.support.nightly import nightly, repeats
from tests.support.outage import DEADLINE, outage_scene

KINDS = ("none", "paillier")
N_ROUNDS = 6
FEW, FAULTS = 2, repeats(100, 1500)
pytestmark = pytest.mark.slow
STATUSES = (401, 408, 425, 429, 500, 503)


def numbers(few: int, many: int) -> list[object]:
    """A quick number of troubles, and at night one to be sure."""
    return [few, pytest.param(many, marks=nightly)]


@pytest.mark.parametrize("times", numbers(FEW, 25))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_learner_stopped_for_longer_than_the_deadline_goes_on(tmp_path: Path, kind: str, times: int) -> None:
    rng = random.Random(1)
    async with outage_scene(tmp_path, kind) as scene:
        for proxy in scene.proxies.values():  # so that there is always a question under way
            proxy.faults, proxy.faulty, proxy.delay_seconds = ("delay",), 1.0, 0.05
        run = await scene.submit(5 * times)
        for number in range(times):
            await scene.until(run, "completed", "failed", rounds=1 + 4 * number)
            await asyncio.sleep(rng.random() * 0.1)
            scene.send("learner", signal.SIGSTOP)
            await asyncio.sleep(2 * DEADLINE)
            scene.send("learner", signal.SIGCONT)
        await scene.check(run, 5 * times)
    print(f"learner stopped {times} times for longer than the deadline ({kind}): 0 runs lost, twin =, charges = price")


async def test_a_stopped_learner_blames_nobody(tmp_path: Path) -> None:
    """One party of three may be missing: the learner must not drop whom it did not listen to."""
    async with outage_scene(tmp_path, "none", n_parties=3, minimum=2, deadline_seconds=4.0) as scene:
        slow = scene.proxies["party-1"]
        run = await scene.submit(8)
        for rounds in (1, 4):
            await scene.until(run, rounds=rounds)
            slow.is_open.clear()
            await asyncio.sleep(1)  # in which the others answer
            scene.send("learner", signal.SIGSTOP)
            slow.is_open.set()  # now it answers too, and nobody listens
            await asyncio.sleep(4)
            scene.send("learner", signal.SIGCONT)
        await scene.check(run, 8)
    print("a learner stopped twice for longer than the deadline, when it could do without one party: 0 parties dropped")


@pytest.mark.parametrize("times", numbers(FEW, 25))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_partition_longer_than_the_deadline_is_outlasted(tmp_path: Path, kind: str, times: int) -> None:
    rng, pauses = random.Random(2), 0
    async with outage_scene(tmp_path, kind) as scene:
        run = ""
        for number in range(times):
            if number % N_ROUNDS == 0:  # a new run, which may find its parties gone as it recruits
                if run:
                    await scene.check(run, 3 * N_ROUNDS)
                run = await scene.submit(3 * N_ROUNDS)
            shut = rng.sample(sorted(scene.proxies), 1) if number % 2 else list(scene.proxies)
            for name in shut:
                scene.proxies[name].is_open.clear()
            view = await scene.until(run, "paused", "completed", "failed")
            pauses += view["state"] == "paused"
            for name in shut:
                scene.proxies[name].is_open.set()
            assert (await scene.client.post(f"/v1/runs/{run}/resume")).status_code in {200, 409}
            await scene.until(run, "running", "completed", "failed")
        await scene.check(run, 3 * N_ROUNDS)
    assert pauses > 0
    print(
        f"{times} partitions longer than the deadline ({kind}): {pauses} pauses, 0 runs lost, twin =, charges = price"
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_party_killed_and_started_again_in_mid_run_is_waited_for(tmp_path: Path, kind: str) -> None:
    async with outage_scene(tmp_path, kind) as scene:
        run = await scene.submit(20)
        for rounds in (1, 8):
            await scene.until(run, rounds=rounds)
            for name in scene.cluster.names[:2]:
                scene.restart(name)
        await scene.check(run, 20)
    print(f"both parties killed twice in mid-run ({kind}): run completed, twin =, charges = price")


@pytest.mark.parametrize("kind", KINDS)
async def test_statuses_that_time_mends_are_outlasted(tmp_path: Path, kind: str) -> None:
    async with outage_scene(tmp_path, kind) as scene:
        run = await scene.submit(4 * len(STATUSES))
        for number, status in enumerate(STATUSES):
            await scene.until(run, rounds=1 + 3 * number)
            for proxy in scene.proxies.values():
                proxy.status = status
            view = await scene.until(run, "paused")
            assert set(view["pause"]["who"]) <= set(scene.proxies)
            assert view["pause"]["who"]
            for proxy in scene.proxies.values():
                proxy.status = 0
        await scene.check(run, 4 * len(STATUSES))
    print(
        f"{', '.join(map(str, STATUSES))} for longer than the deadline ({kind}): 0 runs lost, twin =, charges = price"
    )


@pytest.mark.parametrize("times", numbers(1, 5))
@pytest.mark.parametrize("name", ["learner", "party-1"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_disk_pauses_runs_and_loses_none(tmp_path: Path, kind: str, name: str, times: int) -> None:
    size, unwritten = 96 * 1024, 0
    async with outage_scene(tmp_path, kind) as scene:
        trained = await scene.submit(2)
        await scene.check(trained, 2)
        for number in range(times):
            run = await scene.submit(40)
            await scene.until(run, rounds=2)
            with scene.full_disk(name, size):
                view = await scene.until(run, "paused", "failed", "completed")
                assert view["state"] == "paused", f"disk full for the {number}. time"
                assert view["pause"]["who"] == ([] if name == "learner" else [name])
                unwritten += not view["pause"]["written"]  # a pause may fit where a round did not
                for path in ("/", f"/v1/runs/{trained}", f"/v1/runs/{trained}/model", f"/v1/runs/{trained}/card"):
                    assert (await scene.client.get(path)).status_code == 200, f"{path} needs no room on the disk"
            await scene.check(run, 40)
    assert name == "learner" or unwritten == 0
    print(f"disk full {times} times at {name} ({kind}), {unwritten} pauses unwritten: 0 lost, twin =, charges = price")


@pytest.mark.parametrize("name", ["learner", "party-1"])
async def test_a_locked_database_pauses_runs_and_stops_nobody_else(tmp_path: Path, name: str) -> None:
    async with outage_scene(tmp_path, "none") as scene:
        run = await scene.submit(200)
        await scene.until(run, rounds=2)
        with scene.locked(name):
            view = await scene.until(run, "paused")
            healthy = [(await scene.client.get("/healthz")).elapsed.total_seconds() for _ in range(20)]
            ready = await scene.client.get("/readyz")
            assert (ready.status_code == 503) == (name == "learner")
        await scene.check(run, 200)
    assert view["pause"]["written"] == (name != "learner")
    print(
        f"{name}'s database locked: paused ({view['pause']['reason']}); /healthz in {sorted(healthy)[10] * 1000:.1f} ms"
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bad_network_loses_no_run(tmp_path: Path, kind: str) -> None:
    runs = faults = 0
    async with outage_scene(tmp_path, kind, n_parties=5, deadline_seconds=2.0) as scene:
        for proxy in scene.proxies.values():
            proxy.faulty = 0.5
        while faults < FAULTS:
            submitted = [await scene.submit(20) for _ in range(5)]
            for run in submitted:
                await scene.check(run, 20)
            faults = sum(proxy.done.total() - proxy.done["none"] for proxy in scene.proxies.values())
            runs += len(submitted)
    print(f"{faults} faults of the network in {runs} runs ({kind}): 0 runs lost, twin =, charges = price")
