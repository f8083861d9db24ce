"""Backups of a state: a folder or one tar, whole or refused, while others write to it."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from parley.common.errors import ConflictError, DamagedError, InvalidInputError, ParleyError, UnavailableError
from parley.common.storage import backups
from parley.common.storage.backups import MANIFEST, Backup, StateFolder, checked_backup, write_folder, write_stream
from parley.common.storage.folders import locked
from parley.common.storage.keys import write_private


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    """A database with a log, and one file of each kind."""
    folder = tmp_path / "state"
    for name in ("identity.key", "roster/members/ann.json", "keys/one.key", ".draft", "one.db-lock", "ledger.head"):
        write_private(folder / name, name.encode())
    write_private(tmp_path / "secrets" / "authority.key", b"its key")
    with closing(sqlite3.connect(folder / "one.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE numbers (number INTEGER)")
    elsewhere = {"authority.key": tmp_path / "secrets" / "authority.key"}
    return StateFolder("learner", "ann", folder, left_out={"keys"}, elsewhere=elsewhere)


KEPT = ["elsewhere/authority.key", "identity.key", "ledger.head", "one.db", "roster/members/ann.json"]


def packed(state: StateFolder) -> bytes:
    stream = io.BytesIO()
    write_stream(state, stream)
    return stream.getvalue()


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [number for (number,) in database.execute("SELECT number FROM numbers ORDER BY number")]


def refusal(source: Path | bytes, into: Path, name: str = "ann") -> str:
    """Why a backup is refused."""
    stream = source if isinstance(source, Path) else io.BytesIO(source)
    with pytest.raises(InvalidInputError) as refused, checked_backup("learner", name, stream, into):
        pass
    assert not list(into.iterdir()), "nothing of it stays"
    return refused.value.detail


@pytest.mark.parametrize("is_written", [False, True])
def test_a_backup_has_all_that_cannot_be_made_again(state: StateFolder, tmp_path: Path, *, is_written: bool) -> None:
    with closing(sqlite3.connect(state.path / "one.db")) as database:
        database.execute("INSERT INTO numbers VALUES (1)")
        database.commit()
        if is_written:
            database.execute("INSERT INTO numbers VALUES (2)")  # a transaction that is open meanwhile
        write_folder(state, tmp_path / "deep" / "copy")
        archive = packed(state)
    assert Backup(tmp_path / "deep" / "copy", None).paths() == KEPT
    assert (tmp_path / "deep" / "copy").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "deep").rglob("copy/*.*")} == {0o600}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == [*KEPT, MANIFEST], "the manifest last: it says that all was written"
    (tmp_path / "file").write_bytes(gzip.compress(archive))
    for source in (tmp_path / "deep" / "copy", tmp_path / "file", io.BytesIO(archive)):
        with checked_backup("learner", "ann", source, tmp_path / "new") as backup:
            assert backup.manifest is not None
            assert sorted(backup.manifest.files) == backup.paths() == KEPT
            assert numbers(backup.folder / "one.db") == [1]
            backup.put("roster/members/ann.json", tmp_path / "new" / "ann.json")
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["ann.json"]
    assert not (state.path / ".backup").exists()


def test_what_a_row_names_is_in_the_backup_with_it(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public rows come, and a run that names them begins, after the backup began."""
    copy = backups.copy_database

    def late(source: Path, target: Path) -> None:
        write_private(state.path / "public" / "new.npy", b"named")
        copy(source, target)

    monkeypatch.setattr(backups, "copy_database", late)
    write_folder(state, tmp_path / "copy")
    with checked_backup("learner", "ann", tmp_path / "copy", tmp_path / "deep" / "new") as backup:
        assert backup.paths() == sorted([*KEPT, "public/new.npy"])
        backup.put("public/new.npy", tmp_path / "deep" / "new" / "public" / "new.npy")
    for folder in ("deep", "deep/new", "deep/new/public"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_a_backup_that_is_not_whole_is_refused(state: StateFolder, tmp_path: Path) -> None:
    archive, new = packed(state), tmp_path / "new"
    new.mkdir()
    assert "cut off" in refusal(archive[: len(archive) // 2], new)
    assert "cut off" in refusal(b"no tar" * 1000, new)
    assert "another.tar cannot be read: No such file" in refusal(tmp_path / "another.tar", new)
    assert refusal(archive, new, "bob") == (
        "this is a backup of the learner ann, and the settings are of the learner bob"
    )
    for change, words in CHANGES:
        write_folder(state, tmp_path / "copy")
        change(tmp_path / "copy")
        assert words in refusal(tmp_path / "copy", new)
        shutil.rmtree(tmp_path / "copy")


def _rewrite(folder: Path) -> None:
    (folder / "identity.key").write_bytes(b"another key.")


def _add(folder: Path) -> None:
    (folder / "more.key").touch()


def _remove(folder: Path) -> None:
    (folder / "identity.key").unlink()


def _cut(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def _number(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": 2}))


CHANGES: tuple[tuple[Callable[[Path], None], str], ...] = (
    (_rewrite, "identity.key is not as it was when this backup was made"),
    (_add, "more.key is not as it was"),
    (_remove, "identity.key is not as it was"),
    (_cut, "it has no backup.json"),
    (_number, "backup.json was changed, or another version of Parley wrote it"),
)


@pytest.mark.parametrize("name", ["/etc/passwd", "../state", ".ssh/key", "link"])
def test_a_tar_cannot_write_elsewhere(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(member)
    (tmp_path / "new").mkdir()
    assert "is no file of a backup" in refusal(stream.getvalue(), tmp_path / "new")


def test_what_cannot_be_backed_up_is_said(state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: str, error: type[ParleyError]) -> None:
        with pytest.raises(error, match=words):
            write_folder(state, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()

    (tmp_path / "there").mkdir()
    with pytest.raises(InvalidInputError, match="there: File exists"):
        write_folder(state, tmp_path / "there")
    (state.path / ".backup").mkdir()
    with locked(state.path / ".backup"), pytest.raises(ConflictError, match="another backup is made"):
        packed(state)
    connect = sqlite3.connect

    def full(path: Path | str, **options: object) -> sqlite3.Connection:
        connection = connect(path, **options)  # type: ignore[call-overload]
        if isinstance(path, Path):
            connection.execute("PRAGMA max_page_count = 1")
        return connection  # type: ignore[no-any-return]

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", full)
        fails("copy cannot be written: its disk is full", UnavailableError)
    with monkeypatch.context() as patched:
        patched.setattr(backups, "write_private", no_room)
        fails("copy cannot be written: No space left", UnavailableError)
    (state.path / "one.db").write_bytes(b"no database" * 1000)
    fails("one.db cannot be copied: it is damaged", DamagedError)


def test_a_file_is_put_where_there_is_no_other(state: StateFolder, tmp_path: Path) -> None:
    write_folder(state, tmp_path / "copy")
    for content, is_same in ((b"identity.key", True), (b"another", False)):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / "identity.key").write_bytes(content)
        with checked_backup("learner", "ann", tmp_path / "copy", tmp_path / "new") as backup:
            if is_same:
                backup.put("identity.key", tmp_path / "new" / "identity.key")
            else:
                with pytest.raises(ConflictError, match="is another file than the backup's"):
                    backup.put("identity.key", tmp_path / "new" / "identity.key")
