"""Folders and files that their owner alone reads, with any umask."""

from __future__ import annotations

from pathlib import Path


def make_folder(path: Path) -> Path:
    """Make a folder, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_file(path: Path, text: str) -> None:
    """Write a file, which is replaced in one step."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)
