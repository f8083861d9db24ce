"""Folders and files of a requested mode, with any umask."""

from __future__ import annotations

from pathlib import Path


def make_folder(path: Path, mode: int = 0o755) -> Path:
    """Make a folder with this mode."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """A file of this mode; never readable by more than that, and replaced in one step."""
    draft = path.with_name(path.name + ".new")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    draft.chmod(mode)
    draft.replace(path)
