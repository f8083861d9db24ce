"""How a chain grows: it is never shortened, because what it holds stays charged, so its owner watches the disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Growth:
    """A file's ``entries`` and ``size`` in bytes, and the bytes that are ``free`` on its disk."""

    entries: int
    size: int
    free: int

    @classmethod
    def of(cls, folder: Path, entries: int, size: int) -> Growth:
        """Return how a file in a folder has grown."""
        return cls(entries, size, shutil.disk_usage(folder).free)

    @property
    def entry_size(self) -> float:
        """Bytes an entry, on average."""
        return self.size / max(self.entries, 1)

    def __str__(self) -> str:
        """Return it in words.

        >>> print(Growth(entries=1000, size=2_700_000, free=41_000_000_000))
        1,000 entries in 2.7 MB, 2.7 kB each; 41 GB of its disk are free, for about 15 million more
        """
        entries = "1 entry" if self.entries == 1 else f"{self.entries:,} entries"
        more = _count(self.free / self.entry_size) if self.entries else "0"
        taken = f"{entries} in {_bytes(self.size)}, {_bytes(self.entry_size)} each"
        return f"{taken}; {_bytes(self.free)} of its disk are free, for about {more} more"

    @property
    def facts(self) -> dict[str, float]:
        """The same for programs."""
        return {
            "entries": self.entries,
            "bytes": self.size,
            "bytes_per_entry": round(self.entry_size, 1),
            "free_bytes": self.free,
        }


def store_size(path: Path) -> str:
    """Return the bytes of a database and those that are free on its disk, in words."""
    return f"{_bytes(path.stat().st_size)}; {_bytes(shutil.disk_usage(path.parent).free)} of its disk are free"


def _bytes(number: float) -> str:
    """Return a number of bytes to two digits, such as 2.7 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:  # noqa: PLR2004 -- which rounds to 1000
            return f"{number:.{int(number < 9.95)}f} {unit}"  # noqa: PLR2004 -- as above
        number /= 1000
    return f"{number:.1f} TB"


def _count(number: float) -> str:
    """Return a large number in words.

    >>> _count(15_185_000), _count(950), _count(7300)
    ('15 million', '950', '7,300')
    """
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.{int(number / size < 10)}f} {word}"  # noqa: PLR2004 -- two digits
    return f"{number:,.0f}" if number < 1000 else f"{round(number, -2):,.0f}"  # noqa: PLR2004
