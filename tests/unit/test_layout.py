"""The map of the house: a public name has one meaning.

Which package may import which is `lint-imports`' to check; its contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "learner", "parley", "party")


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for name in public_names(module):
            places[name].add(str(module.relative_to(ROOT)))
    twice = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(twice.items()))


def modules() -> list[Path]:
    """Every module of the packages."""
    return sorted(module for package in PACKAGES for module in (ROOT / package).rglob("*.py"))


def public_names(module: Path) -> Iterator[str]:
    """The names that a module defines at its top level, but for those that begin with an underscore."""
    for statement in ast.parse(module.read_text(encoding="utf-8")).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))
