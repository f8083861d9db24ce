"""Too many connections: those whose clients say nothing make room, and where all are busy a request is told so."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from parley.common.client.outbound import UPGRADE
from parley.common.routes import CONNECT
from parley.common.service.tokens import hash_token
from parley.party.settings import KnownLearner, PartySettings
from tests.support.attackers import half_sent, under_attack
from tests.support.certificates import make_certificates
from tests.support.cluster import AUTHORIZED, LEARNER, USER, Cluster
from tests.support.nightly import repeats
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import ASKING

MOST, ANOTHER = 20, "the-token-of-another-learner"
REQUESTS = repeats(8, 50)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A party that takes few connections, and waits long for what they say."""
    limits = {"connections": MOST, "receive_seconds": 60}
    settings = Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port(), limits=limits)
    another = KnownLearner(name="another", token_hash=hash_token(ANOTHER))
    settings = settings.model_copy(update={"learners": (*settings.learners, another)})
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(f"http://127.0.0.1:{settings.port}")
        yield settings.port


@pytest.mark.slow
def test_half_sent_requests_make_room_for_whole_ones(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    with under_attack(lambda: half_sent(port, ANOTHER, "/v1/runs", count=10 * MOST, seconds=10)) as attack:
        answered = 0
        for _ in range(REQUESTS):
            with httpx.Client(base_url=url, headers=ASKING, trust_env=False, timeout=30) as client:
                answered += client.get("/v1/party").is_success
    beside = f"{10 * MOST} half-sent ones; {attack.words}, by {MOST} at once"
    print(f"{answered} of {REQUESTS} requests answered beside {beside}")
    assert answered == REQUESTS


def test_where_all_are_busy_a_request_is_told_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, learner={"approval_seconds": 600})
    watchers = [f"the-token-of-watcher-{number}" for number in range(2)]
    tokens = {"alice": USER} | {f"watcher-{number}": token for number, token in enumerate(watchers)}
    settings = cluster.learner_settings(
        {"party-1": f"http://127.0.0.1:{free_port()}"},
        port=free_port(),
        limits={"connections": MOST},
        users=[{"name": name, "token_hash": hash_token(token)} for name, token in tokens.items()],
    )
    url = f"http://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_learner(settings)), ExitStack() as stack:
        wait_until_ready(url)
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
        run = httpx.post(f"{url}/v1/runs", json=order, headers=AUTHORIZED, trust_env=False).json()["id"]
        for number in range(MOST):  # watchers of a run that waits for a party which is not there
            watcher = stack.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
            watcher.sendall(watching(run, watchers[number % 2]))
            assert watcher.recv(2**12).startswith(b"HTTP/1.1 200")
        refused = httpx.get(f"{url}/v1/runs", headers=AUTHORIZED, trust_env=False)
        shared = httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {watchers[0]}"}, trust_env=False)
        healthy = httpx.get(f"{url}/healthz", trust_env=False)
    print(f"beside {MOST} watchers: {refused.status_code} {refused.json()['detail']!r}, /healthz {healthy.status_code}")
    assert refused.status_code == 503
    assert refused.json()["detail"] == "too many connections are open; try again later"
    assert healthy.status_code == 200
    assert shared.status_code == 503, "there is none left for its share either"


def test_a_party_connects_again_where_users_have_all_connections(tmp_path: Path) -> None:
    """What a party does that opens its connections: it is never told to wait, and hears the learner's questions."""
    users = [f"the-token-of-watcher-{number}" for number in range(2)]
    party = "the-token-of-the-party"
    settings = Cluster(tmp_path, n_parties=1).learner_settings(
        port=free_port(),
        parties=[{"name": "party-1", "connects_with": hash_token(party), "token": LEARNER}],
        limits={"connections": MOST},
        users=[{"name": f"watcher-{number}", "token_hash": hash_token(token)} for number, token in enumerate(users)],
    )
    shake = (
        f"GET {CONNECT.at()} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {party}\r\n"
        f"Connection: Upgrade\r\nUpgrade: {UPGRADE}\r\n\r\n"
    )
    with stopped_at_exit(start_learner(settings)), ExitStack() as stack:
        wait_until_ready(f"http://127.0.0.1:{settings.port}")

        def asked(request: str) -> bytes:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", settings.port), timeout=30))
            connection.sendall(request.encode())
            return connection.recv(2**12)

        def watched(token: str) -> bytes:
            return asked(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")

        for number in range(MOST):
            assert watched(users[number % 2]).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert watched(users[0]).startswith(b"HTTP/1.1 503"), "there is room for no user"
            assert asked(shake).startswith(b"HTTP/1.1 101"), "and for the party"


def watching(run: str, token: str) -> bytes:
    """The request of a stream of a run's events."""
    return f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def test_a_user_has_its_share_of_streams_and_of_connections(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, learner={"approval_seconds": 600})
    urls = {"party-1": f"http://127.0.0.1:{free_port()}"}
    settings = cluster.learner_settings(urls, port=free_port(), shares={"streams": 2, "connections": 4})
    url = f"http://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_learner(settings)), ExitStack() as stack:
        wait_until_ready(url)

        def connected() -> httpx.Client:
            made = httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=30)
            return stack.enter_context(made)

        def watched(client: httpx.Client) -> httpx.Response:
            return stack.enter_context(client.stream("GET", "/v1/events"))

        streams = [watched(connected()) for _ in range(2)]
        assert [stream.status_code for stream in streams] == [200, 200]
        other = connected()
        refused = watched(other)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        words = "alice has 2 event streams open, and one caller may have 2 (shares.streams): "
        assert words in json.loads(refused.read())["detail"]
        assert "connection" not in refused.headers
        assert connected().get("/v1/user").status_code == 200
        fifth = connected().get("/v1/user")
        assert (fifth.status_code, fifth.json()["share"], fifth.headers["connection"]) == (429, "connections", "close")
        streams[0].close()
        while (again := watched(other)).status_code == 429:  # until the learner has noticed
            again.read()
            time.sleep(0.05)
        assert again.status_code == 200


