"""The way out when a ledger is lost, damaged or an old copy: a new one, which charges the worst that may be spent."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from parley.common.errors import LedgerError
from parley.common.privacy.account import Cost
from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.service.tokens import hash_token
from parley.party.answers.party import open_store
from parley.party.api.app import create_party_app
from parley.party.cli.main import party_app
from parley.party.settings import PartySettings
from tests.support.cluster import LEARNER, Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=1, policy={"epsilon": 30.0, "max_epsilon_per_run": 10.0})


def settings_of(cluster: Cluster, *learners: str) -> PartySettings:
    """The party's settings, which know these learners beside the usual one."""
    callers = [{"name": name, "token_hash": "sha256:" + f"{index:064x}"} for index, name in enumerate(learners)]
    usual = cluster.party_settings("party-1").learners[0].model_dump()
    return cluster.party_settings("party-1", learners=[usual, *callers])


def serving(cluster: Cluster) -> TestClient:
    return TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING)


def half_a_run(cluster: Cluster, client: httpx.Client, run: str, rounds: Sequence[int] = (1, 2)) -> str:
    """A run of ten rounds, some of them answered: the newest receipt."""
    receipt = propose(client, run_spec(cluster, n_rounds=10), run).raise_for_status().headers[RECEIPT_HEADER]
    for round in rounds:
        receipt = ask(client, round, weights(cluster, round), run).raise_for_status().headers[RECEIPT_HEADER]
    return receipt


def recover(cluster: Cluster, *words: object, learners: Sequence[str] = ()) -> Result:
    """Run the command with a settings file."""
    path = cluster.root / "party.toml"
    callers = [
        ("learner", "sha256:" + "0" * 64),
        *((name, f"sha256:{index + 1:064x}") for index, name in enumerate(learners)),
    ]
    tables = "".join(f'[[learners]]\nname = "{name}"\ntoken_hash = "{token}"\n' for name, token in callers)
    path.write_text(
        f'name = "party-1"\nstate = "{cluster.root}/party-1"\nstudy = "{cluster.study_path}"\n'
        f'[data]\nsource = "{cluster.root}/party-1.csv"\n'
        f"[policy]\nepsilon = 30.0\ndelta = 0.1\nmax_epsilon_per_run = 10.0\nmax_delta_per_run = 0.1\n{tables}"
    )
    return CliRunner().invoke(party_app, [str(words[0]), *map(str, words[1:]), "--config", str(path)])


def written(cluster: Cluster, receipt: str) -> Path:
    path = cluster.root / "receipts"
    path.write_text(receipt + "\n")
    return path


def test_an_old_copy_is_replaced_by_a_ledger_that_charges_what_it_forgot(cluster: Cluster) -> None:
    state = cluster.root / "party-1"
    with serving(cluster) as client:
        half_a_run(cluster, client, "first")
        shutil.copytree(state, cluster.root / "old")
        receipt = half_a_run(cluster, client, "second")
        worst = open_store(cluster.party_settings("party-1"))
        account = worst.account()
        worst.close()
    shutil.rmtree(state)
    shutil.copytree(cluster.root / "old", state)
    with serving(cluster) as client:
        refused = propose(client, run_spec(cluster), "third", **{RECEIPT_HEADER: receipt})
        assert refused.json()["type"].endswith(":ledger-refused")
        assert "parley-party recover" in refused.json()["detail"]
    with pytest.raises(LedgerError, match="restored copy"):
        serving(cluster)
    recovers(cluster, receipt, account.spent + account.reserved)


def recovers(cluster: Cluster, receipt: str, worst: Cost) -> None:
    """The command first plans, then does it; the new ledger is taken by who holds the old one's receipt."""
    planned = recover(cluster, "recover", "--receipt", written(cluster, receipt))
    assert planned.exit_code == 0, planned.output
    assert "nothing was changed" in planned.stderr
    with pytest.raises(LedgerError):
        serving(cluster)
    done = recover(cluster, "recover", "--receipt", written(cluster, receipt), "--yes")
    assert done.exit_code == 0, done.output
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent == worst, "reserved or not, it counts as spent"
        assert ledger.books.begun is not None
        assert [count for count, _ in ledger.books.begun.recovered.values()] == [9]
    assert (cluster.root / "party-1" / "replaced-1" / "ledger.db").exists()
    with serving(cluster) as client:
        again = propose(client, run_spec(cluster), "third", **{RECEIPT_HEADER: receipt})
        assert again.is_success, "the receipt of the ledger that was replaced is accounted for"
        assert ask(client, 3, weights(cluster, 3), "second").status_code == 404, "runs in progress end"


