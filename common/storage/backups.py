"""Backups of a service's state, made while it runs: a folder, or one tar stream of such a folder.

A backup has every file of the state folder that cannot be made again, and the files that settings keep elsewhere (a
learner's authority). SQLite itself copies a database, in one reading transaction: the copy is the database as it was at
one moment. A chain's head file is copied before its database, so that it never names a record that the copy lacks. All
other files are listed and copied after the databases, so that what a row names is there. Left out are locks, SQLite's
logs, drafts (names that begin with a dot), and the names that a service leaves out.

`MANIFEST`, written last, says whose backup it is and has the SHA-256 of every file: one that was cut off or changed is
refused. Earlier versions wrote a party's backup without a manifest; it is read as well.

A backup that is brought back is copied into a scratch folder of the state first, and checked there. What becomes of its
files is the service's to say: no ledger and no journal is put back as it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import AwareDatetime, ValidationError

from parley.common import parley_version
from parley.common.errors import ConflictError, DamagedError, InvalidInputError, UnavailableError
from parley.common.storage.folders import locked, make_private
from parley.common.storage.keys import sync_directory, write_private, writing
from parley.common.storage.sqlite import is_full
from parley.common.strict import Digest, Strict

Service = Literal["party", "key holder", "learner"]
MANIFEST = "backup.json"
ELSEWHERE = "elsewhere"
"""The folder in a backup of files that do not lie in the state folder."""

_DATABASES = frozenset({".db", ".sqlite"})
_REMADE = ("-wal", "-shm", "-lock", "-queue", ".lock")
"""Ends of names of files that a service makes again when it opens a database."""
_SCRATCH = ".backup"
_BLOCK = 2**20


class Manifest(Strict):
    """Whose backup it is, when it was begun, by which version, and the SHA-256 of each file by its path."""

    format: Literal[1] = 1
    service: Service
    name: str
    version: str
    taken: AwareDatetime
    files: dict[str, Digest]


@dataclass(frozen=True, slots=True)
class StateFolder:
    """What a service keeps: its state folder, without some names, and files elsewhere, by the names that they get."""

    service: Service
    name: str
    path: Path
    left_out: Collection[str] = ()
    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    def files(self) -> dict[str, Path]:
        """Return the files of a backup by their paths in it, as they are now."""
        files = {}
        for path in sorted(self.path.rglob("*")):
            parts = path.relative_to(self.path).parts
            is_hidden = any(part.startswith(".") for part in parts)
            is_remade = len(parts) == 1 and path.name.endswith(_REMADE)  # below, nobody has a database open
            if not (is_hidden or is_remade or parts[0] in self.left_out) and path.is_file():
                files["/".join(parts)] = path
        return files | {f"{ELSEWHERE}/{name}": path for name, path in self.elsewhere.items()}


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup's files in a folder; ``manifest`` is None in those of parties that earlier versions wrote."""

    folder: Path
    manifest: Manifest | None

    def paths(self) -> list[str]:
        """Return the paths of its files, but the manifest's."""
        names = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return sorted(name for name in names if name != MANIFEST)

    def put(self, name: str, target: Path) -> None:
        """Move a file to its place. Raises ConflictError where another file is there, UnavailableError."""
        with writing(target):
            if not target.exists():
                make_private(target.parent)
                shutil.move(self.folder / name, target)
                sync_directory(target.parent)
            elif target.read_bytes() != (self.folder / name).read_bytes():
                raise ConflictError(f"{target} is another file than the backup's: move it away first")


_STEPS = _HEADS, _ROWS, _NAMED_BY_ROWS = range(3)
"""The steps of a copy: heads of chains, then databases, then all that a row may name."""


def _step_of(path: Path) -> int:
    """Return the step in which a file is copied."""
    return _HEADS if path.suffix == ".head" else _ROWS if path.suffix in _DATABASES else _NAMED_BY_ROWS


