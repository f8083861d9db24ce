"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """In the place of a clock of the code under test: whole seconds since some moment."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        """The time."""
        return self.now
