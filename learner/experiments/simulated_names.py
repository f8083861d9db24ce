"""Which algorithms can be simulated: by name alone, so that help comes without loading any of them."""

from __future__ import annotations

from parley.common.algorithms import AUTO, REGISTRY
from parley.common.errors import InvalidInputError

UNTRAINED = ("ftrl", "evaluate", "describe")
"""Those that train no model, so there is none to measure."""


def simulated_names() -> tuple[str, ...]:
    """What a simulation takes for an algorithm: ``auto`` or one that trains."""
    return (AUTO, *(name for name in REGISTRY if name not in UNTRAINED))


def check_simulated(name: str) -> None:
    """Raise InvalidInputError for an algorithm that cannot be simulated, and say which can."""
    if name in simulated_names():
        return
    why = f"{name} trains no model, so there is none to measure" if name in UNTRAINED else f"unknown algorithm {name!r}"
    raise InvalidInputError(f"{why}; there are {', '.join(simulated_names())}")
