"""An old copy of the ledger, put back, is refused: by the head file beside it, or by a learner's receipt."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from starlette.testclient import TestClient

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import RECEIPT_HEADER as RECEIPT
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.ledgers import make_ledger
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

Copy = Callable[[Path, Path], None]


def copy_files(state: Path, old: Path) -> None:
    """The database as its files."""
    for path in state.glob("ledger.db*"):
        shutil.copy(path, old / path.name)


def copy_online(state: Path, old: Path) -> None:
    """The database through SQLite's own backup, while the party runs."""
    with closing(sqlite3.connect(state / "ledger.db")) as source, closing(sqlite3.connect(old / "ledger.db")) as target:
        source.backup(target)


def copy_all(state: Path, old: Path) -> None:
    """The whole directory, the head file with it: only receipts can tell."""
    for path in state.iterdir():
        shutil.copy(path, old / path.name)


def put_back(old: Path, state: Path) -> None:
    """Replace the database by the copy; files that the copy does not have are gone, but for the head file."""
    for path in state.glob("ledger.db*"):
        path.unlink()
    for path in old.iterdir():
        shutil.copy(path, state / path.name)


def refused_at_start(cluster: Cluster) -> bool:
    """Whether the party does not start."""
    try:
        with TestClient(create_party_app(cluster.party_settings("party-1"))):
            return False
    except LedgerError:
        return True


def refused_by_receipt(cluster: Cluster, receipt: str) -> bool:
    """Whether the party starts, and refuses the next proposal of a learner that holds a newer receipt."""
    return answer_to(cluster, receipt) == (503, "urn:parley:problem:ledger-refused")


def answer_to(cluster: Cluster, receipt: str) -> tuple[int, str | None]:
    """Status and kind of problem of the answer to a proposal that shows a receipt."""
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        response = propose(client, run_spec(cluster), "next", **{RECEIPT: receipt})
        return response.status_code, response.json().get("type")


def test_restored_copies_are_refused(tmp_path: Path) -> None:
    refused = []
    for case, (copy, at_round) in enumerate(
        (copy, at) for copy in (copy_files, copy_online, copy_all) for at in (0, 1, 3)
    ):
        cluster = Cluster(tmp_path / f"case-{case}", n_parties=1)
        state, old = cluster.root / "party-1", cluster.root / "old"
        old.mkdir()
        with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
            propose(client, run_spec(cluster)).raise_for_status()
            for round in range(1, 6):
                if round == at_round + 1:
                    copy(state, old)
                receipt = ask(client, round, weights(cluster, round)).raise_for_status().headers[RECEIPT]
        put_back(old, state)
        refused.append(copy is not copy_all or refused_by_receipt(cluster, receipt))
        refused.append(refused_at_start(cluster))  # once it was shown a later receipt, it does not forget it
    assert all(refused)
    print(f"restored copies refused: all ({len(refused)})")


def test_a_lost_directory_is_refused_by_a_receipt(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        receipt = ask(client, 1, weights(cluster, 1)).headers[RECEIPT]
    shutil.rmtree(tmp_path / "party-1")
    assert refused_at_start(cluster), "a ledger is made by parley-party init alone"
    make_ledger(cluster.party_settings("party-1"))
    assert answer_to(cluster, receipt) == (422, "urn:parley:problem:invalid-receipt"), "its key was lost as well"


def test_the_ledger_itself_is_not_refused(tmp_path: Path) -> None:
    """The control: a restart without a restored copy is let in, and so is a database copied and put back at once."""
    cluster = Cluster(tmp_path, n_parties=1)
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        receipt = ask(client, 1, weights(cluster, 1)).headers[RECEIPT]
    (tmp_path / "old").mkdir()
    copy_all(tmp_path / "party-1", tmp_path / "old")
    put_back(tmp_path / "old", tmp_path / "party-1")
    assert not refused_at_start(cluster)
    assert not refused_by_receipt(cluster, receipt)


def test_a_copy_put_under_a_running_party_is_refused(tmp_path: Path) -> None:
    """Its file is replaced, byte for byte, in place, as a restore of a volume would."""
    cluster = Cluster(tmp_path, n_parties=1)
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        (tmp_path / "old").mkdir()
        copy_online(tmp_path / "party-1", tmp_path / "old")
        ask(client, 1, weights(cluster, 1)).raise_for_status()
        with (
            closing(sqlite3.connect(tmp_path / "old" / "ledger.db")) as source,
            closing(sqlite3.connect(tmp_path / "party-1" / "ledger.db")) as target,
        ):
            source.backup(target)
        assert ask(client, 1, weights(cluster, 2)).status_code == 503
