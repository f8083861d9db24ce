"""A name that goes to another file while a database is open is noticed before anything more is written or told."""

from __future__ import annotations

import fcntl
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from parley.common.errors import NotFoundError, UnavailableError
from parley.common.storage.chain import Chain, chain_schema
from parley.common.storage.sqlite import Database, Schema, WriterTurns
from tests.support.disks import mounted_disk

KIND = chain_schema("log of tests", 0x7E57)
TABLE = Schema("table of tests", 0x7E58, 1, ("CREATE TABLE numbers (number INTEGER) STRICT",))
FILES = ("log.db", "log.db-wal", "log.db-shm", "log.db-lock", "log.head")
TIMES = 100


def opened(directory: Path) -> Chain:
    return Chain(directory / "log", KIND, lambda _number, _record: None)


def add(chain: Chain) -> None:
    with chain.transaction() as appending:
        appending.append({"a": 1})


def refuse(chain: Chain) -> None:
    """A transaction that finds nothing to do."""
    with chain.transaction():
        raise NotFoundError("there is no such run")


def rename_over(state: Path, name: str) -> None:
    """Put a copy in the place of a file, as rsync and restore tools do."""
    shutil.copy(state / name, state / ".copy")
    (state / ".copy").rename(state / name)


def delete(state: Path, name: str) -> None:
    """Delete a file."""
    (state / name).unlink()


def restore_folder(state: Path, _name: str) -> None:
    """Put a copy of the folder in its place."""
    shutil.copytree(state, state.with_suffix(".copy"))
    state.rename(state.with_suffix(".old"))
    state.with_suffix(".copy").rename(state)


def move_folder(state: Path, _name: str) -> None:
    """Move the folder away."""
    state.rename(state.with_suffix(".moved"))


CHANGES: tuple[Callable[[Path, str], None], ...] = (rename_over, delete, restore_folder, move_folder)


def test_a_name_that_is_another_file_or_gone_is_noticed(tmp_path: Path) -> None:
    """Before a transaction, which may commit or refuse, or within one, too late for its commit and not for the answer.

    By a probe too.
    """
    rng, noticed = random.Random(1), 0
    opened(tmp_path / "empty").close()
    for number in range(TIMES):
        state = tmp_path / str(number)
        shutil.copytree(tmp_path / "empty", state)
        chain = opened(state)
        with chain._database.reading() as connection:
            connection.execute("PRAGMA synchronous = OFF")  # what is tried here is no power cut
        for _ in range(rng.randrange(4)):
            add(chain)
        change, name, within = rng.choice(CHANGES), rng.choice(FILES), rng.random() < 0.5
        ends = rng.choice((add, refuse))
        with pytest.raises(UnavailableError, match="a file of the log of tests was replaced, moved or deleted"):  # noqa: PT012
            with chain.transaction() as appending:
                if not within:
                    appending.append({"a": 1})
                else:
                    change(state, name)
            if not within:
                change(state, name)
                ends(chain)
        for refused in (Chain.look, partial(Chain.probe, room=0)):
            with pytest.raises(UnavailableError):
                refused(chain)
        chain.close()
        noticed += 1
    print(f"names that went to other files, or to none, while a database was open: {noticed} of {TIMES} noticed")


def test_a_file_that_is_moved_back_is_used_again(tmp_path: Path) -> None:
    chain = opened(tmp_path)
    add(chain)
    (tmp_path / "log.db").rename(tmp_path / "away.db")
    for refused in (partial(add, chain), partial(chain.record, 1)):
        with pytest.raises(UnavailableError):
            refused()
    (tmp_path / "away.db").rename(tmp_path / "log.db")
    add(chain)
    assert chain.head.count == 2
    chain.close()


@pytest.mark.parametrize(("name", "most"), [("log.db-lock", 0), ("log.db", 0), ("log.db-wal", 1), ("log.head", 1)])
@pytest.mark.parametrize("change", [rename_over, delete])
def test_nothing_is_written_once_a_name_is_another_files(
    tmp_path: Path, name: str, most: int, change: Callable[[Path, str], None]
) -> None:
    """Nor anything at all where the lock is: another process may hold the new one, and write."""
    chain = opened(tmp_path)
    add(chain)
    change(tmp_path, name)
    uses: list[Callable[[], object]] = [lambda: add(chain)] * 5 + [lambda: chain.record(1), lambda: chain.probe(0)]
    for refused in uses:
        with pytest.raises(UnavailableError):
            refused()
    with chain._database._lock:
        written = chain._database._connection.execute("SELECT count(*) FROM entries").fetchone()[0]
    assert written <= 1 + most
    chain.close()


