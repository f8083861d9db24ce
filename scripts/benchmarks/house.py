"""Figures on reading the code: sizes, names, imports, and how far one call walks through the files.

    python -m scripts.benchmarks.house [--against ../before]

A table of this checkout and, with ``--against``, of another one, which this environment can run. The packages are the
folders at the top that have an ``__init__.py``; tests and scripts do not count, except for the words.

- A function's lines are those from its ``def`` to its end. A line has a comment if a ``#`` begins one there.
- Names are all that modules and functions assign, once for each assignment; fields of classes and arguments are not
  counted. A name is vague if it is on the list of ``tests/unit/words.toml``, underscores aside.
- A chain of imports is modules that each import the next as they are loaded. A cycle is a set of modules that all reach
  each other by imports, those inside functions and for type checkers included.
- The walks are counted by ``scripts/benchmarks/walks.py``, which says what a call, a move and a frame are.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.benchmarks.checkouts import environment_of

ROOT = Path(__file__).resolve().parents[2]
WORDS = ROOT / "tests" / "unit" / "words.toml"
WALKS = Path(__file__).with_name("walks.py")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = ("*.html", "*.js")

Imports = Mapping[str, set[str]]
"""The modules that each module imports, by name."""


def main() -> None:
    """Measure, and print a table of the figures."""
    parser = argparse.ArgumentParser(description="What it takes to read the code.")
    parser.add_argument("--against", type=Path, help="a checkout to compare with, which this environment can run")
    other: Path | None = parser.parse_args().against
    columns = ({"before": figures(other.resolve())} if other else {}) | {"now": figures(ROOT)}
    rows = [("", *columns), *((name, *(column[name] for column in columns.values())) for name in columns["now"])]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for first, *numbers in rows:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        print(first.ljust(widths[0]), *cells, sep="  ")


def figures(root: Path) -> dict[str, str]:
    """Return all figures of a checkout, by name."""
    return static_figures(root) | walk_figures(root)


# ── what the files say ───────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file of the packages: its dotted name, without a package around all others, its text and its tree."""

    name: str
    is_package: bool
    text: str
    tree: ast.Module


def static_figures(root: Path) -> dict[str, str]:
    """Return the figures that follow from the files alone."""
    modules = [read_module(root, path) for path in module_paths(root)]
    n_lines = sum(len(module.text.splitlines()) for module in modules)
    lengths = [length for module in modules for length in function_lengths(module.tree)]
    folders = Counter(path.parent for path in module_paths(root))
    names = Counter(name.strip("_") for module in modules for name in assigned_names(module.tree))
    n_vague = sum(names[name] for name in vague_names())
    loaded, every = (import_graph(modules, also_later=also_later) for also_later in (False, True))
    cycles = [group for group in components(every) if len(group) > 1]
    in_packages = len(listed_lines(root, module_paths(root)))
    return {
        "files": str(len(modules)),
        "lines": str(n_lines),
        "lines a function, median / p90 / max": " / ".join(
            f"{number:.0f}" for number in (statistics.median(lengths), quantile(lengths, 0.9), max(lengths))
        ),
        "files a folder, median / max": f"{statistics.median(folders.values()):.0f} / {max(folders.values())}",
        "comments, of lines": f"{sum(count_comments(module.text) for module in modules) / n_lines:.1%}",
        "vague names, of names assigned": f"{n_vague / names.total():.1%}",
        "lines with listed words, packages": str(in_packages),
        "lines with listed words, tests, scripts, documents, pages": str(
            len(listed_lines(root, text_paths(root))) - in_packages
        ),
        "longest chain of imports, modules": str(longest_chain(loaded)),
        "cycles of imports": str(len(cycles)),
        "modules in cycles": str(sum(map(len, cycles))),
    }


def module_paths(root: Path) -> list[Path]:
    """The Python files of all packages at the top of a checkout; a link to a folder is not followed."""
    return sorted(path for package in root.glob("*/__init__.py") for path in package.parent.rglob("*.py"))


def text_paths(root: Path) -> list[Path]:
    """All files whose language is checked: code, documents and pages."""
    folders = sorted({path.parent for path in root.glob("*/__init__.py")} | {root / "scripts", root / "tests"})
    code = [path for folder in folders for path in folder.rglob("*.py")]
    pages = [path for folder in (*folders, root / "docs") for kind in PAGES for path in folder.rglob(kind)]
    return sorted([*code, *pages, *(root / "docs").rglob("*.md"), *(root / name for name in DOCUMENTS)])


def read_module(root: Path, path: Path) -> Module:
    """Read and parse the module at a path."""
    parts = path.relative_to(root).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), is_package, text, ast.parse(text))


