"""From an own table to a party that takes part: invited, joined, confirmed, over TLS, and without an open port."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from parley.common.data.study import Person
from parley.common.encoding.key_words import words_of
from parley.common.errors import InvalidInputError
from parley.common.files.sources import parse_source
from parley.common.files.studies import read_study
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.compose import ContainerService
from parley.common.storage.certificates import make_authority
from parley.common.wire.membership import Invitation
from parley.learner.cli.main import learner_app
from parley.learner.settings import LearnerSettings
from parley.party import membership
from parley.party.cli.join import _mounted
from parley.party.cli.main import party_app
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster
from tests.support.postgres import find_binaries, running_postgres
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit

NAMES = ("hospital-a", "hospital-b")


@dataclass
class Scene:
    """A learner with TLS, made by its own command, and two tables."""

    root: Path
    url: str
    tables: dict[str, Path]
    environment: dict[str, str]

    def learner(self, *args: object) -> Result:
        """Run a command of the operator."""
        return CliRunner().invoke(learner_app, list(map(str, args)), env=self.environment)

    def owner(self, *args: object) -> Result:
        """Run a command of an owner."""
        return CliRunner().invoke(party_app, list(map(str, args)))

    def waits(self, run: str, config: tuple[object, ...]) -> bool:
        """Whether a run waits for an owner's word."""
        return run in self.owner("pending", *config).output

    def altered(self, study: Path, old: str, new: str) -> int:
        """What `check` ends with when an owner's study is not what the learner signed; it is put back."""
        text = study.read_text()
        study.write_text(text.replace(old, new, 1))
        done = self.owner("check", "--config", study.parents[1] / "party.toml")
        study.write_text(text)
        assert "is not as learner signed it" in done.output
        return done.exit_code

    def invite(self, name: str = NAMES[0], *args: object) -> Path:
        """Have the learner write an invitation; return its file."""
        path = self.root / f"{name}.{time.monotonic_ns()}.json"
        done = self.learner("invite", name, "--study", "made-up", "--out", path, *args)
        assert done.exit_code == 0, done.output
        return path

    def join(self, invitation: Path, name: str = NAMES[0], *args: object, words: str | None = None) -> Result:
        """Run the owner's command that joins by an invitation, with the party's table unless ``args`` name another."""
        words = words or " ".join(words_of(self.key))
        data = () if "--data" in args else ("--data", self.tables[name])
        line = ["join", invitation, *data, "--out", self.root / name, "--words", words, *args]
        return CliRunner().invoke(party_app, list(map(str, line)))

    @property
    def key(self) -> str:
        """The learner's public key."""
        return public_hex(LearnerSettings.load(self.root / "learner" / "learner.toml").signing_key())

    def party(self, name: str) -> PartySettings:
        return PartySettings.load(self.root / name / "party.toml")

    def confirm(self, *names: str) -> Result:
        said = [word for name in names for word in (name, *words_of(self.party(name).identity.key))]
        return self.learner("roster", "confirm", *said)

    def roster(self) -> dict[str, dict[str, Any]]:
        return {entry["name"]: entry for entry in json.loads(self.learner("roster", "list", "--format", "json").stdout)}

    def until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not is_done():
            assert time.monotonic() < deadline
            time.sleep(0.1)


