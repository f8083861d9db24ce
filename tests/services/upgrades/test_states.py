"""States that earlier versions left in mid-run: opened in place, gone on with, or refused with the way out.

`scripts/make_state.py` made them. Each version was stopped with two completed runs, and a secure sum and a plain run in
progress. They are named by the day of the checkout; after a release, by the version.
"""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.errors import InvalidInputError, ParleyError, VersionError
from parley.common.files.studies import read_study
from parley.common.privacy.noise import SystemNoise
from parley.common.wire.party_api import BudgetReport
from parley.learner.api.app import create_learner_app
from parley.learner.execution import engine
from parley.learner.settings import LearnerSettings
from parley.learner.storage.run_store import RunStore
from parley.party.answers.party import budget_of
from parley.party.api.app import create_party_app
from parley.party.keyholder import journal
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.journal import Anchors, Journal, recover_journal
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.ledger import ledger
from parley.party.ledger.ledger import Ledger, create_ledger
from parley.party.settings import PartySettings
from tests.support.cluster import running
from tests.support.lines import line_over
from tests.support.secure_cluster import KnownKeys

STATES = Path(__file__).parents[2] / "data" / "states"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in STATES.glob("*.tar.xz") if path.stem != "rows.tar")
READ_NO_MORE = ("2026-11-21", "2026-11-22")
"""States that are refused in part: ledgers that were no chains yet, and studies in an older form."""
SUMS_END = ("2026-11-23", "2026-11-25", "2026-11-26")
"""States whose secure sums end: the key holder's journal was bound to no place yet."""
RENAMED = ("2026-11-21", "2026-11-22", "2026-11-23")
"""States whose parties' settings say ``data.path``."""
PARTIES = ("hospital-a", "hospital-b", "hospital-c")


@dataclass
class Left:
    """What a version left in the present folder; ``said`` is what its services said of it."""

    name: str
    said: Mapping[str, Any]

    @classmethod
    def unpack(cls, name: str, folder: Path) -> Left:
        """Unpack a state, as a person finds it."""
        for packed in ("rows", name):
            with tarfile.open(STATES / f"{packed}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
        return cls(name, json.loads((folder / "said.json").read_text()))

    def party(self, name: str) -> PartySettings:
        """A party's settings; a key with an older name is refused by its new name, and renamed."""
        path = Path("config", f"{name}.toml")
        if self.name in RENAMED:
            with pytest.raises(InvalidInputError, match="data: path is called source now: write the same value as sou"):
                PartySettings.load(path)
            path.write_text(re.sub("^path = ", "source = ", path.read_text(), flags=re.MULTILINE))
        return PartySettings.load(path)

    @property
    def key_holder(self) -> KeyHolderSettings:
        """The key holder's settings."""
        return KeyHolderSettings.load(Path("config", "key-holder.toml"))

    @property
    def learner(self) -> LearnerSettings:
        """The learner's settings."""
        return LearnerSettings.load(Path("config", "learner.toml"))

    @asynccontextmanager
    async def peers(self) -> AsyncIterator[dict[str, httpx.AsyncBaseTransport]]:
        """The parties and the key holder, by name."""
        async with AsyncExitStack() as stack:
            apps = {name: create_party_app(self.party(name), SystemNoise) for name in PARTIES}
            apps["key-holder"] = create_key_holder_app(self.key_holder, KnownKeys(0, 1))
            for app in apps.values():
                await stack.enter_async_context(running(app))
            yield {name: httpx.ASGITransport(app) for name, app in apps.items()}

    @asynccontextmanager
    async def user(self, peers: Mapping[str, httpx.AsyncBaseTransport]) -> AsyncIterator[httpx.AsyncClient]:
        """A user's client of the learner, which takes its runs up at once."""
        headers = bearer("user.token")
        app = create_learner_app(self.learner, lambda entry: line_over(entry, peers[entry.name]))
        async with running(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), headers=headers) as client:
            client.base_url = httpx.URL("http://learner")
            yield client

    async def budget(self, name: str, peers: Mapping[str, httpx.AsyncBaseTransport]) -> dict[str, Any]:
        """What a party tells its learner of its budget."""
        headers = bearer(f"learner/{name}.token")
        async with httpx.AsyncClient(transport=peers[name], headers=headers) as client:
            budget: dict[str, Any] = (await client.get("http://party/v1/budget")).json()
        return budget


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token from the folder of secrets."""
    return {"Authorization": f"Bearer {Path('secrets', token).read_text().strip()}"}


@pytest.fixture
def left(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    """A state in the present folder, a day after it was left; as if where it was written, if its version noted that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Anchors, "holds", lambda _, anchor: anchor is not None)
    unpacked = Left.unpack(request.param, tmp_path)
    created = max(datetime.fromisoformat(run["created"]) for run in unpacked.said["runs"].values())
    for module in (ledger, journal):  # runs and sessions that nobody asks about for a month expire
        monkeypatch.setattr(module, "_now", lambda: int(created.timestamp()) + 86_400)
    monkeypatch.setattr(engine, "_seconds_since", lambda _pause: 3600.0)  # in which patience is not spent
    return unpacked


