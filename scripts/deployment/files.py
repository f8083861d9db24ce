"""Folders and files that their owner alone reads, with any umask."""

from __future__ import annotations

import os
from pathlib import Path

DRAFT = ".new"
"""The suffix of a file that is being written."""


def make_folder(path: Path) -> Path:
    """Make a folder, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_file(path: Path, text: str) -> None:
    """Write a file, which is replaced in one step, and is on the disk at the end."""
    draft = path.with_name(path.name + DRAFT)
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.chmod(0o600)
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
