"""Folders and files that their owner alone reads, with any umask."""

from __future__ import annotations

from pathlib import Path

from parley.common.storage.keys import replace_private


def make_folder(path: Path) -> Path:
    """Make a folder, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_file(path: Path, text: str) -> None:
    """Write a file, which is replaced in one step, and is on the disk at the end."""
    replace_private(path, text.encode())


def is_draft(path: Path) -> bool:
    """Whether a file is what `write_file` had not finished when it was ended."""
    return path.name.startswith(".")