@contextmanager
def scene(root: Path, *studies: str) -> Iterator[tuple[Scene, BaseProcess]]:
    """A learner, which also has ``studies`` of these names, of the same columns."""
    cluster, port = Cluster(root / "made", n_parties=2, makes_ledgers=False), free_port()
    url = f"https://127.0.0.1:{port}"
    made = CliRunner().invoke(learner_app, ["init", url, "--out", str(root / "learner")])
    assert made.exit_code == 0, made.output
    for name in ("made-up", *studies):
        study = cluster.study.model_copy(update={"name": name})
        (root / "learner" / "studies" / f"{name}.json").write_text(study.model_dump_json())
    secrets = root / "learner" / "secrets"
    environment = {
        "PARLEY_URL": url,
        "PARLEY_TOKEN_FILE": str(secrets / "operator.token"),
        "PARLEY_CA": str(secrets / "authority.pem"),
    }
    tables = {name: root / "made" / f"party-{index + 1}.csv" for index, name in enumerate(NAMES)}
    learner = start_learner(LearnerSettings.load(root / "learner" / "learner.toml"))
    with stopped_at_exit(learner):
        context = ssl.create_default_context(cafile=secrets / "authority.pem")
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"{url}/readyz", verify=context, trust_env=False).raise_for_status()
                break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield Scene(root, url, tables, environment), learner


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One learner for all that leaves it as it was."""
    with scene(tmp_path_factory.mktemp("joining")) as (made, _):
        yield made


def listening(process: BaseProcess) -> set[str]:
    """The addresses on which a process listens."""
    inodes = {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(fields[1].partition(":")[0])
    return ports


def test_two_owners_join_by_one_line_each_and_train(tmp_path: Path) -> None:
    with scene(tmp_path) as (made, _):
        parties = []
        for name in NAMES:
            done = made.join(made.invite(name), name)
            assert done.exit_code == 0, done.output
            assert " ".join(words_of(made.party(name).identity.key)) in done.output
            parties.append(start_party(made.party(name)))
        with stopped_at_exit(*parties):
            assert {member["state"] for member in made.roster().values()} == {"unconfirmed"}
            agreed = made.root / NAMES[0] / "studies" / "made-up.json"
            assert read_study(agreed, [made.party(NAMES[0]).learners[0].public_key or ""]).name == "made-up"
            assert made.altered(agreed, '"x0"', '"x9"') == 3
            listed = ("pin", "--config", made.root / NAMES[0] / "party.toml")
            assert "HTTP status 403" in made.owner(*listed).output
            for name in NAMES:
                assert made.learner("roster", "confirm", name, *["abandon"] * 6).exit_code == 3
            assert made.confirm(*NAMES).stdout.splitlines() == [f"{name} takes part" for name in NAMES]
            assert made.owner(*listed).output.splitlines()[0] == "hospital-b (a party)"
            made.until(lambda: all(member["connected"] for member in made.roster().values()))
            run = made.learner("submit", "made-up", "--epsilon", 1, "--delta", 1e-5, "-p", "n_rounds=5").stdout.strip()
            for name in NAMES:
                config = ("--config", made.root / name / "party.toml")
                made.until(partial(made.waits, run, config))
                assert made.owner("approve", run, *config).exit_code == 0
            assert made.learner("resume", run).exit_code == 0
            done = made.learner("watch", run)
            assert done.exit_code == 0, done.output
            assert "completed after 5 rounds" in done.output
            assert [listening(party) for party in parties] == [{"0100007F"}] * 2, "loopback alone"
            assert made.learner("roster", "remove", NAMES[0]).exit_code == 0
            assert set(made.roster()) == {NAMES[1]}
            refused = made.learner("submit", "made-up", "--epsilon", 1, "--delta", 1e-5, "--party", NAMES[0])
            assert "unknown parties: hospital-a" in refused.output


def test_a_member_joins_again_with_its_key_and_ledger(tmp_path: Path) -> None:
    with scene(tmp_path) as (made, _):
        assert made.join(made.invite()).exit_code == 0
        assert made.confirm(NAMES[0]).exit_code == 0
        before, secrets = made.party(NAMES[0]), made.root / NAMES[0] / "secrets"
        changing = (secrets / "connect.token", secrets / "tls.key", made.root / NAMES[0] / "state" / "tls.pem")
        contents = {file: file.read_bytes() for file in changing}
        ledger = (made.root / NAMES[0] / "state" / "ledger.db").stat().st_ino
        path = tmp_path / "again.json"
        first = made.learner("invite", NAMES[1], "--study", "made-up", "--out", tmp_path / "first.json")
        assert "roster confirm" in first.stderr
        assert "is a member" not in first.stdout
        renewals = (("roster", "rotate", NAMES[0]), ("invite", NAMES[0], "--study", "made-up"))
        for renewal, out in zip(renewals, (tmp_path / "unused.json", path), strict=True):
            renewed = made.learner(*renewal, "--out", out)
            assert (renewed.exit_code, renewed.stderr) == (0, ""), "no words are left to confirm"
            assert f"{NAMES[0]} is a member: in its own folder, it gets new tokens" in renewed.stdout
        assert made.join(path).exit_code == 0
        now = made.party(NAMES[0])
        assert now.identity.key == before.identity.key
        assert (made.root / NAMES[0] / "state" / "ledger.db").stat().st_ino == ledger
        assert now.learners[0].token_hash != before.learners[0].token_hash
        assert all(file.read_bytes() != before for file, before in contents.items())
        with stopped_at_exit(start_party(made.party(NAMES[0]))):
            made.until(lambda: bool(made.roster()[NAMES[0]]["connected"]))
        assert made.roster()[NAMES[0]]["state"] == "member", "its words have been compared before"


def test_a_key_holder_joins_again_with_its_key_and_journal(shared: Scene) -> None:
    state = shared.root / "again" / "state"

    def join() -> tuple[bytes, int]:
        invitation = shared.root / "again.json"
        invitation.unlink(missing_ok=True)
        assert shared.learner("invite", "again", "--key-holder", "--out", invitation).exit_code == 0
        options = ("--words", " ".join(words_of(shared.key)), "--out", state.parent)
        for _ in ("once", "and once more, as after an answer that was lost"):
            done = shared.owner("keyholder", "join", invitation, *options)
            assert done.exit_code == 0, done.output
        return (state / "identity.key").read_bytes(), (state / "keyholder.db").stat().st_ino

    assert join() == join()


def test_names_that_differ_by_capitals_alone_are_not_both_invited(shared: Scene) -> None:
    shared.invite("spelt-once")
    refused = shared.learner("invite", "Spelt-Once", "--study", "made-up", "--out", shared.root / "twice.json")
    assert refused.exit_code == 3
    assert "spelt-once is invited or has joined: say spelt-once, or a name that differs by more" in refused.stderr
    result = shared.learner("invite", "Learner", "--study", "made-up", "--out", shared.root / "twice.json")
    assert "learner is the learner itself: say another name" in result.stderr
    assert not (shared.root / "twice.json").exists()


def test_a_used_invitation_is_the_users_alone(shared: Scene) -> None:
    invitation = shared.invite("used-one")
    table = ("--data", shared.tables[NAMES[0]])
    thief = ("join", invitation, *table, "--out", shared.root / "thief", "--words", " ".join(words_of(shared.key)))
    assert CliRunner().invoke(party_app, list(map(str, thief))).exit_code == 0
    assert CliRunner().invoke(party_app, list(map(str, thief))).exit_code == 0, "the same again is answered the same"
    owner = shared.join(invitation, NAMES[0], "--out", shared.root / "robbed")
    assert owner.exit_code == 3
    assert "has been used: if not by you, tell the operator" in owner.output
    assert shared.learner("roster", "remove", "used-one").exit_code == 0
    owner = shared.join(invitation, NAMES[0], "--out", shared.root / "robbed")
    assert "used, replaced or taken back, or has expired" in owner.output


def test_what_is_wrong_is_said_in_a_line_and_makes_no_party(  # noqa: PLR0915 -- one fault after another
    shared: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation, root = shared.invite("unlucky"), shared.root / "unlucky"
    text = invitation.read_text()

    def refused(invitation_file: Path, *args: object, words: str | None = None) -> str:
        done = shared.join(invitation_file, NAMES[0], "--out", root, *args, words=words)
        assert done.exit_code in {3, 4}, done.output
        assert not (root / "party.toml").exists()
        assert done.stderr.startswith("parley-party: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def other(old: str, new: str) -> Path:
        path = shared.root / "changed.json"
        path.write_text(text.replace(old, new))
        return path

    secret = json.loads(text)["invitation"]["secret"]
    assert "has been changed" in refused(other('"unlucky"', '"lucky"'))
    assert "no invitation" in refused(other(text[-200:], ""))
    assert "these are not the words of learner" in refused(invitation, words=" ".join(["abandon"] * 6))
    key = LearnerSettings.load(shared.root / "learner" / "learner.toml").signing_key()
    opened = Invitation.opened(text, datetime.now(UTC))

    def resealed(**changes: object) -> Path:
        path = shared.root / "resealed.json"
        path.write_text(opened.model_copy(update=changes).sealed(key))
        return path

    assert "expired at" in refused(resealed(expires=datetime.now(UTC) - timedelta(seconds=1)))
    stranger = make_authority("another").certificate_pem
    assert "is not by the invitation's authority" in refused(resealed(authority=stranger))
    assert "cannot be reached" in refused(resealed(url=f"https://127.0.0.1:{free_port()}"))
    assert "does not take the invitation" in refused(resealed(secret="x" * 40))
    assert "keyholder join" in refused(resealed(role="key_holder"))
    table = shared.root / "short.csv"
    table.write_text("x0,x1,y\n0.1,0.2,yes\n")
    assert "x2" in refused(invitation, "--data", table)
    for number, line in enumerate(("x0;x1;x2;y\n0,1;0,2;0,3;yes\n", "x0,x1,y\n0.1,0.2,yes\n")):
        (shared.root / f"months-{number}.csv").write_text(line)
    message = refused(invitation, "--data", f"{shared.root}/months-*.csv")
    assert f"{shared.root}/months-1.csv lacks column 'x2', which {shared.root}/months-0.csv has" in message
    assert "--data: name your table" in refused(invitation, "--data", "")
    table.write_text("x0,x1,x2,y\n0.1,0.2,7.5,yes\n")
    assert "7.5" not in refused(invitation, "--data", table)

    with proxy_that_asks() as address:
        assert "asks for a password" in refused(invitation, "--proxy", address)
        wrong = address.replace("//", "//ann:wrong@")
        assert "does not take this user and password" in refused(invitation, "--proxy", wrong)
    assert f"through the proxy {address}" in refused(invitation, "--proxy", address), "there is none any more"
    assert "named http://host:port" in refused(invitation, "--proxy", address.removeprefix("http://"))
    with monkeypatch.context() as patched:
        patched.setattr(membership, "datetime", Tomorrow)
        assert "clock" in refused(invitation)
    with monkeypatch.context() as patched:
        patched.setattr(membership, "replace_private", no_room)
        assert "No space left on device" in refused(invitation)
    assert secret not in "".join(
        path.read_text() for path in root.rglob("*") if path.is_file() and path.suffix == ".toml"
    )
    done = shared.join(invitation, NAMES[0], "--out", root)
    assert done.exit_code == 0, "nothing of this has used it up"
    assert not re.search(r"\.draft|\.new", " ".join(path.name for path in root.rglob("*")))


class Tomorrow(datetime):
    """A clock that is a day ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:  # noqa: ANN401 -- as datetime has it
        return datetime.now(tz) + timedelta(days=1)


