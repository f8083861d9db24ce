"""Small disks in memory, where this user may mount them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(path: Path, megabytes: int = 1) -> Iterator[None]:
    """A disk of this size at a path; skips the test of a user who may mount none."""
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
