"""The examples in docstrings as tests of mutants: pytest itself would collect those of each mutant's copy as well."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from mutmut.utils.file_utils import walk_mutatable_files

_MODULES = sorted({str(path).removesuffix(".py").replace("/", ".") for path in walk_mutatable_files()})


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The names and docstrings of a module and of all that is defined in it, but for copies by mutmut."""
    yield module.__name__, module.__doc__ or ""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) == module.__name__ and "__mutmut" not in name:
            yield name, value.__doc__ or ""
            if isinstance(value, type):
                members = ((key, member.__doc__) for key, member in vars(value).items() if "__mutmut" not in key)
                yield from ((f"{name}.{key}", text) for key, text in members if isinstance(text, str))


@pytest.mark.parametrize("name", _MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    module, runner = import_module(name), doctest.DebugRunner()
    for place, text in _documented(module):
        if ">>>" in text:
            runner.run(doctest.DocTestParser().get_doctest(text, dict(vars(module)), place, name, 0))
