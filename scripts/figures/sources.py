"""What a result depends on besides its arguments: code, libraries and data, each as a SHA-256.

Algorithms are loaded by name, so no list of imports tells which of them a result used: all of `common` and `learner`
counts, and of the scripts what the measuring module imports, itself included. A module that measures should therefore
import nothing that draws or judges, or a new colour has everything measured again.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from scripts.utility.examples import data_path

ROOT = Path(__file__).parents[2]
WHOLE = ("common", "learner")
LIBRARIES = {library: version(library) for library in ("numpy", "scipy", "scikit-learn")}
"""The versions of what computes."""


@cache
def digest_of_code(module: str, root: Path = ROOT) -> str:
    """Return the digest of the code that a module of this tree may run."""
    package_files = (path for package in WHOLE for path in (root / package).rglob("*.py"))
    return _digest({*package_files, *imported(module, root)}, root)


def imported(module: str, root: Path = ROOT) -> set[Path]:
    """The files of this tree that a module imports, `parley` aside, at any depth; its own among them."""
    files: set[Path] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        if path in files or name.split(".")[0] == "parley" or not path.is_file():
            continue
        files.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    ahead += [alias.name for alias in names]
                case ast.ImportFrom(module=str(package), names=names):
                    ahead += [package, *(f"{package}.{alias.name}" for alias in names)]
    return files


def digest_of_data(folder: str) -> str:
    """Return the digest of the files in a folder of ``$PARLEY_DATA``; raises AbsentError."""
    return _digest_of_folder(data_path(folder))


@cache
def _digest_of_folder(folder: Path) -> str:
    return _digest((path for path in folder.rglob("*") if path.is_file()), folder)


def _digest(files: Iterable[Path], root: Path) -> str:
    """The digest of files and their names, in any order."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
