"""The key holder over HTTP: a session's life, restarts, and what stays on the disk."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.testclient import TestClient

from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason, StateError
from parley.common.secure_sum.messages import Opened
from parley.common.secure_sum.session import Identity
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from parley.party.keyholder import journal as journal_module
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.journal import Journal, create_journal
from parley.party.keyholder.key_pool import KeyPool
from parley.party.keyholder.sessions import Sessions
from parley.party.keyholder.settings import KeyHolderSettings, PinnedLearner
from parley.party.keyholder.vault import Vault
from tests.support.keyholder import (
    KEY_BITS,
    STRANGER,
    TOKEN,
    FreshKeys,
    ask_to_open,
    begin,
    call,
    keyholder_settings,
    new_roster,
    open_round,
    send,
)
from tests.support.metrics import metrics_of

Serve = Callable[[], AbstractContextManager[httpx.Client]]
Refused = Callable[[httpx.Response, Reason], None]
VALUES = np.array([1, -2, 3, 2**52, 0])


def test_rounds_are_summed(client: httpx.Client) -> None:
    session = begin(client, parties=4)
    for number, names in (
        (1, ["party-1", "party-2", "party-3", "party-4"]),
        (2, ["party-2", "party-4"]),
        (5, ["party-1", "party-2"]),
    ):
        query = session.ask(number)
        for name in names:
            session.learner.receive(session.contribute(name, query, VALUES))
        response = open_round(client, session, number, ask_to_open(session, names))
        assert response.status_code == 200
        total = session.learner.close([Signed.from_bytes(response.content)])
        assert total.values.tolist() == (len(names) * VALUES).tolist()
        assert total.contributors == tuple(sorted(names))
    status = call(client, "GET", f"/v1/sessions/{session.roster.session}").json()
    assert status["state"] == "serving"
    assert (status["opened"], status["roster"]) == (3, session.roster.digest)


def test_the_same_set_gets_the_same_bytes_across_restarts_and_another_is_refused(
    serve: Serve, refused: Refused
) -> None:
    with serve() as client:
        session = begin(client)
        query = session.ask(1)
        for name in session.parties:
            session.learner.receive(session.contribute(name, query, VALUES))
        first = ask_to_open(session, ["party-1", "party-2"])
        answer = open_round(client, session, 1, first).content
        assert open_round(client, session, 1, first).content == answer
    session.learner._chosen = ()  # a learner that forgets on purpose
    second = ask_to_open(session, ["party-2", "party-3"])
    with serve() as client:
        refused(open_round(client, session, 1, second), Reason.ROUND_OPENED)
        assert open_round(client, session, 1, first).content == answer


def test_sessions_begin_once_and_each_has_its_own_key(serve: Serve) -> None:
    body = {"session": "00" * 16, "key_bits": KEY_BITS}
    with serve() as client:
        first = call(client, "POST", "/v1/sessions", body)
        again = call(client, "POST", "/v1/sessions", body)
        other = call(client, "POST", "/v1/sessions", body | {"session": "01" * 16})
        strangers = call(client, "POST", "/v1/sessions", body, STRANGER)
    assert [response.status_code for response in (first, again, other, strangers)] == [201] * 4
    assert first.json() == again.json()
    assert int(first.json()["modulus"], 16).bit_length() == KEY_BITS
    assert len({response.json()["modulus"] for response in (first, other, strangers)}) == 3
    with serve() as client:
        assert call(client, "POST", "/v1/sessions", body).json() == first.json()


def test_one_learner_does_not_fill_the_disk_with_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_session(number: int, token: str = TOKEN) -> httpx.Response:
        return call(client, "POST", "/v1/sessions", {"session": f"{number:032x}", "key_bits": KEY_BITS}, token)

    now = 5 * 86_400 - 1
    monkeypatch.setattr(journal_module, "_now", lambda: now)
    settings = keyholder_settings(tmp_path, max_sessions_per_day=2)
    with TestClient(create_key_holder_app(settings, FreshKeys())) as client:
        for number in (1, 2):
            assert begin_session(number).is_success
            assert call(client, "DELETE", f"/v1/sessions/{number:032x}").is_success
        refused = begin_session(3)
        assert (refused.status_code, refused.json()["rule"]) == (403, "max_sessions_per_day")
        assert "learner has begun 2 sessions today" in refused.json()["detail"]
        assert begin_session(3, STRANGER).is_success
        now += 1
        assert begin_session(3).is_success
        assert begin_session(3).is_success, "the same again is no other"


def test_keys_are_sealed_and_destroyed_at_the_sessions_end(serve: Serve, refused: Refused, tmp_path: Path) -> None:
    with serve() as client:
        session = begin(client)
        (key_file,) = (tmp_path / "keys").iterdir()
        for file in (key_file, tmp_path / "identity.key", tmp_path / "keyholder.db"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert key_file.read_bytes().startswith(b"parley-paillier-1")
        query = session.ask(1)
        for name in session.parties:
            session.learner.receive(session.contribute(name, query, VALUES))
        request = ask_to_open(session, list(session.parties))
        opened = open_round(client, session, 1, request)
        path = f"/v1/sessions/{session.roster.session}"
        assert call(client, "DELETE", path).status_code == 204
        assert call(client, "DELETE", path).status_code == 204
        assert not list((tmp_path / "keys").iterdir())
        refused(open_round(client, session, 1, request), Reason.OUT_OF_TURN)
        refused(send(client, f"{path}/roster", session.learner.propose()), Reason.OUT_OF_TURN)
        asked_again = {"session": session.roster.session, "key_bits": KEY_BITS}
        refused(call(client, "POST", "/v1/sessions", asked_again), Reason.OUT_OF_TURN)
        status = call(client, "GET", path).json()
        assert (status["state"], status["opened"]) == ("ended", 1)
    assert Opened.parse(Signed.from_bytes(opened.content).body).session == session.roster.session


def test_sessions_that_learners_left_behind_end_and_their_keys_are_destroyed(
    serve: Serve, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as client:
        session = begin(client)
    path = f"/v1/sessions/{session.roster.session}"
    with serve() as client:
        assert call(client, "GET", path).json()["state"] == "serving"
    let_pass(monkeypatch, days=31)
    with serve() as client:
        assert call(client, "GET", path).json()["state"] == "ended"
        assert not list((tmp_path / "keys").iterdir())
        refused(send(client, f"{path}/roster", session.learner.propose()), Reason.OUT_OF_TURN)


def test_idle_sessions_end_while_the_key_holder_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity("key-holder", Ed25519PrivateKey.generate())
    create_journal(tmp_path, identity)
    journal, vault = Journal(tmp_path, identity), Vault(tmp_path / "keys", b"sixteen bytes or more")
    sessions = Sessions(
        identity,
        pins={},
        key_bits=KEY_BITS,
        idle_seconds=86_400,
        most_a_day=1000,
        most_bytes=2**26,
        journal=journal,
        vault=vault,
        keys=FreshKeys(),
    )
    with closing(sessions):
        sessions.begin("learner", f"{1:032x}", KEY_BITS)
        let_pass(monkeypatch, days=1)
        busy = sessions.begin("learner", f"{2:032x}", KEY_BITS)
        sessions.expire()
        assert journal.active() == [busy.n]
        assert len(list((tmp_path / "keys").iterdir())) == 1
        let_pass(monkeypatch, days=1)
        with pytest.raises(StateError, match="has ended"):  # to ask for it prolongs it no more
            sessions.begin("learner", f"{2:032x}", KEY_BITS)
        assert journal.active() == []


def let_pass(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Have it be so many days later for the journal."""
    now = journal_module._now() + days * 86_400
    monkeypatch.setattr(journal_module, "_now", lambda: now)