def test_several_are_confirmed_by_a_name_and_six_words_each() -> None:
    done = CliRunner().invoke(learner_app, ["roster", "confirm", "a", *["word"] * 6, "b", *["word"] * 5])
    assert (done.exit_code, "words too many or too few" in done.output) == (3, True)


def no_room(path: Path, content: bytes) -> None:
    raise OSError(28, "No space left on device")


@contextmanager
def proxy_that_asks() -> Iterator[str]:
    """An HTTP proxy that demands a password."""

    class Asks(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Asks) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


QUERY = "SELECT * FROM rows ORDER BY x0"


def test_an_owner_joins_by_a_query_over_tables(shared: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared.tables[NAMES[0]].parent)
    result = shared.join(shared.invite("queried"), "hospital-a", *queried("rows=party-1.csv", shared.root / "queried"))
    assert result.exit_code == 0, result.output
    settings = PartySettings.load(shared.root / "queried" / "party.toml")
    (entry,) = settings.studies
    assert entry.data.source == QUERY
    assert entry.data.tables == {"rows": str(shared.tables[NAMES[0]])}
    assert shared.owner("check", "--config", shared.root / "queried" / "party.toml").exit_code == 0
    refused = shared.join(
        shared.invite("lacking"), "hospital-a", *queried("other=party-1.csv", shared.root / "lacking")
    )
    assert refused.exit_code == 3
    assert "Table with name rows does not exist! Say where it is: --table NAME=WHERE" in refused.stderr


