"""A database that says it is ready has the room that it needs next, even if others fill the disk meanwhile."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from parley.common.errors import UnavailableError
from parley.common.storage.chain import Chain, chain_schema
from tests.support.disks import mounted_disk

KIND = chain_schema("log of tests", 0x7E57)
MEGABYTE = 2**20


def opened(directory: Path) -> Chain:
    return Chain(directory / "log", KIND, lambda _number, _record: None)


def add(chain: Chain, size: int) -> None:
    with chain.transaction() as appending:
        appending.append({}, {"value": os.urandom(size)})


def fill(disk: Path) -> None:
    """Leave no block of a disk free."""
    with suppress(OSError), (disk / "filling").open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """Let this process write no file beyond so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def is_ready(chain: Chain, size: int) -> bool:
    try:
        chain.probe(size)
    except UnavailableError:
        return False
    return True


def is_added(chain: Chain, size: int) -> bool:
    try:
        add(chain, size)
    except UnavailableError:
        return False
    return True


@pytest.mark.parametrize("size", [100, MEGABYTE, 5 * MEGABYTE])
def test_what_is_ready_can_be_written_though_the_disk_is_filled(tmp_path: Path, size: int) -> None:
    with mounted_disk(tmp_path / "disk", megabytes=24):
        chain = opened(tmp_path / "disk")
        assert is_ready(chain, size)
        fill(tmp_path / "disk")
        add(chain, size)
        written = 1
        while is_ready(chain, size):
            add(chain, size)
            written += 1
        refused = 0
        while is_added(chain, size):
            refused += 1
        print(f"{size} bytes on a disk that is full: {written} records promised and written, 0 of those refused")
        (tmp_path / "disk" / "filling").unlink()
        assert is_ready(chain, size)
        add(chain, size)
        chain.close()


def test_a_disk_that_is_full_from_the_beginning_is_not_ready(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk", megabytes=4):
        opened(tmp_path / "disk").close()
        chain = opened(tmp_path / "disk")
        fill(tmp_path / "disk")
        with pytest.raises(UnavailableError, match="the log of tests cannot be written: its disk is full"):
            chain.probe(0)
        chain.close()


def test_a_limit_on_the_size_of_files_is_known(tmp_path: Path) -> None:
    chain = opened(tmp_path)
    assert is_ready(chain, 4 * MEGABYTE)
    with longest_file(4 * MEGABYTE):
        with pytest.raises(UnavailableError, match=r"may write no file longer than 4,194,304 bytes \(RLIMIT_FSIZE\)"):
            chain.probe(4 * MEGABYTE)
        assert not is_added(chain, 4 * MEGABYTE)
        assert is_ready(chain, MEGABYTE)
        assert is_added(chain, MEGABYTE)
    chain.close()


@contextmanager
def folder_of_another() -> Iterator[Path]:
    """A folder of a user whom modes bind, as whom this process acts: nothing binds root."""
    nobody = 65534
    with TemporaryDirectory() as name:  # pytest's own are shut to others
        if os.geteuid():
            yield Path(name)
            return
        os.chown(name, nobody, nobody)
        os.seteuid(nobody)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_folder_that_cannot_be_written_to_is_known() -> None:
    with folder_of_another() as folder:
        chain = opened(folder)
        chain.probe(0)
        folder.chmod(0o500)
        with pytest.raises(UnavailableError, match="cannot be written: its folder cannot be written to"):
            chain.probe(0)
        folder.chmod(0o700)
        chain.probe(0)
        chain.close()
