"""What one knows of a chain of records in short."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A chain's length and its last link, 64 hexadecimal digits; an empty chain has 0 and 64 zeros."""

    count: int
    link: str
