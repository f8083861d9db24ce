"""Runs the code of another checkout with this environment, also of one whose packages were not yet in ``parley``."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path


def environment_of(checkout: Path, folder: Path) -> dict[str, str]:
    """This process's environment, with a checkout's code in place of what is installed.

    A folder of its own gets the metadata that an installation would have: code asks it for the version.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    metadata = folder / f"{project.replace('-', '_')}-0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 0\n", encoding="utf-8")
    return os.environ | {"PYTHONPATH": f"{checkout}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}


def command_of(checkout: Path, role: str) -> tuple[str, ...]:
    """The start of a command of a ``learner`` or a ``party`` of a checkout, in place of its installed script."""
    package = f"parley.{role}" if (checkout / "parley" / role).exists() else role
    return sys.executable, "-P", "-c", f"from {package}.cli.main import {role}_app; {role}_app()"