def test_an_owner_of_persons_is_told_what_to_say_and_what_is_odd_before_any_run(tmp_path: Path) -> None:
    with scene(tmp_path) as (made, _):
        agreed = read_study(tmp_path / "learner" / "studies" / "made-up.json")
        stays = agreed.model_copy(update={"name": "stays", "person": Person(column="patient", most_rows=1)})
        (tmp_path / "learner" / "studies" / "stays.json").write_text(stays.model_dump_json())
        head, *rows = made.tables[NAMES[0]].read_text().splitlines()
        table = tmp_path / "stays.csv"
        table.write_text("\n".join([f"patient,{head}", *(f"P{n // 2},{row}" for n, row in enumerate(rows))]) + "\n")
        alone = made.learner("invite", NAMES[1], "--study", "made-up", "--out", tmp_path / "rows.json")
        assert "--person" not in alone.stdout
        path = tmp_path / "both.json"
        done = made.learner("invite", NAMES[0], "--study", "made-up", "--study", "stays", "--out", path)
        assert "join both.json --data made-up=TABLE --data stays=TABLE --person COLUMN\n" in done.stdout
        assert "COLUMN is the one of its table that says whose a row is" in done.stdout
        done = made.join(path, NAMES[0], "--data", table, "--person", "patient")
        assert done.exit_code == 0, done.output
        assert f"{len(rows) // 2} rows of persons with more than 1 are left out" in done.stdout, "as study check says"
        assert "warning: your account hides single rows only, since made-up hides one row each" in done.stdout
        assert "it can never promise to persons, also of stays" in done.stdout
        assert made.party(NAMES[0]).policy.adjacency == "replace_one"
        done = made.owner("check", "--config", made.root / NAMES[0] / "party.toml")
        assert (done.exit_code, "your account hides single rows only" in done.stderr) == (0, True), done.output


