"""The key holder's journal: made once, receipts both ways, old copies refused, and a new one where it is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from phe import PaillierPrivateKey
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import RECEIPT_HEADER as RECEIPT
from parley.common.protocol.receipts import read_receipt
from parley.common.secure_sum.in_process import LocalSession
from parley.party.cli.main import party_app
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.journal import (
    Journal,
    JournalBegun,
    JournalBooks,
    JournalRecord,
    RoundOpened,
    SessionBegun,
    SessionEnded,
    create_journal,
    recover_journal,
    spell,
)
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.keyholder.vault import Vault
from tests.support.keyholder import (
    LEARNER,
    TOKEN,
    FreshKeys,
    ask_to_open,
    begin,
    call,
    keyholder_settings,
    make_journal,
    open_round,
)

VALUES = np.arange(5)


def served(settings: KeyHolderSettings) -> TestClient:
    return TestClient(create_key_holder_app(settings, FreshKeys()))


def open_some(client: httpx.Client, session: LocalSession, round: int) -> httpx.Response:
    """Have a round of a session opened."""
    query = session.ask(round)
    for name in session.parties:
        session.learner.receive(session.contribute(name, query, VALUES))
    return open_round(client, session, round, ask_to_open(session, list(session.parties)))


def look(client: httpx.Client, session: LocalSession, receipt_shown: str | None = None) -> httpx.Response:
    """Ask where a session stands, showing a receipt."""
    headers = {"Authorization": f"Bearer {TOKEN}"} | ({RECEIPT: receipt_shown} if receipt_shown else {})
    return client.get(f"/v1/sessions/{session.roster.session}", headers=headers)


def is_refused(response: httpx.Response) -> bool:
    return response.status_code == 503 and response.json()["type"].endswith(":ledger-refused")


def test_the_books_keep_no_opening_of_a_session_that_has_ended() -> None:
    books = JournalBooks()
    opened = RoundOpened("ann", "session", 1, "digest")
    records: list[JournalRecord] = [
        JournalBegun("holder", "key", "nonce", []),
        SessionBegun("ann", "session", "ff"),
        opened,
    ]
    for number, record in enumerate(records, 1):
        books.add(number, spell(record, 1000))
    book = books.sessions["ann", "session"]
    assert (book.last, book.opened) == ((3, opened), 1)
    books.add(4, spell(SessionEnded("ann", "session", "learner"), 1001))
    assert (book.last, book.opened, book.end) == (None, 1, "learner")


def test_a_receipt_that_is_none_or_forged_is_the_askers_fault(tmp_path: Path) -> None:
    with served(keyholder_settings(tmp_path)) as client:
        session = begin(client)
        genuine = look(client, session).headers[RECEIPT]
        for other in ("junk", genuine[:-8] + "AAAAAAA="):
            refused = look(client, session, other)
            assert (refused.status_code, refused.json()["type"]) == (422, "urn:parley:problem:invalid-receipt")
        assert look(client, session, genuine).is_success


def test_every_answer_has_a_receipt_that_goes_on_from_the_one_shown(tmp_path: Path) -> None:
    settings = keyholder_settings(tmp_path)
    with served(settings) as client:
        session = begin(client)
        first = look(client, session).headers[RECEIPT]
        opened = open_some(client, session, 1)
        assert read_receipt(opened.headers[RECEIPT]).head.count == read_receipt(first).head.count + 1
        for method, path in (("GET", "/v1/keyholder"), ("GET", "/v1/receipts"), ("DELETE", "/v1/sessions/" + "0" * 32)):
            response = call(client, method, path)
            assert (RECEIPT in response.headers) == response.is_success, path
        receipt = read_receipt(look(client, session, first).headers[RECEIPT])
        assert (receipt.signer, receipt.key, receipt.to) == ("key-holder", settings.identity.key, "learner")
        assert receipt.shown == read_receipt(first).head


@pytest.mark.parametrize("with_head", [False, True], ids=["the database alone", "the whole directory"])
def test_an_old_copy_opens_nothing(tmp_path: Path, with_head: bool) -> None:  # noqa: FBT001 -- a parameter
    settings, old = keyholder_settings(tmp_path / "state"), tmp_path / "old"
    with served(settings) as client:
        session = begin(client)
        open_some(client, session, 1)
    shutil.copytree(settings.state, old)
    with served(settings) as client:
        newest = open_some(client, session, 2).headers[RECEIPT]
    if not with_head:
        shutil.copy(settings.state / "keyholder.head", old)
    shutil.rmtree(settings.state)
    shutil.copytree(old, settings.state)
    if with_head:
        with served(settings) as client:
            assert look(client, session).is_success, "nobody has shown it anything yet"
            assert is_refused(look(client, session, newest))
            assert is_refused(look(client, session)), "every caller from then on"
    with pytest.raises(LedgerError, match="older than the one last written"):
        served(settings)


def test_without_a_journal_it_does_not_start(tmp_path: Path) -> None:
    settings = keyholder_settings(tmp_path)
    with pytest.raises(LedgerError, match="already"):
        create_journal(settings.state, settings.identity)
    (tmp_path / "keyholder.head").unlink()
    with pytest.raises(LedgerError, match=r"only keyholder\.db is left: run parley-party keyholder recover"):
        served(settings)
    (tmp_path / "keyholder.db").unlink()
    with pytest.raises(LedgerError, match="parley-party keyholder init"):
        served(settings)
    make_journal(settings)
    with pytest.raises(LedgerError, match="restore its key"):
        Journal(settings.state, LEARNER)


def lose_nothing(state: Path) -> None:
    """Leave the journal as it is."""


def damage(state: Path) -> None:
    """Damage the file, so that only the first record remains."""
    path = state / "keyholder.db"
    content = bytearray(path.read_bytes())
    content[-100:] = bytes(100)
    path.write_bytes(content)


def lose(state: Path) -> None:
    """Delete the journal's files."""
    for path in state.glob("keyholder.*"):
        path.unlink()