def test_a_later_receipt_than_was_accounted_for_is_refused_still(cluster: Cluster) -> None:
    with serving(cluster) as client:
        early = half_a_run(cluster, client, "first")
        late = half_a_run(cluster, client, "second")
    shutil.rmtree(cluster.root / "party-1" / "ledger.db", ignore_errors=True)
    (cluster.root / "party-1" / "ledger.db").unlink()
    assert recover(cluster, "recover", "--receipt", written(cluster, early), "--yes").exit_code == 0
    with serving(cluster) as client:
        refused = propose(client, run_spec(cluster), "third", **{RECEIPT_HEADER: late})
        assert refused.json()["type"].endswith(":ledger-refused")
    assert recover(cluster, "recover", "--receipt", written(cluster, late), "--yes").exit_code == 0
    with serving(cluster) as client:
        assert propose(client, run_spec(cluster), "third", **{RECEIPT_HEADER: late}).is_success
        assert propose(client, run_spec(cluster), "fourth", **{RECEIPT_HEADER: early}).is_success


def test_a_copy_that_was_written_on_is_charged_beside_what_it_forgot(cluster: Cluster) -> None:
    state = cluster.root / "party-1"
    with serving(cluster) as client:
        half_a_run(cluster, client, "first")
        shutil.copytree(state, cluster.root / "old")
        forgotten = half_a_run(cluster, client, "second")
    shutil.rmtree(state)
    shutil.copytree(cluster.root / "old", state)
    time.sleep(1.1)  # entries are dated to the second
    with serving(cluster) as client:  # the caller has seen no later receipt
        half_a_run(cluster, client, "third")
    assert recover(cluster, "recover", "--receipt", written(cluster, forgotten), "--yes").exit_code == 0
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent.epsilon == 4 * 10**6, "first and second, and first and third"


