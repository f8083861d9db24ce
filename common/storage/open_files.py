"""The files that a process has open, and whether the names that it opened them by are still theirs.

A name can go to another file while the first is open: something is renamed over it (as rsync and restore tools do), it
is deleted, its folder is moved away, or something is mounted there. The process would go on reading and writing a file
that nobody else finds and that is gone with the process.
"""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from parley.common.errors import UnavailableError

_ADVICE = (
    "stop the service, put the newest files in place together, and start it again: it checks what it finds; a file "
    "that was moved may be moved back while the service runs"
)


class OpenFiles:
    """The open files of one thing, which is called ``what`` in errors, by name."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._identities: dict[str, tuple[int, int]] = {}
        self._logged: str | None = None

    def watch(self, path: Path, descriptor: int | None = None) -> None:
        """Watch the name of a file: of the one that is open as ``descriptor``, or of the one it stands for now."""
        status = os.stat(path) if descriptor is None else os.fstat(descriptor)  # noqa: PTH116 -- one way for both
        self._identities[str(path)] = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raise UnavailableError where a name does not stand for the open file any more; the log says what to do."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                raise self._replaced(path)
        self._logged = None

    def check_first(self, *paths: Path) -> None:
        """The same of some names; of all, once one of all was another file's, so that nothing more is done then."""
        if self._logged is not None:
            self.check()
        for name in map(str, paths):
            if _identity(name) != self._identities[name]:
                raise self._replaced(name)

    def _replaced(self, path: str) -> UnavailableError:
        """The error for a name of another file, which is logged once."""
        if self._logged != path:
            self._logged = path
            structlog.get_logger().error("replaced", what=self._what, path=path, advice=_ADVICE)
        return UnavailableError(
            f"a file of the {self._what} was replaced, moved or deleted while it was open: nothing is read from it or "
            "written until its service is started again"
        )

    @property
    def are_others(self) -> bool:
        """Whether a name stands for another file now; not where it stands for none."""
        now = {path: _identity(path) for path in self._identities}
        return any(now[path] not in {None, identity} for path, identity in self._identities.items())


def _identity(path: str) -> tuple[int, int] | None:
    """The device and the number of the file that a name stands for; None where it cannot be seen."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- for each file in each transaction: a Path costs as much as the call
    except OSError:
        return None
    return status.st_dev, status.st_ino