def test_what_to_do_is_logged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = opened(tmp_path)
    delete(tmp_path, "log.db-wal")
    for _ in range(3):
        with pytest.raises(UnavailableError):
            chain.look()
    logged = capsys.readouterr().out
    assert logged.count("stop the service, put the newest files in place") == 1
    assert str(tmp_path / "log.db-wal") in logged
    chain.close()


@pytest.mark.parametrize("names", [["log.db-wal"], ["log.db-shm"], ["log.db-wal", "log.db-shm"]])
def test_a_log_that_was_deleted_is_not_lost_where_the_service_stops(tmp_path: Path, names: list[str]) -> None:
    chain = opened(tmp_path)
    add(chain)
    with pytest.raises(UnavailableError), chain.transaction() as appending:  # noqa: PT012 -- its end raises
        appending.append({"b": 2})
        for name in names:
            delete(tmp_path, name)
    chain.close()
    again = opened(tmp_path)
    assert again.head.count == 2
    again.close()


def test_files_that_others_have_begun_meanwhile_are_let_be(tmp_path: Path) -> None:
    """To close what was replaced writes nothing into what another process works with by now, and deletes nothing."""
    chain = opened(tmp_path)
    for name in ("log.db-wal", "log.db-shm"):
        rename_over(tmp_path, name)
    work = (
        "import sys; from pathlib import Path; from parley.common.storage.chain import Chain, chain_schema\n"
        "chain = Chain(Path(sys.argv[1]), chain_schema('log of tests', 0x7E57), print)\n"
        "for number in range(300):\n"
        "    with chain.transaction() as appending:\n"
        "        appending.append({'c': number}, {'x': bytes(5000)})\n"
        "chain.close()"
    )
    subprocess.run([sys.executable, "-c", work, tmp_path / "log"], check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(UnavailableError):
        chain.look()
    chain.close()  # and from now on another process must look: SQLite still has the old files open in this one
    look = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1])\n"
        "print(connection.execute('PRAGMA integrity_check').fetchone(), end=' ')\n"
        "print(connection.execute('SELECT count(*) FROM entries').fetchone())"
    )
    seen = subprocess.run([sys.executable, "-c", look, tmp_path / "log.db"], check=True, capture_output=True, text=True)
    assert seen.stdout == "('ok',) (300,)\n"


def test_something_mounted_over_the_folder_is_noticed(tmp_path: Path) -> None:
    chain = opened(tmp_path / "state")
    add(chain)
    with mounted_disk(tmp_path / "state"):
        for name in FILES:
            (tmp_path / "state" / name).touch()
        with pytest.raises(UnavailableError, match="replaced, moved or deleted"):
            add(chain)
    add(chain)
    chain.close()


def test_processes_take_turns(tmp_path: Path) -> None:
    """While one is in its turn another waits, as long as it may; of one that is killed nothing is left."""
    database = Database(tmp_path / "table.db", TABLE, busy_seconds=0.05)
    hold = (
        "import sys, time; from pathlib import Path; from parley.common.storage.sqlite import WriterTurns\n"
        "with WriterTurns(Path(sys.argv[1]), 5):\n"
        "    print('taken', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, database.path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        for work in (database.probe, database.transaction().__enter__):
            with pytest.raises(UnavailableError, match="the table of tests is busy"):
                work()
        with database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        other.kill()
    database.probe()
    database.close()


def test_who_writes_again_queues_behind_who_waits(tmp_path: Path) -> None:
    first, hasty = WriterTurns(tmp_path / "table.db", 60), WriterTurns(tmp_path / "table.db", 0)
    wait = (
        "import sys; from pathlib import Path; from parley.common.storage.sqlite import WriterTurns\n"
        "with WriterTurns(Path(sys.argv[1]), 60):\n"
        "    print('taken', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", wait, str(tmp_path / "table.db")]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        with first:
            while not is_locked(tmp_path / "table.db-queue"):
                assert waiting.poll() is None
        with pytest.raises(TimeoutError), hasty:
            pass
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "taken\n"
        waiting.communicate("")
    with hasty:
        pass
    first.close()
    hasty.close()


def is_locked(path: Path) -> bool:
    """Whether another process holds a file's lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