def test_without_every_learners_receipt_the_whole_budget_counts_as_spent(cluster: Cluster) -> None:
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
    (cluster.root / "party-1" / "ledger.db").unlink()
    done = recover(
        cluster, "recover", "--receipt", written(cluster, receipt), "--yes", "--format", "json", learners=("bob",)
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["without_receipt_of"] == ["bob"]
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().epsilon_left == 0
    with serving(cluster) as client:
        digest = cluster.study.digest
        room = client.get("/v1/budget/room", params={"study": digest, "epsilon": 1, "gdp": 1}).json()
        assert room == {"fits": False}
        assert client.get("/v1/budget").json()["epsilon_spent"] == 0, "which no run of this learner's has spent"
        assert propose(client, run_spec(cluster, epsilon=0.01), "next").json()["type"].endswith(":budget-exhausted")


def test_a_receipt_that_was_sealed_with_a_lost_key_counts_as_not_shown(cluster: Cluster) -> None:
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
    shutil.rmtree(cluster.root / "party-1")
    done = recover(cluster, "recover", "--receipt", written(cluster, receipt), "--yes")
    assert done.exit_code == 0, done.output
    assert (
        "the receipt of learner says what was spent in a part that is sealed with another identity key" in done.stderr
    )
    assert "no receipt of learner: the whole budget counts as spent" in done.stderr
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent.epsilon == 30 * 10**6
    with serving(cluster) as client:
        again = propose(client, run_spec(cluster), "next", **{RECEIPT_HEADER: receipt})
        assert again.json()["type"].endswith(":budget-exhausted"), "what it shows is accounted for"


def test_a_receipt_of_somebody_else_says_nothing(cluster: Cluster) -> None:
    other = Cluster(cluster.root / "other", n_parties=2)
    with TestClient(create_party_app(other.party_settings("party-2")), headers=ASKING) as client:
        receipt = client.get("/v1/party").headers[RECEIPT_HEADER]
    for text in (receipt, "none at all"):
        refused = recover(cluster, "recover", "--receipt", written(cluster, text), "--yes")
        assert refused.exit_code == 3


def test_a_damaged_ledger_is_read_as_far_as_it_is_whole(cluster: Cluster) -> None:
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
        store = open_store(cluster.party_settings("party-1"))
        account = store.account()
        store.close()
    path = cluster.root / "party-1" / "ledger.db"
    path.write_bytes(path.read_bytes()[:4096] + bytes(4096))
    (cluster.root / "party-1" / "ledger.db-wal").unlink(missing_ok=True)
    with pytest.raises(LedgerError):
        serving(cluster)
    assert recover(cluster, "recover", "--receipt", written(cluster, receipt), "--yes").exit_code == 0
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent == account.spent + account.reserved


def test_backup_and_restore(cluster: Cluster) -> None:
    with serving(cluster) as client:
        half_a_run(cluster, client, "first")
        assert recover(cluster, "backup", cluster.root / "backup").exit_code == 0
        receipt = half_a_run(cluster, client, "second")
    key = cluster.party_settings("party-1").identity.key
    before = (cluster.root / "party-1" / "ledger.db").read_bytes()
    refused = recover(cluster, "restore", cluster.root / "backup")
    assert refused.exit_code == 3
    assert "no receipt of learner: the whole budget would count as spent, so no ledger was begun" in refused.stderr
    assert (cluster.root / "party-1" / "ledger.db").read_bytes() == before
    shutil.rmtree(cluster.root / "party-1")
    restored = recover(cluster, "restore", cluster.root / "backup", "--receipt", written(cluster, receipt))
    assert restored.exit_code == 0, restored.output
    assert cluster.party_settings("party-1").identity.key == key, "others have pinned it"
    with serving(cluster) as client:
        assert propose(client, run_spec(cluster), "third", **{RECEIPT_HEADER: receipt}).is_success
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent.epsilon == 2 * 10**6, "two runs of epsilon 1 may have been released"


def test_a_backup_of_an_earlier_version_is_brought_back(cluster: Cluster) -> None:
    """It was a folder without a manifest."""
    state, copy = cluster.root / "party-1", cluster.root / "backup"
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
        assert recover(cluster, "backup", copy).exit_code == 0
    for path in copy.iterdir():
        if path.name not in {"ledger.db", "ledger.head", "identity.key"}:
            path.unlink()
    shutil.rmtree(state)
    restored = recover(cluster, "restore", copy, "--receipt", written(cluster, receipt))
    assert restored.exit_code == 0, restored.output
    assert (state / "replaced-1" / "ledger.db").exists(), "the owner can look at the old entries still"
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert ledger.account().spent.epsilon == 10**6


def test_a_restore_that_was_interrupted_starts_no_party(cluster: Cluster) -> None:
    state, copy = cluster.root / "party-1", cluster.root / "backup"
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
        assert recover(cluster, "backup", copy).exit_code == 0
    shutil.rmtree(state)
    state.mkdir()
    for name in ("identity.key", "ledger.db"):  # the ledger is put back without its head, until a new one begins
        shutil.copy(copy / name, state / name)
    with pytest.raises(LedgerError, match=r"only ledger\.db is left: run parley-party recover"):
        serving(cluster)
    assert recover(cluster, "restore", copy, "--receipt", written(cluster, receipt)).exit_code == 0


def test_a_ledger_in_use_is_not_replaced(cluster: Cluster) -> None:
    """A service that runs would go on charging the one that was put aside."""
    with serving(cluster) as client:
        receipt = half_a_run(cluster, client, "first")
        refused = recover(cluster, "recover", "--receipt", written(cluster, receipt), "--yes")
        assert refused.exit_code == 3
        assert f"{cluster.root / 'party-1' / 'ledger.db'} is in use: stop the service first" in refused.stderr
        assert half_a_run(cluster, client, "second")
        assert "to be charged" in recover(cluster, "recover", "--receipt", written(cluster, receipt)).stdout
    done = recover(cluster, "recover", "--receipt", written(cluster, receipt), "--yes")
    assert "charged: epsilon 2" in done.stdout, "what was charged meanwhile counts"


def test_a_ledger_is_made_once(cluster: Cluster) -> None:
    again = recover(cluster, "init")
    assert again.exit_code == 3
    assert "there is a ledger" in again.stderr
    (cluster.root / "party-1" / "ledger.db").unlink()
    half = recover(cluster, "init")
    assert half.exit_code == 3, "what is left of a ledger is no reason to begin at nothing"
    with pytest.raises(LedgerError, match="recover"):
        serving(cluster)


def test_ending_and_releasing_from_the_command_line(cluster: Cluster) -> None:
    with serving(cluster) as client:
        half_a_run(cluster, client, "first")
        half_a_run(cluster, client, "second")
        assert recover(cluster, "release", "first").exit_code == 0
        assert recover(cluster, "end", "second").exit_code == 0, "while the party runs"
        assert ask(client, 3, weights(cluster, 3), "first").is_success
        assert ask(client, 3, weights(cluster, 3), "second").status_code == 409
        with open_store(cluster.party_settings("party-1")) as ledger:
            assert ledger.account().reserved == Cost(0, 0)
    assert recover(cluster, "end", "nobody").exit_code == 3


def test_policy_is_looked_at_again_in_every_round(cluster: Cluster) -> None:
    with serving(cluster) as client:
        half_a_run(cluster, client, "first")
    changed = {"policy": cluster.party_settings("party-1").policy.model_dump() | {"algorithms": ("psgd",)}}
    with TestClient(create_party_app(cluster.party_settings("party-1", **changed)), headers=ASKING) as client:
        again = ask(client, 2, weights(cluster, 2), "first")
        assert again.is_success, "what was answered is answered the same"
        refused = ask(client, 3, weights(cluster, 3), "first")
        assert (refused.status_code, refused.json()["rule"]) == (403, "algorithms")
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert len(ledger.answers()) == 2


def settings_file(cluster: Cluster, name: str) -> Path:
    """The settings file of a party."""
    path = cluster.root / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nstate = "{cluster.root}/{name}"\nstudy = "{cluster.study_path}"\n'
        f'[data]\nsource = "{cluster.root}/{name}.csv"\n'
        f"[policy]\nepsilon = 30.0\ndelta = 0.1\nmax_epsilon_per_run = 10.0\nmax_delta_per_run = 0.1\n"
        f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token(LEARNER)}"\n'
    )
    return path


