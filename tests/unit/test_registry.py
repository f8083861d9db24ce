"""Registries: entries that are loaded when they are needed, and those that an operator's extension adds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parley.common.errors import InvalidInputError
from parley.common.registry import Registry
from parley.common.service.commands import ExitCode, load_extensions

EXTENSION = """
from parley.common.algorithms import REGISTRY
from parley.common.forecast.forecasters import FORECASTERS
from parley.learner.experiments.baselines import BASELINES, Baseline, Score

REGISTRY.add("theirs", "their_algorithm:Theirs")
FORECASTERS.add("theirs", FORECASTERS["dp_gd"])
BASELINES.add("chance", Baseline("a coin", lambda trials: Score(0.5, None)))
"""
ALGORITHM = """
from parley.common.algorithms.dp_gd import DpGd

class Theirs(DpGd):
    __slots__ = ()
"""
MAIN = "from parley.learner.cli.main import learner_app; learner_app()"


@pytest.mark.long
def test_an_extension_adds_an_algorithm_its_forecaster_and_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "their_extension.py").write_text(EXTENSION, encoding="utf-8")
    (tmp_path / "their_algorithm.py").write_text(ALGORITHM, encoding="utf-8")
    words = ["simulate", "--algorithm", "theirs", "--repeat", "1", "--baselines", "--format", "json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PARLEY_EXTENSIONS": "their_extension"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["algorithm"] == "theirs"
    assert result["baselines"]["chance"] == 0.5


def test_an_entry_is_an_object_or_a_place() -> None:
    numbers: Registry[float] = Registry("number", one=1.0, pi="math:pi")
    assert dict(numbers) == {"one": 1.0, "pi": 3.141592653589793}
    numbers.add("pi", "math:pi")
    with pytest.raises(InvalidInputError, match="another number has the name 'pi'"):
        numbers.add("pi", 3.0)
    assert numbers["pi"] > 3.0


def test_an_extension_that_does_not_exist_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "an_extension_of_theirs.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PARLEY_EXTENSIONS", " an_extension_of_theirs, json.no_such_module,")
    with pytest.raises(SystemExit) as stopped:
        load_extensions()
    assert stopped.value.code == ExitCode.FAILED
    assert capsys.readouterr().err == (
        "parley: PARLEY_EXTENSIONS names json.no_such_module, and there is no such module\n"
    )
    assert sys.modules.pop("an_extension_of_theirs").LOADED
    monkeypatch.delenv("PARLEY_EXTENSIONS")
    load_extensions()


def test_what_an_extension_itself_lacks_is_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_broken_extension.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PARLEY_EXTENSIONS", "a_broken_extension")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_extensions()
