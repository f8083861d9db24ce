"""How a command line spells a run's terms."""

from __future__ import annotations

from typing import Any

from parley.common.encoding.canonical_json import NameTwiceError, read_json
from parley.common.errors import InvalidInputError


def read_parameters(given: list[str] | None) -> dict[str, Any]:
    """Pairs NAME=VALUE; a value is JSON where it can be, else text."""
    parameters: dict[str, Any] = {}
    for name, value in map(pair, given or ()):
        try:
            parameters[name] = read_json(value.encode())
        except NameTwiceError:
            raise InvalidInputError(f"{name}: a name is twice in an object of its JSON") from None
        except ValueError:
            parameters[name] = value
    return parameters


def read_budgets(given: list[str] | None) -> dict[str, dict[str, float]]:
    """Pairs PARTY=EPSILON,DELTA."""
    budgets = {}
    for party, value in map(pair, given or ()):
        try:
            epsilon, delta = map(float, value.split(","))
        except ValueError:
            raise InvalidInputError(f"the budget of {party} must be EPSILON,DELTA, not {value!r}") from None
        budgets[party] = {"epsilon": epsilon, "delta": delta}
    return budgets


def read_cohort(given: str | None) -> dict[str, float] | None:
    """LEAST[,MOST[,SECONDS[,HOURS]]], where an empty one is left at its default.

    >>> read_cohort("100,,10")
    {'least': 100, 'seconds': 10.0}
    """
    if given is None:
        return None
    try:
        kinds = {"least": int, "most": int, "seconds": float, "owner_hours": float}
        named = zip(kinds.items(), given.split(","), strict=False)
        rule = {name: kind(value) for (name, kind), value in named if value or name == "least"}
    except ValueError:
        rule = {}
    if not rule or given.count(",") >= len(kinds):
        raise InvalidInputError(f"a cohort must be LEAST[,MOST[,SECONDS[,HOURS]]], not {given!r}")
    return rule


def pair(given: str) -> tuple[str, str]:
    """The parts of NAME=VALUE; raises InvalidInputError."""
    name, separator, value = given.partition("=")
    if not (name and separator):
        raise InvalidInputError(f"{given!r} must be NAME=VALUE")
    return name, value
