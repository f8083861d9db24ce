"""Simulates runs for researchers. This module names the algorithms that can be simulated, so that help loads none."""

from __future__ import annotations

from parley.common.algorithms import AUTO, REGISTRY
from parley.common.encoding.texts import did_you_mean
from parley.common.errors import InvalidInputError

UNTRAINED = ("ftrl", "evaluate", "describe")
"""The algorithms that train no model that could be measured."""


def simulated_names() -> tuple[str, ...]:
    """Return the algorithms that a simulation takes: ``auto`` and all that train a model."""
    return (AUTO, *(name for name in REGISTRY if name not in UNTRAINED))


def check_simulated(name: str) -> None:
    """Raise InvalidInputError for an algorithm that cannot be simulated, and say which can."""
    if name in simulated_names():
        return
    reason, near = f"unknown algorithm {name!r}", did_you_mean(name, simulated_names())
    if name in UNTRAINED:
        reason, near = f"{name} trains no model, so there is none to measure", ""
    raise InvalidInputError(f"{reason}; there are {', '.join(simulated_names())}{near}")