def test_key_files_of_no_session_are_deleted_at_the_start(serve: Serve, tmp_path: Path) -> None:
    """A crash between sealing a key and noting its session, or between noting an end and deleting the key."""
    with serve() as client:
        begin(client)
    (remaining,) = (tmp_path / "keys").iterdir()
    (tmp_path / "keys" / f"{'0' * 32}.key").write_bytes(b"left behind")
    (tmp_path / "keys" / ".draft").write_bytes(b"left behind")
    with serve():
        assert list((tmp_path / "keys").iterdir()) == [remaining]


def test_a_learner_sees_nothing_of_anothers_sessions(client: httpx.Client) -> None:
    roster, _ = new_roster(client, seed=11, parties=2, d=1, m_min=2)
    path = f"/v1/sessions/{roster.session}"
    assert call(client, "GET", path).status_code == 200
    for method in ("GET", "DELETE"):
        assert call(client, method, path, token=STRANGER).status_code == 404
        assert call(client, method, path, token="nobody").status_code == 401
    assert client.get(path).status_code == 401
    assert call(client, "GET", path).json()["state"] == "new"


def test_another_key_size_is_refused(client: httpx.Client, refused: Refused) -> None:
    for bits in (1024, 3072, 2047):
        response = call(client, "POST", "/v1/sessions", {"session": "ff" * 16, "key_bits": bits})
        refused(response, Reason.WRONG_KEY_SIZE)
        assert "2048 bits" in response.json()["detail"]