@pytest.mark.parametrize("harm", [lose_nothing, damage, lose])
def test_a_recovered_key_holder_has_ended_all_sessions(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    settings = keyholder_settings(tmp_path)
    with served(settings) as client:
        session = begin(client)
        newest = open_some(client, session, 1).headers[RECEIPT]
    harm(tmp_path)
    assert list((tmp_path / "keys").iterdir())
    recover_journal(tmp_path, settings.identity, [newest] if harm is lose else [])
    with served(settings) as client:
        assert not list((tmp_path / "keys").iterdir()), "the keys are destroyed"
        response = look(client, session, newest)
        assert response.status_code == 404
        again = call(client, "GET", "/v1/keyholder")
        assert read_receipt(again.headers[RECEIPT]).ledger != read_receipt(newest).ledger
    recover_journal(tmp_path, settings.identity)
    with served(settings) as client:
        assert look(client, session, newest).status_code == 404, "what it had replaced stays replaced"


def test_a_new_journal_does_not_answer_for_one_that_it_knows_nothing_of(tmp_path: Path) -> None:
    settings = keyholder_settings(tmp_path)
    with served(settings) as client:
        session = begin(client)
        newest = open_some(client, session, 1).headers[RECEIPT]
    lose(tmp_path)
    make_journal(settings)
    with served(settings) as client:
        assert is_refused(look(client, session, newest))


def test_the_commands_make_and_recover_a_journal(tmp_path: Path) -> None:
    settings = keyholder_settings(tmp_path / "state")
    config = tmp_path / "keyholder.toml"
    config.write_text(
        f'name = "key-holder"\nstate = "{tmp_path}/state"\nsecret = "sixteen bytes or more"\nkey_bits = 2048\n'
        f'[[learners]]\nname = "learner"\ntoken_hash = "{settings.learners[0].token_hash}"\n'
        f'public_key = "{LEARNER.key}"\n'
    )

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(party_app, ["keyholder", *words, "--config", str(config)])
        return result.exit_code, result.output

    assert "already" in run("init")[1]
    assert run("backup", str(tmp_path / "copy"))[0] == 0
    assert "a backup goes into an empty state" in " ".join(run("restore", str(tmp_path / "copy"))[1].split())
    status, printed = run("check", "--format", "json")
    assert (status, json.loads(printed)["journal"]["entries"]) == (0, 1)
    assert "1 entry in" in run("check")[1]
    lose(settings.state)
    assert run("init")[0] == 0
    assert "say --yes" in run("recover")[1]
    assert not (settings.state / "replaced-1").exists()
    status, printed = run("recover", "--yes", "--format", "json")
    assert (status, len(list((settings.state / "replaced-1").iterdir()))) == (0, 2)
    assert "replaced" in printed


def test_a_key_file_that_cannot_be_deleted_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, keys = Vault(tmp_path, b"sixteen bytes or more"), [FreshKeys().take() for _ in range(3)]
    for key in keys:
        vault.store(key)
    stuck = vault._path(keys[0].public_key.n)
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with capture_logs() as logs:
        for key in keys[:2]:
            vault.destroy(key.public_key.n)
        vault.keep_only(())
        vault.retry()
    assert list(tmp_path.iterdir()) == [stuck]
    assert {log["event"] for log in logs} == {"key file not deleted"}
    monkeypatch.undo()
    vault.retry()
    assert not list(tmp_path.iterdir())


def test_a_process_that_starts_leaves_the_key_of_a_session_that_another_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is on the disk before its session is in the journal, and the other sweeps while neither is half done."""
    settings, store = keyholder_settings(tmp_path), Vault.store
    starting: list[Future[None]] = []

    def start() -> None:
        with served(settings):
            pass

    def stored(vault: Vault, key: PaillierPrivateKey) -> None:
        store(vault, key)
        starting.append(others.submit(start))
        with pytest.raises(TimeoutError):
            starting[0].result(1.0)  # it waits for the journal

    with ThreadPoolExecutor(1) as others, served(settings) as client:
        monkeypatch.setattr(Vault, "store", stored)
        session = begin(client)
        starting[0].result(30)
    with served(settings) as client:
        assert open_some(client, session, 1).is_success, "it reads the key from the disk"


def test_sums_of_a_round_that_is_over_are_erased(tmp_path: Path) -> None:
    settings = keyholder_settings(tmp_path)
    with served(settings) as client:
        session = begin(client)
        for round in (1, 2):
            open_some(client, session, round)
        with closing(Journal(tmp_path, settings.identity)) as journal:
            (book,) = journal._books.sessions.values()
            assert book.last is not None
            assert journal.chain.attachment(book.last[0], "sums")
            with pytest.raises(LedgerError):
                journal.chain.attachment(book.last[0] - 1, "sums")
