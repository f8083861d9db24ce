"""Room on the disk that is kept for what is to be written next."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PIECE = 2**20
_ZEROS = bytes(_PIECE)


def keep_room(path: Path, size: int) -> None:
    """Have a file be at least ``size`` bytes long, on blocks that are its own, in a folder that can be written to.

    What it grows by is written, with zeros: to sync what is later written over them takes about half the time that it
    takes on blocks that were never written.

    Raises OSError where the disk or a quota is full, the process may write no file so long, or nothing at all there.
    """
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if longest != resource.RLIM_INFINITY and size > longest:
        raise OSError(errno.EFBIG, f"this process may write no file longer than {longest:,} bytes (RLIMIT_FSIZE)")
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EACCES, "its folder cannot be written to")
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if (there := os.fstat(descriptor).st_size) < size:
            os.posix_fallocate(descriptor, there, size - there)
            for start in range(there, size, _PIECE):
                os.pwrite(descriptor, _ZEROS[: size - start], start)
    finally:
        os.close(descriptor)


def why_unwritable(error: OSError) -> str:
    """Why nothing can be written, in words."""
    return "its disk is full" if error.errno in _FULL else f"{error.strerror}"
