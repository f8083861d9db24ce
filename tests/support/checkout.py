"""A copy of the packages to try a change in, as CONTRIBUTING.md tells it."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "learner", "party")
"""The folders of the packages, to which those in ``parley`` are links."""
QUICK = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def copy_packages(to: Path) -> None:
    """Copy this repository's packages, and the links to them, into a folder."""
    for name in ("parley", *PACKAGES):
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))


@dataclass(frozen=True, slots=True)
class Checkout:
    """The packages below ``root``, where processes import them from."""

    root: Path

    @classmethod
    def copied(cls, root: Path) -> Checkout:
        """A copy of this repository's packages and reference documents."""
        copy_packages(root)
        shutil.copytree(ROOT / "docs/reference", root / "docs/reference")
        return cls(root)

    def write(self, path: str, text: str) -> None:
        """Write a new file."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def insert(self, path: str, text: str, before: str) -> None:
        """Put text before the only place in a file that has the text ``before``."""
        source = (self.root / path).read_text(encoding="utf-8")
        assert source.count(before) == 1, f"{before!r} is in {path} {source.count(before)} times"
        (self.root / path).write_text(source.replace(before, text + before), encoding="utf-8")

    def python(self, *arguments: str) -> str:
        """What a Python process prints that imports the copy."""
        environment = os.environ | {"PYTHONPATH": str(self.root)} | QUICK
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def command(self, *arguments: str) -> str:
        """What ``parley-learner`` prints."""
        return self.python("-c", "from parley.learner.cli.main import learner_app; learner_app()", *arguments)

    def changed(self) -> list[str]:
        """The files that are new or differ from this repository's."""
        files = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return sorted(
            str(path)
            for path in files
            if path.parts[0] != "parley"  # links to the packages
            and not ((ROOT / path).exists() and filecmp.cmp(self.root / path, ROOT / path, shallow=False))
        )
