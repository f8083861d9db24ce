"""A disk that can lose its power: what SQLite writes and syncs, recorded, and what may be left of it after a cut.

SQLite writes through a VFS, a table of C functions. Here the one it uses by default is copied, with three functions
replaced by ones that note each call and then pass it on. Other code that writes a file notes it with `Disk.note`.

After a cut, a file holds everything that was written before its last sync. Of each later write, the disk may have kept
all, nothing, or some of its sectors, independently of the order in which they were written.
"""

from __future__ import annotations

import ctypes
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from parley.common.protocol.receipts import Head
from parley.common.storage.chain import HeadFile

SECTOR = 512

_PATH = ctypes.c_void_p  # a pointer, which SQLite keeps; a Python string would be gone
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _PATH, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _PATH, ctypes.c_int)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods; three of its functions are named."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p),
        ("sync", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 13),
    )


class _Vfs(ctypes.Structure):
    """sqlite3_vfs; its functions that open and delete files are named."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("max_pathname", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 14),
    )


@dataclass(frozen=True, slots=True)
class Event:
    """Something done to a file: a ``write`` at ``offset``, a ``truncate`` to it, a ``delete``, or a ``sync``."""

    kind: str
    path: str
    offset: int = 0
    data: bytes = b""


@dataclass
class Disk:
    """All that was done to files, in order."""

    events: list[Event] = field(default_factory=list)

    def note(self, kind: str, path: Path | str, offset: int = 0, data: bytes = b"") -> None:
        """Remember an event."""
        self.events.append(Event(kind, str(path), offset, data))

    def hold(self, folder: Path) -> None:
        """Have the files of a folder on the disk, as they are."""
        for path in folder.iterdir():
            self.note("write", path, 0, path.read_bytes())
            self.note("sync", path)

    def sync(self, path: str) -> None:
        """Remember a sync: of a new file SQLite syncs the directory too, and so what was deleted before is gone."""
        if not any(event.path == path and event.kind == "sync" for event in self.events):
            for deleted in {event.path for event in self.events if event.kind == "delete"}:
                self.note("sync", deleted)
        self.note("sync", path)

    def after_cut(self, cut: int, rng: random.Random) -> dict[str, bytes]:
        """What may be left of each file when the power goes after so many events."""
        files: defaultdict[str, bytearray] = defaultdict(bytearray)
        pending: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self.events[:cut]:
            if event.kind == "sync":
                for written in pending.pop(event.path, ()):
                    _apply(files, written)
            else:
                pending[event.path].append(event)
        for events in pending.values():
            for event in events:
                if damaged := _damaged(event, rng):
                    _apply(files, damaged)
        return {path: bytes(content) for path, content in files.items()}


def _apply(files: defaultdict[str, bytearray], event: Event) -> None:
    """Do to a file what an event did."""
    if event.kind == "delete":
        files.pop(event.path, None)
        return
    content = files[event.path]
    if event.kind == "truncate":
        del content[event.offset :]
        return
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(event.data)] = event.data


def _damaged(event: Event, rng: random.Random) -> Event | None:
    """What the disk kept of an event that was not synced."""
    fate = rng.choice(("all", "nothing", "some"))
    if fate == "nothing":
        return None
    if fate == "all" or event.kind != "write":
        return event
    sectors = -(-len(event.data) // SECTOR)
    return Event("write", event.path, event.offset, event.data[: SECTOR * rng.randint(0, sectors)])


@contextmanager
def recorded_disk() -> Iterator[Disk]:
    """A disk that records all databases opened within; LookupError where SQLite is built into Python itself."""
    library = ctypes.CDLL(_library())
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    usual = library.sqlite3_vfs_find(None)
    disk = Disk()
    alive: list[object] = []
    recording = _Vfs.from_buffer_copy(usual.contents)
    recording.name = b"recording"
    recording.open = _pointer(_OPEN(_recording_open(usual, disk, alive)), alive)
    recording.delete = _pointer(_DELETE(_recording_delete(usual, disk)), alive)
    library.sqlite3_vfs_register(ctypes.byref(recording), 1)
    try:
        yield disk
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(recording))
        library.sqlite3_vfs_register(usual, 1)


def _recording_open(usual: Any, disk: Disk, alive: list[object]) -> Callable[..., int]:  # noqa: ANN401 -- ctypes
    """The function that opens a file and makes it record."""
    open_usual = _OPEN(usual.contents.open)

    def open_file(_: int, path: int | None, file: int, flags: int, out_flags: int) -> int:
        result: int = open_usual(ctypes.addressof(usual.contents), path, file, flags, out_flags)
        methods = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(_Methods)))
        if result == 0 and path and methods[0]:
            recording = _recording_methods(methods[0].contents, _text(path), disk, alive)
            alive.append(recording)
            methods[0] = ctypes.pointer(recording)
        return result

    return open_file


def _recording_delete(usual: Any, disk: Disk) -> Callable[..., int]:  # noqa: ANN401 -- ctypes
    """The function that deletes a file and records it."""
    delete_usual = _DELETE(usual.contents.delete)

    def delete_file(_: int, path: int, sync_directory: int) -> int:
        disk.note("delete", _text(path))
        result: int = delete_usual(ctypes.addressof(usual.contents), path, sync_directory)
        return result

    return delete_file


def _recording_methods(usual: _Methods, path: str, disk: Disk, alive: list[object]) -> _Methods:
    """The functions of one open file; three of them record."""
    write_usual, truncate_usual, sync_usual = _WRITE(usual.write), _TRUNCATE(usual.truncate), _SYNC(usual.sync)

    def write(file: int, data: int, length: int, offset: int) -> int:
        disk.note("write", path, offset, ctypes.string_at(data, length))
        return int(write_usual(file, data, length, offset))

    def truncate(file: int, size: int) -> int:
        disk.note("truncate", path, size)
        return int(truncate_usual(file, size))

    def sync(file: int, flags: int) -> int:
        result: int = sync_usual(file, flags)
        disk.sync(path)
        return result

    recording = _Methods.from_buffer_copy(usual)
    recording.write = _pointer(_WRITE(write), alive)
    recording.truncate = _pointer(_TRUNCATE(truncate), alive)
    recording.sync = _pointer(_SYNC(sync), alive)
    return recording


def _text(path: int) -> str:
    return ctypes.string_at(path).decode()


def _pointer(function: Any, alive: list[object]) -> int | None:  # noqa: ANN401 -- ctypes
    """A Python function as a C pointer; ``alive`` keeps it from being collected."""
    alive.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value


def _library() -> str:
    """The file of the SQLite library that Python's sqlite3 module uses."""
    import sqlite3  # noqa: F401, PLC0415 -- loads it

    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libsqlite3" in line:
            return line.split()[-1]
    raise LookupError("SQLite is part of this Python")


def note_heads(disk: Disk, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the head file at a path noted too, until the patch is undone."""
    write, sync = HeadFile.write, HeadFile.sync

    def noted_write(file: HeadFile, head: Head) -> None:
        write(file, head)
        disk.note("write", path, 0, path.read_bytes())

    def noted_sync(file: HeadFile) -> None:
        sync(file)
        disk.note("sync", path)

    monkeypatch.setattr(HeadFile, "write", noted_write)
    monkeypatch.setattr(HeadFile, "sync", noted_sync)