def test_a_container_sees_the_files_of_a_query_and_the_secret_of_postgresql(tmp_path: Path) -> None:
    reach = ["db.lan:5432"]
    tables = ["a=x/*.csv", "b=y.sqlite::t", "c=y.sqlite::u"]
    source = parse_source("SELECT 1 FROM a, b, c", tables).within(tmp_path)
    assert _mounted(source, ()) == (tmp_path / "x", tmp_path / "y.sqlite")
    source = parse_source("SELECT 1 FROM a, d", [*tables, "d=env:DSN::labs"]).within(tmp_path)
    with pytest.raises(
        InvalidInputError, match=r"--compose: the container is given no variable.* NAME=file:PATH::TABLE"
    ):
        _mounted(source, reach)
    secret = ["d=file:dsn.secret::labs", "e=file:dsn.secret::wards"]
    source = parse_source("SELECT 1 FROM a, d, e", [tables[0], *secret]).within(tmp_path)
    with pytest.raises(InvalidInputError, match="--compose: say --reach HOST:PORT of the database"):
        _mounted(source, ())
    reads = _mounted(source, reach)
    assert reads == (tmp_path / "x", tmp_path / "dsn.secret")
    written = ContainerService("party", ("parley-party",), tmp_path / "p" / "party.toml", reads).text("1:1")
    assert f'"source": "{tmp_path}/dsn.secret", "target": "{tmp_path}/dsn.secret", "read_only": true' in written


@pytest.mark.slow
def test_an_owner_joins_from_postgresql(shared: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    if (binaries := find_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb in /usr/lib/postgresql or on the path")
    names, *cells = (line.split(",") for line in shared.tables[NAMES[0]].read_text().splitlines())
    with running_postgres(binaries) as dsn:
        with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
            kinds = ", ".join(f"{name} {'text' if name == 'y' else 'float8'}" for name in names)
            cursor.execute(f"CREATE TABLE patients ({kinds})")
            for row in cells:
                cursor.execute(f"INSERT INTO patients VALUES ({', '.join(map(repr, row))})")  # noqa: S608 -- our own
            connection.commit()
        monkeypatch.setenv("JOINING_DSN", dsn)
        root = shared.root / "in-postgres"
        table = "rows=env:JOINING_DSN::public.patients"
        result = shared.join(shared.invite("in-postgres"), "hospital-a", *queried(table, root))
        assert result.exit_code == 0, result.output
        assert shared.owner("check", "--config", root / "party.toml").exit_code == 0
        assert not any(dsn.encode() in path.read_bytes() for path in root.rglob("*") if path.is_file())


def queried(table: str, out: Path) -> tuple[object, ...]:
    """The options of an owner whose rows a query reads; the last of an option counts."""
    return ("--data", QUERY, "--table", table, "--out", out)