def write_folder(state: StateFolder, folder: Path) -> None:
    """Copy a state into a new folder, mode 0700; after a failure there is none.

    Raises InvalidInputError where the folder exists, DamagedError for a database that cannot be read, and
    UnavailableError where there is no room.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise InvalidInputError(f"{folder}: {error.strerror}") from None
    try:
        with writing(folder):
            _copy(state, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_stream(state: StateFolder, stream: IO[bytes]) -> None:
    """Write a state as one tar stream; a copy lies in a scratch folder of the state meanwhile.

    Raises as `write_folder` does, and ConflictError while another backup is made.
    """
    with _scratch(state.path) as folder:
        write_folder(state, folder / "copy")
        paths = [*Backup(folder / "copy", None).paths(), MANIFEST]  # the manifest last: it says that all was written
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            for name in paths:
                archive.add(folder / "copy" / name, name, recursive=False, filter=_without_owner)
        stream.flush()


@contextmanager
def checked_backup(service: Service, name: str, source: Path | IO[bytes], state: Path) -> Iterator[Backup]:
    """Copy a backup, a folder or a tar (packed or not), into a scratch folder of a state, and check it there.

    Raises InvalidInputError where it is no backup of this service, was cut off or changed; UnavailableError where it
    cannot be written.
    """
    with _scratch(state) as scratch:
        folder = scratch / "copy"
        if isinstance(source, Path) and source.is_dir():
            with writing(folder):
                shutil.copytree(source, folder)
        else:
            _unpack(source, folder)
        yield _checked(service, name, folder)


def copy_database(source: Path, target: Path) -> None:
    """Copy a database that others may write to, as it is at one moment, with what its log holds.

    The connection cannot write: closing it does not write the log into the file. Raises DamagedError,
    UnavailableError where there is no room.
    """
    target.touch(mode=0o600)
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as original,
            closing(sqlite3.connect(target)) as copy,
        ):
            original.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, whose log nobody can lose
    except sqlite3.Error as error:
        if is_full(error):
            raise UnavailableError(f"{target.parent} cannot be written: its disk is full") from None
        raise DamagedError(f"{source} cannot be copied: it is damaged or cannot be read") from None
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _copy(state: StateFolder, folder: Path) -> None:
    """Copy the files, and write the manifest. Raises OSError, DamagedError, UnavailableError."""
    taken, digests = datetime.now(UTC), {}
    for step in _STEPS:
        for name, path in state.files().items():  # again: a copied row may name a file that is new
            if _step_of(path) == step and _copy_file(state, path, folder / name):
                digests[name] = _digest(folder / name)
    manifest = Manifest(service=state.service, name=state.name, version=parley_version(), taken=taken, files=digests)
    write_private(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())


def _copy_file(state: StateFolder, path: Path, target: Path) -> bool:
    """Copy a file of a state, unless it was removed since it was listed; returns whether it was copied."""
    make_private(target.parent)
    if path.suffix in _DATABASES and path.parent == state.path:
        copy_database(path, target)
        return True
    try:
        file = path.open("rb")
    except FileNotFoundError:  # an invitation that was used, public rows that were deleted
        return False
    with file:
        _write(file, target)
    return True


def _unpack(source: Path | IO[bytes], folder: Path) -> None:
    """Unpack a tar's files into a new folder; raises InvalidInputError."""
    place = source if isinstance(source, Path) else "standard input"
    with writing(folder):
        folder.mkdir(mode=0o700)
    try:
        with (
            source.open("rb") if isinstance(source, Path) else nullcontext(source) as file,
            tarfile.open(fileobj=file, mode="r|*") as archive,
        ):
            for member in archive:
                _unpack_member(archive, member, folder)
    except (tarfile.TarError, EOFError, zlib.error):
        raise InvalidInputError(f"{place} is no backup, or was cut off") from None
    except OSError as error:
        raise InvalidInputError(f"{place} cannot be read: {error.strerror or 'it is damaged'}") from None


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Unpack one file. Raises InvalidInputError for anything else, or a name that leads out of the folder."""
    path, content = PurePosixPath(member.name), archive.extractfile(member) if member.isreg() else None
    if content is None or path.is_absolute() or any(part.startswith(".") for part in path.parts):
        raise InvalidInputError(f"{member.name[:100]!r} is no file of a backup")
    target = folder / path
    with writing(target):
        make_private(target.parent)
        _write(content, target)


def _write(content: IO[bytes], target: Path) -> None:
    """Write a new file of mode 0600, flushed to disk on return."""
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:  # noqa: PTH123 -- a mode
        shutil.copyfileobj(content, file, _BLOCK)
        file.flush()
        os.fsync(file.fileno())


def _checked(service: Service, name: str, folder: Path) -> Backup:
    """Return the backup in a folder. Raises InvalidInputError unless it is whole, and of this service."""
    if not (folder / MANIFEST).exists():
        if service == "party" and (folder / "ledger.db").exists():
            return Backup(folder, None)
        raise InvalidInputError(f"this is no backup of a {service}, or it was cut off: it has no {MANIFEST}")
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except ValidationError:
        raise InvalidInputError(f"{MANIFEST} was changed, or another version of Parley wrote it") from None
    if (manifest.service, manifest.name) != (service, name):
        raise InvalidInputError(
            f"this is a backup of the {manifest.service} {manifest.name}, and the settings are of the {service} {name}"
        )
    backup = Backup(folder, manifest)
    for path in sorted({*manifest.files, *backup.paths()}):
        if not (folder / path).is_file() or _digest(folder / path) != manifest.files.get(path):
            raise InvalidInputError(f"{path} is not as it was when this backup was made")
    return backup


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out of a tar who made its files."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


@contextmanager
def _scratch(state: Path) -> Iterator[Path]:
    """Make a private folder in a state, which backups leave out; what a killed process left of it is removed.

    Raises ConflictError while another process has it, UnavailableError.
    """
    folder = state / _SCRATCH
    with ExitStack() as stack:
        with writing(folder):
            make_private(folder)
            try:
                stack.enter_context(locked(folder, fcntl.LOCK_NB))
            except BlockingIOError:
                raise ConflictError(f"{folder}: another backup is made or brought back now: try again") from None
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        shutil.rmtree(folder / "copy", ignore_errors=True)
        yield folder
