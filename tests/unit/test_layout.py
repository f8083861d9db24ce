"""The map of the house: a public name has one meaning, a constant one value, and modules import in one direction.

Which package may import which is `lint-imports`' to check; its contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.house import components, import_graph, module_paths, read_module

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "learner", "parley", "party")


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for name in public_names(module):
            places[name].add(str(module.relative_to(ROOT)))
    twice = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(twice.items()))


def test_a_module_assigns_a_constant_once() -> None:
    """A second value would silently take the first one's place, in functions above it too."""
    twice = []
    for module in modules():
        times = Counter(name for name in defined_names(module) if name.isupper())
        twice += [f"{module.relative_to(ROOT)}: {name}" for name, n_times in times.items() if n_times > 1]
    assert not twice


def test_no_modules_import_each_other() -> None:
    """Neither at once nor in circles: imports in functions and those for type checkers count."""
    graph = import_graph([read_module(ROOT, path) for path in module_paths(ROOT)], also_later=True)
    assert not [sorted(group) for group in components(graph) if len(group) > 1]


def test_a_shard_is_built_of_rows_that_are_no_secret_alone_where_privacy_is_proven() -> None:
    """A shard that is made of another's rows is made by the shard, which keeps whose they are and how much they count.

    These functions build one of public rows, which are of nobody.
    """
    builders = {"Shard", "SparseShard", "adopt", "assembled"}
    built = {
        f"{module.stem}.{function.name}"
        for package in ("algorithms", "learning", "privacy")
        for module in (ROOT / "common" / package).rglob("*.py")
        for function in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(call, ast.Call) and _called(call) in builders for call in ast.walk(function))
    }
    assert built == {"ensemble.rows_asked", "feature.labelled", "erm.fit_votes", "erm.fit_label_sum"}


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def modules() -> list[Path]:
    """Every module of the packages."""
    return sorted(module for package in PACKAGES for module in (ROOT / package).rglob("*.py"))


def public_names(module: Path) -> Iterator[str]:
    """The names that a module defines at its top level, but for those that begin with an underscore."""
    return (name for name in defined_names(module) if not name.startswith("_"))


def defined_names(module: Path) -> Iterator[str]:
    """The names that a module defines at its top level, once for each time."""
    for statement in ast.parse(module.read_text(encoding="utf-8")).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                nodes = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
                names = [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from names