def function_lengths(tree: ast.Module) -> list[int]:
    """The lines of each function of a module, methods and inner functions included."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]


def quantile(values: list[int], share: float) -> int:
    """The least of the values that is not below this share of them."""
    return sorted(values)[int(share * len(values))]


def count_comments(text: str) -> int:
    """The lines of a module that have a comment."""
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline))


def assigned_names(node: ast.AST, *, in_class: bool = False) -> Iterator[str]:
    """The names that are assigned in a tree, once for each time, but for fields of classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and not in_class:
            yield child.id
        is_class = isinstance(child, ast.ClassDef)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from assigned_names(child, in_class=is_class or (in_class and not is_function))


# ── words ────────────────────────────────────────────────────────────────────


def vague_names() -> list[str]:
    """The names that do not say what they hold."""
    vague: list[str] = tomllib.loads(WORDS.read_text(encoding="utf-8"))["names"]["vague"]
    return vague


@cache
def listed_words() -> re.Pattern[str]:
    """Finds the words that this project does without, also as a part of a name, or with a line's end between two."""
    words = "|".join(tomllib.loads(WORDS.read_text(encoding="utf-8"))["words"])
    between = r"(?:[ \t_]+|[ \t]*\n[ \t]*(?:#|//|\*)?[ \t]*)"  # also a new line, which a comment's sign may begin
    return re.compile(rf"(?<![a-z])(?:{words.replace(' ', between)})(?![a-z])", re.IGNORECASE)


def listed_lines(root: Path, paths: list[Path]) -> list[str]:
    """The lines of files that have such a word, as ``path:line: word``."""
    lines = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        words = {text.count("\n", 0, match.start()) + 1: match[0] for match in listed_words().finditer(text)}
        lines += [f"{path.relative_to(root)}:{line}: {' '.join(word.split())}" for line, word in words.items()]
    return lines


# ── imports ──────────────────────────────────────────────────────────────────


def import_graph(modules: list[Module], *, also_later: bool) -> Imports:
    """The modules that each module imports when it is loaded, or ``also_later`` or for type checkers alone."""
    top = {module.name.partition(".")[0] for module in modules}
    names = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        imported = set()
        for statement in import_statements(module.tree, also_later=also_later):
            for name in imported_names(module, statement):
                inner = name.removeprefix("parley.")
                plain = inner if inner.partition(".")[0] in top else name
                imported.add(plain if plain in names else plain.rpartition(".")[0])
        graph[module.name] = imported & names - {module.name}
    return graph


def import_statements(node: ast.AST, *, also_later: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements of a tree; unless ``also_later`` those that run when the module is loaded."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not also_later:
            for otherwise in child.orelse:
                yield from import_statements(otherwise, also_later=False)
        elif also_later or not is_function:
            yield from import_statements(child, also_later=also_later)


def imported_names(module: Module, statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The dotted names that a statement imports, each a module or a name of one."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    parts = module.name.split(".")
    package = parts[: len(parts) + module.is_package - statement.level] if statement.level else []
    place = ".".join([*package, *([statement.module] if statement.module else [])])
    return [f"{place}.{alias.name}" for alias in statement.names]


def components(graph: Imports) -> list[set[str]]:
    """The sets of modules that all reach each other, each after those that it reaches (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []
    groups: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        open_modules.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in open_modules:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            start = open_modules.index(name)
            groups.append(set(open_modules[start:]))
            del open_modules[start:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return groups


def longest_chain(graph: Imports) -> int:
    """The most modules on a way along the imports; a cycle counts with all of its modules."""
    length: dict[str, int] = {}
    for group in components(graph):
        beyond = {other for name in group for other in graph[name]} - group
        length |= dict.fromkeys(group, len(group) + max((length[other] for other in beyond), default=0))
    return max(length.values(), default=0)


# ── walks ────────────────────────────────────────────────────────────────────


def walk_figures(root: Path) -> dict[str, str]:
    """The figures of running a checkout's code, in a separate process."""
    with tempfile.TemporaryDirectory(prefix="parley-house-") as folder:
        environment = environment_of(root, Path(folder))
        command = (sys.executable, "-P", WALKS)
        walked = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE)  # noqa: S603 -- our own
    document = json.loads(walked.stdout.splitlines()[-1])
    walks = {
        f"{name}: calls / functions / files / moves": " / ".join(map(str, walk.values()))
        for name, walk in document["walks"].items()
    }
    return walks | {"frames before a byte of a query leaves": str(document["frames"])}


if __name__ == "__main__":
    main()