def test_two_ledgers_become_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2, policy={"epsilon": 30.0, "max_epsilon_per_run": 10.0})
    first, other = settings_file(cluster, "party-1"), settings_file(cluster, "party-2")
    receipts = {}
    for name in cluster.names:
        with TestClient(create_party_app(cluster.party_settings(name)), headers=ASKING) as client:
            receipts[name] = half_a_run(cluster, client, "first")

    def run(*words: object) -> Result:
        return CliRunner().invoke(party_app, [*map(str, words)])

    planned = run("merge", other, "--config", first)
    assert (planned.exit_code, planned.stdout) == (0, "to be charged: epsilon 2, delta 2e-05\n")
    assert "nothing was changed" in planned.stderr
    for _ in range(2):  # the second finds it done
        done = run("merge", other, "--config", first, "--yes")
        assert (done.exit_code, done.stdout) == (0, "charged: epsilon 2, delta 2e-05\n"), done.output
    assert "the ledger of party-2 has ended: its party answers nothing any more; its data were not moved" in done.stderr
    assert f"next: add the studies of {other} to {first} under [[studies]], then parley-party serve" in done.stderr
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        again = propose(client, run_spec(cluster), "next", **{RECEIPT_HEADER: receipts["party-1"]})
        assert again.is_success, "the receipts of the ledger that has ended are accounted for"
        assert ask(client, 3, weights(cluster, 3), "first").status_code == 404
    for words in (["check"], ["pending"], ["end", "first"], ["accept-data"], ["recover", "--yes"]):
        refused = run(*words, "--config", other)
        assert (refused.exit_code, "this ledger has ended: it was merged into that of party-1" in refused.stderr) == (
            3,
            True,
        )
    for words in (["log"], ["log", "--by-run"], ["budget"]):
        assert run(*words, "--config", other).exit_code == 0
    for config in (first, other):
        file = config.with_suffix(".audit")
        assert run("audit", "export", file, "--config", config).exit_code == 0
        key = cluster.party_settings(config.stem).identity.key
        assert run("audit", "verify", file, "--key", key).exit_code == 0
    assert run("merge", first, "--config", other).exit_code == 3, "the other way round it is merged before"
