"""A learner's backup, brought back: all that it had, and nothing that would claim too much."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from parley.common.service.tokens import hash_token
from parley.learner.cli.main import learner_app
from parley.learner.storage.backups import learner_state
from parley.learner.storage.roster_store import Invited, JoinedMember, RosterStore
from parley.learner.storage.run_store import RunStore
from tests.support import toml
from tests.support.cluster import Cluster, submit, upload, watch
from tests.support.intercepted import Intercepted, learner_of

NOW = datetime.now(UTC)


@pytest.fixture
def joining(cluster: Cluster) -> dict[str, Any]:
    """An authority whose files lie beside the state."""
    for name in ("authority.pem", "authority.key"):
        (cluster.root / name).write_text(name)
        (cluster.root / name).chmod(0o600)
    return {
        "url": "http://learner",
        "authority": str(cluster.root / "authority.pem"),
        "authority_key": str(cluster.root / "authority.key"),
    }


def command(cluster: Cluster, joining: dict[str, Any] | None, *words: str | Path) -> Result:
    settings = cluster.learner_settings(joining=joining)
    path = toml.write(cluster.root / "learner.toml", settings.model_dump())
    return CliRunner().invoke(learner_app, [*map(str, words), "--config", str(path)])


def fill_roster(cluster: Cluster) -> None:
    """A member, and an invitation."""
    store = RosterStore(cluster.root / "learner" / "roster")
    terms = {"role": "party", "secret_hash": hash_token("secret"), "expires": NOW + timedelta(days=1), "studies": ()}
    store.invite(Invited.model_validate(terms | {"name": "bob"}))
    member = terms | {"name": "ann", "public_key": "0" * 64, "connects_with": hash_token("ann"), "token": "x" * 20}
    store.keep(JoinedMember.model_validate(member | {"joined": NOW, "confirmed": True}))


async def test_a_learner_has_all_again_but_what_would_claim_too_much(
    cluster: Cluster, parties: dict[str, Intercepted], joining: dict[str, Any]
) -> None:
    async with learner_of(cluster, parties) as client:
        run = await submit(client)
        await watch(client, run)
        digest = (await upload(client, cluster.public_table()))["digest"]
        model = (await client.get(f"/v1/runs/{run}/model")).json()
        going_on = await submit(client, parameters={"n_rounds": 60})
        fill_roster(cluster)
        state = cluster.root / "learner"
        key = (state / "identity.key").read_bytes()
        backup = command(cluster, joining, "backup", cluster.root / "copy")
        assert backup.exit_code == 0, backup.output
        refused = command(cluster, joining, "restore", cluster.root / "copy")
        assert (refused.exit_code, "a backup goes into an empty one" in refused.stderr) == (3, True)
    shutil.rmtree(state)
    (cluster.root / "authority.key").unlink()
    done = command(cluster, joining, "restore", cluster.root / "copy", "--format", "json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["unfinished"], facts["members"], facts["invitations"]) == ([going_on], ["ann"], ["bob"])
    assert (cluster.root / "authority.key").read_text() == "authority.key"
    assert (state / "identity.key").read_bytes() == key
    roster = RosterStore(state / "roster")
    assert (list(roster.members), list(roster.invited)) == (["ann"], [])
    shutil.rmtree(state / "roster")  # nobody of it connects here
    async with learner_of(cluster, parties) as client:
        assert (await client.get(f"/v1/runs/{run}/model")).json() == model
        assert (await client.get("/v1/public")).json()["rows"][0]["digest"] == digest
        assert (await watch(client, going_on))[-1][1]["state"] == "completed", "with the answers that were given"
        assert (await client.get("/v1/parties/party-1/receipt")).is_success, "it has answered since"


async def test_an_old_receipt_is_not_handed_out(cluster: Cluster, parties: dict[str, Intercepted]) -> None:
    async with learner_of(cluster, parties) as client:
        await watch(client, await submit(client))
        assert (await client.get("/v1/parties/party-1/receipt")).is_success
    assert command(cluster, None, "backup", cluster.root / "copy").exit_code == 0
    shutil.rmtree(cluster.root / "learner")
    assert command(cluster, None, "restore", cluster.root / "copy").exit_code == 0
    async with learner_of(cluster, parties) as client:
        refused = await client.get("/v1/parties/party-1/receipt")
        assert refused.status_code == 409
        assert "a later receipt may be lost" in refused.json()["detail"]
        await watch(client, await submit(client))
        assert (await client.get("/v1/parties/party-1/receipt")).is_success


def test_a_restore_that_was_interrupted_is_repeated(cluster: Cluster, joining: dict[str, Any]) -> None:
    refused = command(cluster, joining, "backup", cluster.root / "copy")
    assert (refused.exit_code, "there is no learner's state" in refused.stderr) == (3, True)
    state = cluster.root / "learner"
    RunStore(state / "learner.sqlite").close()
    cluster.learner_settings().signing_key()
    assert command(cluster, joining, "backup", cluster.root / "copy").exit_code == 0
    assert [*learner_state(cluster.learner_settings(joining=joining)).elsewhere] == ["authority.pem", "authority.key"]
    (state / "learner.sqlite").unlink()  # it comes last
    assert command(cluster, joining, "restore", cluster.root / "copy").exit_code == 0
    (state / "learner.sqlite").unlink()
    (state / "identity.key").write_text("another")
    refused = command(cluster, joining, "restore", cluster.root / "copy")
    assert (refused.exit_code, "is another file than the backup's" in refused.stderr) == (3, True)