async def until_ended(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """All runs by identifier, once each has ended."""
    async with asyncio.timeout(60):
        while True:
            runs = {run["id"]: run for run in (await client.get("/v1/runs")).json()["runs"]}
            if all(run["state"] in {"completed", "failed"} for run in runs.values()):
                return runs
            await asyncio.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("left", [name for name in NAMES if name not in READ_NO_MORE], indirect=True)
async def test_runs_that_an_earlier_version_began_go_on(left: Left) -> None:
    async with left.peers() as peers:
        for name, said in left.said["budgets"].items():
            budget = await left.budget(name, peers)
            before = {"epsilon_nonadaptive": said["epsilon_spent"]} | said  # as versions without an odometer say it
            for part in ("epsilon_nonadaptive", "epsilon_reserved", "delta_spent", "epsilon_limit"):
                assert budget[part] == pytest.approx(before[part], abs=2e-6), (name, part)
        async with left.user(peers) as client:
            runs = await until_ended(client)
            for run, said in left.said["models"].items():
                assert (await client.get(f"/v1/runs/{run}/model")).json()["weights"] == said["weights"]
    assert runs.keys() == left.said["runs"].keys()
    for name, run in runs.items():
        before = left.said["runs"][name]
        assert before["rounds"]["done"] <= run["rounds"]["done"] or before["state"] == "completed"
        if left.name in SUMS_END and before["secure_sum"] != "none" and before["state"] != "completed":
            assert run["problem"]["detail"] == (
                "key-holder refused: the session has ended and its key is destroyed: an older version of Parley began "
                "it, whose journal cannot be told from an old copy of it. Begin the run again"
            )
        else:
            assert (run["state"], run["rounds"]["done"]) == ("completed", run["rounds"]["of"])
    print(
        f"{left.name}: budgets and models as before, {sum(r['state'] == 'completed' for r in runs.values())} of 4 ended"
    )


@pytest.mark.parametrize("left", ["2026-11-22"], indirect=True)
def test_studies_in_an_older_form_are_to_be_made_again(left: Left) -> None:
    party = left.party("hospital-a")
    assert party.study is not None
    for path in (party.study, *Path("data", "learner", "studies").iterdir()):
        with pytest.raises(InvalidInputError, match=r"study of an older version.*parley-learner study init"):
            read_study(path)
    with pytest.raises(
        VersionError, match=r"version 1; this Parley reads 2 to \d+. Nothing in it was changed. Its runs"
    ):
        RunStore(Path("state", "learner", "learner.sqlite"))
    with closing(Ledger(party.state, party.identity, budget_of(party.policy))) as opened:  # the ledger goes on
        spent = left.said["budgets"]["hospital-a"]["epsilon_spent"]
        assert BudgetReport.of(opened.account()).epsilon_nonadaptive == pytest.approx(spent, abs=2e-6)
        key = next(key for key, _ in opened.books.open_runs())
        with pytest.raises(ParleyError, match="an older version of Parley approved this run"):
            opened.consents.find(*key)
    with closing(Journal(left.key_holder.state, left.key_holder.identity)) as journal:
        assert len(journal.active()) == 1
        assert len(journal.end_copied()) == 1


@pytest.mark.parametrize("left", ["2026-11-21"], indirect=True)
def test_files_of_the_first_versions_are_refused_with_the_way_out(left: Left) -> None:
    party, holder = left.party("hospital-a"), left.key_holder
    account = budget_of(party.policy)

    def refused(way_out: str) -> Any:  # noqa: ANN401 -- pytest's context
        return pytest.raises(
            VersionError, match=f"the first versions of Parley wrote it. Nothing .* changed. {way_out}"
        )

    with refused("Its runs are of studies in an older form"):
        RunStore(Path("state", "learner", "learner.sqlite"))
    with refused(r"Read what it has spent .* parley-party init"):
        Ledger(party.state, party.identity, account)
    aside = Path("aside")
    aside.mkdir()
    for path in party.state.iterdir():
        path.rename(aside / path.name)
    create_ledger(party.state, party.identity, account.adjacency)
    Ledger(party.state, party.identity, account).close()
    with refused("Run parley-party keyholder recover"):
        Journal(holder.state, holder.identity)
    assert recover_journal(holder.state, holder.identity) == []
    Journal(holder.state, holder.identity).close()
