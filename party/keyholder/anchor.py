"""By what a journal knows that it is where it was written: a file that no copy has.

Each record of the journal names an empty file that was made for it, by device, inode and time of change (ctime), and
the boot of the machine; the file of the record before is deleted. All that puts files back (cp, tar, rsync, a backup of
files, another volume) makes that file anew or changes it, and nothing sets a ctime: so a journal that was put back,
whole or in part and wherever, names a file that is not there. What puts a disk back as it was (a snapshot of a virtual
machine) starts the machine anew.

A process that is killed leaves file and record as they are, and a record that was not committed leaves the file of the
one before: so a service that starts again in its place goes on.

Not noticed: storage that goes back under a machine that runs on (``zfs rollback``, a snapshot of a volume under the
same device number), and a snapshot of a machine's memory.
"""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path

from parley.common.storage.keys import writing

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Anchors:
    """The folder of the file that a journal's newest record names. Methods raise UnavailableError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self) -> str:
        """Make the file of a record that is about to be written, which names it so."""
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._directory / secrets.token_hex(8)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return _spelt(path)

    def others(self, anchor: str | None) -> list[Path]:
        """The files of other records, and of those that were never committed."""
        held = anchor and anchor.partition(" ")[0]
        with writing(self._directory):
            files = list(self._directory.iterdir()) if self._directory.exists() else []
        return [path for path in files if path.name != held]

    def keep_only(self, anchor: str | None) -> None:
        """Delete the files of all other records."""
        with writing(self._directory):
            for path in self.others(anchor):
                path.unlink()

    def holds(self, anchor: str | None) -> bool:
        """Whether the file that a record names is the one that was made for it, in this boot of the machine."""
        if anchor is None:
            return False
        try:
            return _spelt(self._directory / anchor.partition(" ")[0]) == anchor
        except OSError:
            return False


def _spelt(path: Path) -> str:
    """A file as a record names it."""
    found = path.stat(follow_symlinks=False)
    return f"{path.name} {_boot()} {found.st_dev} {found.st_ino} {found.st_ctime_ns}"


@cache
def _boot() -> str:
    """This boot of the machine; where no file says it, this process: no journal outlives that then."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return secrets.token_hex(16)
