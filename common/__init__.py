"""What parties and learners share."""

from __future__ import annotations


def parley_version() -> str:
    """Return the version of Parley that is installed, such as "1.2.3"; raises PackageNotFoundError where none is."""
    from importlib import metadata  # noqa: PLC0415 -- it loads much, and every import of Parley passes here

    return metadata.version("parley-learning")
