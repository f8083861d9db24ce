"""Leave of a Debian base what Python loads: ``python slim_system.py``, as root in the image that is being built.

Shell, package managers, Perl and all other programs go, so that an intruder finds none, and so do manuals and
translations. The list of Debian's packages keeps those that stay, for scanners of known vulnerabilities.
"""

from __future__ import annotations

import re
import shutil
from itertools import chain
from pathlib import Path

_KEPT = re.compile(
    r"base-(files|passwd)|ca-certificates|gcc-\d+-base|media-types|netbase|openssl|tzdata|zlib1g|python3(\.\d+)?(-minimal)?"
    r"|lib(bz2|c6|com-err|crypt1|expat|ffi|gcc|gdbm|gssapi|k5crypto|keyutils|krb5|lzma|ncursesw|nsl|python3"
    r"|readline|sqlite3|ssl3|stdc\+\+|tinfo|tirpc|uuid)[-\w.]*"
)
"""The packages whose files Python and its extensions load."""

_RUBBISH = (
    "etc/alternatives",
    "etc/apt",
    "root/.cache",
    "tmp/*",
    "usr/bin/pip*",
    "usr/lib/*/gconv",
    "usr/lib/python3/dist-packages/*",
    "usr/{local/,}lib/python3*/ensurepip",
    "usr/{local/,}lib/python3*/idlelib",
    "usr/{local/,}lib/python3*/lib-dynload/_dbm*",
    "usr/{local/,}lib/python3*/lib-dynload/_test*",
    "usr/{local/,}lib/python3*/lib2to3",
    "usr/{local/,}lib/python3*/pydoc_data",
    "usr/{local/,}lib/python3*/test",
    "usr/local/bin/idle*",
    "usr/local/bin/pip*",
    "usr/local/lib/python3*/site-packages/*",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/changelog*",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/python-wheels",
    "var/cache/*",
    "var/lib/apt",
    "var/log/*",
)


def slim_system(root: Path) -> list[str]:
    """Remove it under a root; the packages that stay."""
    records = root / "var/lib/dpkg"
    entries = dict(re.findall(r"(?ms)^(?=Package: (\S+)$)(.+?\n)(?:\n|\Z)", (records / "status").read_text("utf-8")))
    remaining = {name for name in entries if _KEPT.fullmatch(name)}
    files = {name: _files(records / "info", name) for name in entries}
    staying = set(chain.from_iterable(files[name] for name in remaining))
    for name in entries.keys() - remaining:
        for file in files[name] - staying:
            path = root / file.lstrip("/")
            if path.is_symlink() or path.is_file():  # a folder may hold others' files
                path.unlink()
        for record in _records(records / "info", name):
            record.unlink()
    for pattern in chain.from_iterable(map(_alternatives, _RUBBISH)):
        for match in list(root.glob(pattern)):
            shutil.rmtree(match) if match.is_dir() and not match.is_symlink() else match.unlink(missing_ok=True)
    for link in (root / "usr/bin").iterdir():
        if not link.exists():  # what it led to is gone
            link.unlink()
    (records / "status").write_text("\n".join(entries[name] for name in sorted(remaining)), "utf-8")
    return sorted(remaining)


def _records(info: Path, package: str) -> list[Path]:
    """Return what dpkg keeps of a package: ``NAME.list``, ``NAME:amd64.md5sums`` and so on."""
    return [file for file in info.iterdir() if file.name.rpartition(".")[0].partition(":")[0] == package]


def _files(info: Path, package: str) -> set[str]:
    """The files that a package has installed, by dpkg's list, without copyright notices."""
    lists = [record for record in _records(info, package) if record.suffix == ".list"]
    return {line for path in lists for line in path.read_text("utf-8").splitlines() if not line.endswith("/copyright")}


def _alternatives(pattern: str) -> list[str]:
    """A pattern for each of the words that braces in it offer."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [match[1] + word + match[3] for word in match[2].split(",")] if match else [pattern]


if __name__ == "__main__":
    print("left:", *slim_system(Path("/")))