@pytest.mark.parametrize("session", ["", "xy" * 16, "AB" * 16, "00" * 15, "00" * 17])
def test_session_names_that_are_none_are_refused(session: str, client: httpx.Client) -> None:
    assert call(client, "POST", "/v1/sessions", {"session": session, "key_bits": KEY_BITS}).status_code == 422
    if session:
        assert call(client, "GET", f"/v1/sessions/{session}").status_code == 422


def test_bodies_that_are_no_signed_messages_are_refused(client: httpx.Client, refused: Refused) -> None:
    session = begin(client, seed=12)
    path = f"/v1/sessions/{session.roster.session}/rounds/1"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert client.put(path, json={}, headers=headers).status_code == 415
    assert client.put(path, content=b"x", headers=headers).status_code == 415
    headers["Content-Type"] = "application/x-parley-signed"
    for body in (b"", b"\0", b"\0\0\0\x02a"):
        refused(client.put(path, content=body, headers=headers), Reason.WRONG_FRAME)
    refused(send(client, path, Signed(b"{}", b"")), Reason.WRONG_FIELD)
    refused(send(client, path, Signed(b"[" * 100_000, b"")), Reason.NOT_CANONICAL)


def test_the_same_keys_are_used_after_a_restart_with_the_same_secret_only(serve: Serve, tmp_path: Path) -> None:
    with serve() as client:
        session = begin(client)
    other = keyholder_settings(tmp_path, secret="another secret of this length")
    with TestClient(create_key_holder_app(other, FreshKeys())) as client:
        response = send(client, f"/v1/sessions/{session.roster.session}/roster", session.learner.propose())
    assert (response.status_code, response.json()["reason"]) == (503, Reason.KEY_FILE_CORRUPT)
    assert "another secret" not in response.text.replace("sealed under another secret", "")


def test_a_learner_that_its_settings_name_later_is_served_without_a_restart(tmp_path: Path) -> None:
    changed = keyholder_settings(tmp_path)
    app = create_key_holder_app(changed.model_copy(update={"learners": changed.learners[1:]}), FreshKeys())
    with TestClient(app) as client:
        assert call(client, "GET", "/v1/keyholder").status_code == 401
        assert app.state.take_up(changed) == ("learners",)
        app.state.tokens.replace(changed.tokens)
        assert begin(client).parties, "its roster is signed: the key holder knows its key"


def test_logs_and_metrics_hold_no_key(
    serve: Serve, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with serve() as client, caplog.at_level(logging.DEBUG):
        session = begin(client)
        metrics = metrics_of(client)
    printed = capsys.readouterr()
    (holder,) = session.roster.key_holders
    assert holder.modulus not in printed.out + printed.err + caplog.text + metrics
    assert 'parley_requests_total{method="PUT",route="/v1/sessions/{session}/roster",status="200"} 1.0' in metrics


def test_keys_are_made_ahead_in_a_process_of_their_own() -> None:
    stock = KeyPool(KEY_BITS)
    try:
        first, second = stock.take(), stock.take()
    finally:
        stock.close()
    assert first.public_key.n != second.public_key.n
    assert first.public_key.n.bit_length() == KEY_BITS


def test_every_route_and_setting_is_documented(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), (method, path)
            assert operation.get("description"), (method, path)
            assert operation["security"] == (
                [] if path.startswith(("/healthz", "/readyz", "/metrics")) else [{"bearer": []}]
            )
    rounds = document["paths"]["/v1/sessions/{session}/rounds/{round}"]["put"]
    assert SIGNED_MEDIA_TYPE in rounds["requestBody"]["content"]
    assert SIGNED_MEDIA_TYPE in rounds["responses"]["200"]["content"]
    for table in (KeyHolderSettings, PinnedLearner):
        for name, setting in table.model_fields.items():
            assert setting.description, name