def start_with_files(settings: PartySettings, files: int) -> subprocess.Popen[str]:
    """A party's own command, which may have so many files open."""
    lines = [
        f'name = "party-1"\nport = {settings.port}\nstate = "{settings.state}"\nstudy = "{settings.study}"',
        f'[data]\nsource = "{settings.held[0].data.source}"',
        "[policy]\nepsilon = 100.0\ndelta = 0.1\nmax_epsilon_per_run = 100.0\nmax_delta_per_run = 0.1",
        'algorithms = ["dp_gd", "psgd", "local_average"]\nminimum_contributors = 1',
        f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token(LEARNER)}"',
        "[limits]\nreceive_seconds = 60",
    ]
    config = settings.state.with_suffix(".toml")
    config.write_text("\n".join(lines))
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); "
        f"from parley.party.cli.main import party_app; party_app(['serve', '--config', {str(config)!r}])"
    )
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def few_files(tmp_path: Path) -> PartySettings:
    return Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port())


def test_idle_strangers_shut_nobody_out_where_few_files_may_be_open(few_files: PartySettings) -> None:
    with start_with_files(few_files, 64) as party, ExitStack() as stack:
        stack.callback(party.terminate)
        url = f"http://127.0.0.1:{few_files.port}"
        wait_until_ready(url)
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", few_files.port)))
        answered = [httpx.get(f"{url}/v1/party", headers=ASKING, trust_env=False, timeout=10) for _ in range(10)]
        assert [answer.status_code for answer in answered] == [200] * 10


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_idle_strangers_hold_no_more_connections_than_there_may_be(tmp_path: Path, scheme: str) -> None:
    files = make_certificates(tmp_path / "tls")
    tls = {"certificate": files.certificate, "key": files.key} if scheme == "https" else None
    limits = {"connections": MOST, "receive_seconds": 60}
    settings = Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port(), tls=tls, limits=limits)
    with stopped_at_exit(start_party(settings)), ExitStack() as stack:
        wait_until_ready(f"{scheme}://127.0.0.1:{settings.port}", files.authority)
        watched = stack.enter_context(selectors.DefaultSelector())
        for _ in range(10 * MOST):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
            watched.register(stranger, selectors.EVENT_READ)
        while len(watched.get_map()) > MOST:
            closed = watched.select(timeout=10)
            assert closed, f"{len(watched.get_map())} strangers stay connected"
            for key, _ in closed:
                watched.unregister(key.fileobj)


def test_a_service_that_may_have_too_few_files_open_does_not_start(few_files: PartySettings) -> None:
    with start_with_files(few_files, 32) as party:
        _, stderr = party.communicate(timeout=60)
    assert party.returncode == 3
    assert "this process may have 32 files open (ulimit -n), and needs " in stderr


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ",
        b"GET /",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["header", "line", "chunk", "trailer"],
)
def test_what_is_no_body_ends(port: int, endless: bytes) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
        connection.sendall(endless)
        while sent < 2**26:
            sent += connection.send(b"a" * 2**16)
    print(f"closed after {sent // 2**10} KiB, most of them in the system's buffers")
    assert sent < 2**26


def test_a_client_that_asks_on_and_does_not_read_is_closed(tmp_path: Path) -> None:
    limits = {"receive_seconds": 1}
    settings = Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port(), limits=limits)
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(f"http://127.0.0.1:{settings.port}")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
            deaf.settimeout(30)
            deaf.connect(("127.0.0.1", settings.port))
            start = time.monotonic()
            with suppress(OSError):
                while time.monotonic() - start < 30:
                    deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            taken = time.monotonic() - start
    print(f"closed after {taken:.1f} s")
    assert taken < 30
