"""The benchmark of the house counts what a small tree has, as it is written down here."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.benchmarks.house import ROOT, WORDS, listed_lines, module_paths, static_figures
from scripts.benchmarks.walks import Tracer, Walk

PLAIN = [word for word in tomllib.loads(WORDS.read_text(encoding="utf-8"))["words"] if word.replace(" ", "").isalpha()]
TWO = next(word for word in PLAIN if " " in word)
NEXT_LINE = "\n#   "  # a comment that goes on
FILES = {
    "one/__init__.py": "",
    "one/a.py": """\
import asyncio
from typing import TYPE_CHECKING

from one.b import double  # a comment

if TYPE_CHECKING:
    from two.c import Record


def quadruple(number: int) -> int:
    given = double(number)
    result = double(given)
    return result


async def quadruples(numbers: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return [quadruple(number) for number in numbers]
""",
    "one/b.py": """\
def double(number):
    return add(number, number)


def add(one, other):
    return one + other
""",
    "two/__init__.py": "import one.b\n",
    "two/c.py": "from one.a import quadruple\n\n\nclass Record:\n    known: int = 0\n",
    "scripts/run.py": "".join(f"# {plain}\n" for plain in PLAIN) + f"# {TWO.replace(' ', NEXT_LINE)} or\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of two packages and a script, with no document."""
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"):
        (tmp_path / name).touch()
    for place, text in FILES.items():
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_the_figures_of_a_small_tree(tree: Path) -> None:
    assert static_figures(tree) == {
        "files": "5",
        "lines": "30",
        "lines a function, median / p90 / max": "2 / 4 / 4",
        "files a folder, median / max": "2 / 3",
        "comments, of lines": "3.3%",
        "vague names, of names assigned": "33.3%",  # `given` of `given`, `result` and `number`; a field does not count
        "lines with listed words, packages": "0",
        "lines with listed words, tests, scripts, documents, pages": str(len(PLAIN) + 1),
        "longest chain of imports, modules": "3",  # two.c, one.a, one.b
        "cycles of imports": "1",  # one.a and two.c, by an import for type checkers
        "modules in cycles": "2",
    }


def test_words_are_found_across_lines_and_in_names(tree: Path) -> None:
    words = [f"scripts/run.py:{line}: {word}" for line, word in enumerate(PLAIN, 1)]
    across = f"scripts/run.py:{len(PLAIN) + 1}: {TWO.replace(' ', ' # ')}"
    script = tree / "scripts" / "run.py"
    assert listed_lines(tree, [script]) == [*words, across]
    name = TWO.replace(" ", "_")
    script.write_text(f"x{name} = 0\n{name}x = 1\ntest_{name}_twice = 2\n", encoding="utf-8")
    assert listed_lines(tree, [script]) == [f"scripts/run.py:3: {name}"]


def test_links_between_packages_count_no_file_twice() -> None:
    paths = [path.resolve() for path in module_paths(ROOT)]
    assert len(paths) == len(set(paths))


def test_calls_are_counted_once_however_often_a_coroutine_goes_on(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "one.b", "one.a"):
        file = tree / "one" / f"{name.partition('.')[2] or '__init__'}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    tracer = Tracer(tree.resolve())
    profile = sys.getprofile()
    sys.setprofile(tracer)
    try:
        tracer.begin()
        result = asyncio.run(sys.modules["one.a"].quadruples([1, 2]))
    finally:
        sys.setprofile(profile)
    assert result == [4, 8]
    assert tracer.take() == Walk(calls=1 + 2 + 2 * 2 * 2, functions=4, files=2, moves=1 + 2 * 2)
