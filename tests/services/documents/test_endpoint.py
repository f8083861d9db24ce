"""CONTRIBUTING's new endpoint, followed to the letter in a copy of the packages, and the same as an extension's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import copy_packages

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n# (\S+\.py), (at its end|a new file)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_FILES = 5
CHECKS = """
from pathlib import Path
import json, sys
from fastapi.testclient import TestClient
from typer.testing import CliRunner
from parley.common.service.commands import load_extensions
from parley.learner.api.app import create_learner_app
from parley.learner.cli.client import LearnerClient
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions
from parley.learner.client import AsyncLearner, Learner
sys.path.append(sys.argv[2])
from tests.support.cluster import USER, Cluster

load_extensions()
expected = {"binary": ["made-up"]}
app = create_learner_app(Cluster(Path(sys.argv[1]), n_parties=1).learner_settings())
operation = app.openapi()["paths"]["/v1/kinds"]["get"]
assert (operation["summary"], operation["security"]) == ("The studies by kind", [{"bearer": []}]), operation
with TestClient(app, "http://learner") as http:
    assert http.get("/v1/kinds").status_code == 401
    answer = http.get("/v1/kinds", headers={"Authorization": f"Bearer {USER}"})
    assert answer.json() == expected, answer.text
    if hasattr(Learner, "kinds"):
        assert Learner("http://learner", USER, http._transport).kinds() == expected
        assert Learner.kinds.__doc__ == AsyncLearner.kinds.__doc__
    LearnerOptions.open = lambda _: LearnerClient("http://learner", USER, http._transport)
    run = CliRunner().invoke
    assert run(learner_app, ["kinds"]).stdout == "binary: made-up\\n"
    assert json.loads(run(learner_app, ["kinds", "--format", "json"]).stdout) == expected
assert "List the studies by kind." in run(learner_app, ["--help"]).stdout
for option in ("--url", "--token-file", "--ca", "--format"):
    assert option in run(learner_app, ["kinds", "--help"]).stdout
"""


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str, str]]:
    """The example's blocks: path, where in it, and text."""
    blocks_of_code = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert blocks_of_code
    return blocks_of_code


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages."""
    copy_packages(tmp_path)
    return tmp_path


def run_python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_the_example_is_an_endpoint_with_its_method_and_command(copy: Path, blocks: list[tuple[str, str, str]]) -> None:
    for path, where, text in blocks:
        file = copy / path
        assert file.exists() == (where == "at its end")
        file.write_text("\n\n".join([file.read_text().rstrip() + "\n", text]) if file.exists() else text)
    files = {path for path, *_ in blocks}
    print(f"an endpoint with its method and command touches {len(files)} files")
    assert len(files) <= MOST_FILES
    done = run_python(copy, "-c", CHECKS, str(copy / "cluster"), str(ROOT))
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_route_that_is_not_declared_stops_the_learner(copy: Path, blocks: list[tuple[str, str, str]]) -> None:
    """Every endpoint needs a least role."""
    texts = {path: text for path, _, text in blocks}
    (copy / "learner/api/kinds.py").write_text(texts["learner/api/kinds.py"])
    declared = texts["learner/api/routes.py"].replace("declare(Route", "(Route")
    with (copy / "learner/api/routes.py").open("a") as file:
        file.write(declared)
    done = run_python(copy, "-c", CHECKS, str(copy / "cluster"), str(ROOT))
    assert "LookupError: no least role for [('GET', '/v1/kinds')]" in done.stderr


def test_an_extension_does_the_same_from_outside(tmp_path: Path, blocks: list[tuple[str, str, str]]) -> None:
    texts = {path: text for path, _, text in blocks}
    package = tmp_path / "hospital"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text(
        "from parley.common.service.commands import Printer\n"
        "from parley.learner.api import routes\n"
        "from parley.learner.api.routes import ENDPOINTS, Route, declare\n"
        "from parley.learner.cli.main import learner_app\n"
        "from parley.learner.cli.options import LearnerOptions\n"
        + texts["learner/api/routes.py"].replace("parley.learner.api.kinds", "hospital.endpoints")
        + texts["learner/cli/main.py"].replace("routes.LIST_KINDS", "LIST_KINDS")
    )
    endpoint = texts["learner/api/kinds.py"].replace("import routes", "import routes\nfrom hospital import tools")
    (package / "endpoints.py").write_text(endpoint.replace("routes.LIST_KINDS", "tools.LIST_KINDS"))
    named = {"PARLEY_EXTENSIONS": "hospital.tools"}
    done = run_python(tmp_path, "-c", CHECKS, str(tmp_path / "cluster"), str(ROOT), **named)
    assert done.returncode == 0, done.stderr[-2000:]
    main = "from parley.learner.cli.main import learner_app; learner_app(['kinds', '--help'])"
    assert "List the studies by kind." in run_python(tmp_path, "-c", main, **named).stdout
    refused = run_python(tmp_path, "-c", main, PARLEY_EXTENSIONS="hospital.none")
    assert refused.returncode == 3
    assert refused.stderr == "parley: PARLEY_EXTENSIONS names hospital.none, and there is no such module\n"
