"""What few users need comes by extras: without them the rest works, and what needs one says which."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import parley
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.extras import EXTRAS, MissingExtraError, extra_missing, require_extra
from parley.common.files.cell_tables import sheet_table
from parley.common.files.sources import DataSource
from parley.common.files.tables import open_stream
from parley.learner.api.table_task import TableTask
from parley.learner.api.uploads import _read
from parley.learner.execution.round_report import PublicExamples
from parley.learner.experiments.datasets import load_dataset
from parley.party.data.owner_data import load_holding
from parley.party.settings import PartySettings, Policy
from scripts.make_sbom import PARTS, ROOT

PACKAGES = [package for packages in EXTRAS.values() for package in packages]
FOR_THE_REPOSITORY = {"dask", "dev", "figures"}
STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1")))
BUDGET = {"epsilon": 1, "delta": 0, "max_epsilon_per_run": 1, "max_delta_per_run": 0}
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))
"""
ROLES = """
import parley.learner.api.app, parley.learner.client, parley.party.api.app, parley.party.keyholder.app
import parley.learner.cli.main, parley.party.cli.main
from parley import AsyncLearner, Learner
"""
LEAN = """
import sys
from parley.common.service.commands import without_rich
import parley.learner.cli.main, parley.party.cli.main
with without_rich():
    import parley.common.client.outbound, parley.common.service.logs, parley.common.service.serve
    import parley.learner.api.app, parley.party.api.app, parley.party.keyholder.app, parley.party.owner.page
print([name for name in sys.modules if name.split(".")[0] in {"pyarrow", "duckdb", "sklearn", "rich"}])
import rich
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_table_is_the_extras_of_the_distribution_and_each_is_locked_and_billed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - FOR_THE_REPOSITORY == set(EXTRAS) == set(PARTS) - {"runtime"}
    locked = {name for name in EXTRAS if (ROOT / f"requirements-{name}.lock").exists()}
    assert locked == set(EXTRAS)


@pytest.mark.long
def test_client_services_and_commands_load_without_any_extra() -> None:
    done = run_python(BARE + ROLES)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_service_loads_neither_an_extra_nor_rich_which_stays_to_be_had() -> None:
    done = run_python(LEAN)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def read_rows_sent(folder: Path) -> object:
    return _read(TableTask(path=folder / "rows.csv", study=STUDY, kind="rows", most=9))


@pytest.mark.parametrize(
    ("extra", "use"),
    [
        ("excel", lambda folder: sheet_table(folder / "book.xlsx")),
        ("files", lambda folder: load_holding(PartySettings.model_construct())),
        ("files", lambda folder: PublicExamples.read(folder / "rows.csv", STUDY)),
        ("files", read_rows_sent),
        ("query", lambda folder: open_stream(DataSource(source="SELECT 1 AS x")).__enter__()),
        ("sklearn", lambda folder: Policy.model_validate(BUDGET | {"classifier": {"kind": "tree"}})),
        ("sklearn", lambda folder: load_dataset("wdbc")),
        ("sklearn", lambda folder: load_dataset("digits")),
        ("sklearn", lambda folder: parley.FederatedClassifier),
    ],
)
def test_what_needs_an_extra_says_which(
    extra: str, use: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,0\n")
    for package in EXTRAS[extra]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs pip install 'parley-learning\[{extra}\]'") as missing:
        use(tmp_path)
    assert isinstance(missing.value, InvalidInputError)
    assert isinstance(missing.value, ImportError)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_each_extra_is_asked_for_by_name_and_has_what_it_names_here(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_extra(extra, "this")
    for package in EXTRAS[extra]:
        error = extra_missing(ModuleNotFoundError(name=f"{package}.part"))
        assert str(error) == f"this command needs pip install 'parley-learning[{extra}]'"
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtraError):
                require_extra(extra, "this")
    assert extra_missing(ModuleNotFoundError(name="pyarrows")) is None


def test_a_command_that_needs_one_ends_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,0\n")
    command = (
        BARE + "from parley.learner.cli.main import learner_app\nlearner_app(sys.argv[1:], prog_name='parley-learner')"
    )
    done = run_python(command, "study", "init", str(tmp_path / "rows.csv"))
    assert done.returncode == 3
    assert done.stderr == "parley-learner: this command needs pip install 'parley-learning[files]'\n"
