"""What parties and learners share."""

from __future__ import annotations

from importlib import metadata


def parley_version() -> str:
    """The version of Parley that is installed, such as "1.2.3"; raises PackageNotFoundError where none is."""
    return metadata.version("parley-learning")
