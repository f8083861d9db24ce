"""The map of the house: short ways through it, one meaning for each name, few modules in a folder.

Which package may import which is `lint-imports`' to check; its contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "learner", "parley", "party")
LONGEST_CHAIN = 10
MODULES_IN_A_FOLDER = 15
A_FILE_EACH = {Path("common/algorithms")}
"""Folders of modules that know nothing of each other, one an entry of a registry: these may grow."""


def test_no_chain_of_imports_is_long() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)

    @cache
    def chain(module: str) -> tuple[str, ...]:
        """The longest chain of imports that begins with a module, whether a module or a function does the importing."""
        imported = map(chain, sorted(graph.find_modules_directly_imported_by(module)))
        return (module, *max(imported, key=len, default=()))

    longest = max(map(chain, sorted(graph.modules)), key=len)
    print(f"the longest chain of imports has {len(longest)} modules: {' > '.join(longest)}")
    assert len(longest) <= LONGEST_CHAIN, " > ".join(longest)


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for name in public_names(module):
            places[name].add(str(module.relative_to(ROOT)))
    twice = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(twice.items()))


def test_a_folder_holds_few_modules() -> None:
    folders: dict[Path, int] = defaultdict(int)
    for module in modules():
        folders[module.parent.relative_to(ROOT)] += 1
    full = {str(folder): count for folder, count in folders.items() if count > MODULES_IN_A_FOLDER}
    assert not full.keys() - {str(folder) for folder in A_FILE_EACH}


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
