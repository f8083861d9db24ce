"""The learner's store in another version of its tables: migrated in mid-run, or refused with the way out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.errors import VersionError
from parley.learner.storage import statements
from parley.learner.storage.run_store import RunStore
from tests.support.cluster import asgi_learner, party_apps, submit, watch
from tests.support.intercepted import Intercepted, pass_on
from tests.support.outage import SameNoise, SameNoises
from tests.support.rounds import run_spec
from tests.support.secure_cluster import Hang, Rehearsal, SecureCluster, charges, due

NEWEST = statements.STORE_SCHEMA.version
NEXT = replace(
    statements.STORE_SCHEMA,
    version=NEWEST + 1,
    migrations={
        **statements.STORE_SCHEMA.migrations,
        NEWEST + 1: ("ALTER TABLE replies ADD COLUMN note TEXT NOT NULL DEFAULT ''",),
    },
)


async def test_a_store_is_migrated_in_mid_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SecureCluster(tmp_path, n_parties=2)
    noises = {name: SameNoise(index) for index, name in enumerate(cluster.names)}
    async with party_apps(cluster, noises) as apps:
        parties = {name: Intercepted(httpx.ASGITransport(app)) for name, app in apps.items()}
        parties["party-1"].intercept = hang = Hang("/rounds/4")
        async with asgi_learner(cluster.learner_settings(key_holders=[]), lambda name: parties[name]) as client:
            run = await submit(client)
            await hang.reached.wait()
        parties["party-1"].intercept = pass_on
        monkeypatch.setattr(statements, "STORE_SCHEMA", NEXT)
        async with asgi_learner(cluster.learner_settings(key_holders=[]), lambda name: parties[name]) as client:
            assert (await watch(client, run))[-1][1]["state"] == "completed"
            model = (await client.get(f"/v1/runs/{run}/model")).json()
    spec = run_spec(cluster)
    twin = await Rehearsal(cluster, spec, SameNoises(2)).weights()
    assert np.array(model["weights"]).tobytes() == twin
    assert charges(cluster, run) == due(spec)
    with closing(sqlite3.connect(cluster.root / "learner" / "learner.sqlite")) as store:
        assert store.execute("PRAGMA user_version").fetchone() == (NEWEST + 1,)
        assert store.execute("SELECT count(note) FROM replies").fetchone() == (10,)
    print("store migrated after round 3 of 10: same model bit for bit, charges = price")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            f"PRAGMA user_version = {NEWEST + 1}",
            f"is a learner's store of version {NEWEST + 1}; this Parley reads 2 to {NEWEST}. Nothing in it was changed",
        ),
        ("PRAGMA application_id = 7", "is not a learner's store"),
    ],
)
def test_a_store_of_an_unknown_version_is_refused(tmp_path: Path, change: str, words: str) -> None:
    path = tmp_path / "learner.sqlite"
    RunStore(path).close()
    with closing(sqlite3.connect(path)) as store:
        store.execute(change)
    for _ in range(2):  # and refused again: the lock was let go
        with pytest.raises(VersionError, match=words):
            RunStore(path)
