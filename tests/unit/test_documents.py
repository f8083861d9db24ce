"""The documents keep to the tree: commands and paths that they name exist, and their examples run as written."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parley.common.algorithms import REGISTRY, AlgorithmRegistry
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.forecast.forecasters import forecaster_of
from parley.common.learning.losses import Logistic, Softmax
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from scripts.benchmarks.house import listed_lines
from tests.contracts.algorithms import Case
from tests.contracts.proving import prove

ROOT = Path(__file__).parents[2]
TOP = {path.name for path in ROOT.iterdir()}
DECISIONS = ROOT / "docs" / "decisions"
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
WITH_PATHS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
MAKES = ("README.md", "CONTRIBUTING.md")
LONGEST_LINE = 130


def text(document: str | Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def examples() -> dict[str, str]:
    """The Python blocks of CONTRIBUTING.md that are files, by the path on their first line."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", text("CONTRIBUTING.md"), re.MULTILINE | re.DOTALL)
    return dict(blocks)


def paths(document: str | Path) -> Iterator[str]:
    """What stands in backticks and begins with the name of something at the top of the repository."""
    given = set(examples()) if document == "CONTRIBUTING.md" else set()  # files that its examples have the reader write
    for quoted in re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text(document), flags=re.MULTILINE | re.DOTALL)
    ):
        for word in quoted.split():
            name = word.rstrip(".,:")
            if name.partition("/")[0] in TOP and "/" in name and name not in given:
                yield name


def test_the_description_of_the_distribution_needs_no_repository() -> None:
    """A package index shows it alone: a relative link or a picture would lead nowhere."""
    readme = tomllib.loads(text("pyproject.toml"))["project"]["readme"]
    links = re.findall(r"\]\(([^)\s]+)|^\[[^\]]+\]:\s*(\S+)|(?:href|src)=\"([^\"]+)", text(readme), re.MULTILINE)
    assert not [link for parts in links for link in parts if link and not link.startswith("https://")]
    assert "![" not in text(readme)
    assert "<img" not in text(readme)


@pytest.mark.parametrize("document", MAKES)
def test_every_make_that_is_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    code = re.findall(r"`make ([a-z]+)[^`]*`|^make ([a-z]+)", text(document), re.MULTILINE)
    named = {quoted or typed for quoted, typed in code}
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", [*WITH_PATHS, *sorted(DECISIONS.glob("*.md"))], ids=str)
def test_every_path_that_is_named_exists(document: str | Path) -> None:
    missing = [name for name in paths(document) if not any(ROOT.glob(name.rstrip("/")))]
    assert not missing


@pytest.mark.parametrize("document", [*DOCUMENTS, *sorted((ROOT / "docs").glob("**/*.md"))], ids=str)
def test_links_lead_to_files_and_lines_are_short(document: str | Path) -> None:
    folder = (ROOT / document).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text(document))
    assert not [link for link in links if not (folder / link).exists()]
    if document != "README.md":
        assert not [line for line in text(document).splitlines() if len(line) > LONGEST_LINE and line[0] != "|"]


def test_no_document_has_a_listed_word() -> None:
    documents = [ROOT / name for name in DOCUMENTS] + [*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/notebooks/*.ipynb")]
    assert not listed_lines(ROOT, documents), "tests/unit/words.toml says what to write instead"


def test_the_index_of_decisions_has_each_of_them() -> None:
    records = {path.name for path in DECISIONS.glob("0*.md")}
    assert set(re.findall(r"\((0\d{3}-[a-z0-9-]+\.md)\)", text(DECISIONS / "README.md"))) == records


def test_every_package_is_in_the_layout() -> None:
    packages = [path.parent for side in ("common", "learner", "party") for path in (ROOT / side).glob("*/__init__.py")]
    layout = text("ARCHITECTURE.md").split("## The map")[1]
    missing = [f"{package.name}/" for package in packages if f"{package.name}/" not in layout]
    assert not missing


def test_every_algorithm_is_in_the_table_of_algorithms() -> None:
    table = [line for line in text("docs/reference/algorithms.md").splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table)))
    assert named == {name for name in REGISTRY if name != "probe"}


def test_the_table_of_algorithms_says_who_takes_two_classes_alone() -> None:
    rows = [line.split("|") for line in text("docs/reference/algorithms.md").splitlines() if line.startswith("| `")]
    said = {name: row[4].strip() for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    sizes, public = np.full(3, 100), np.ones((20, 4))
    terms = {"epsilon": 1.0, "delta": 1e-5, "n_features": 4, "public": public, "public_shape": public.shape}
    facts = FederationFacts.uniform(sizes, **terms, loss=Softmax(3))  # type: ignore[arg-type]
    found = dict.fromkeys(said, "any")
    for name in said:
        try:
            REGISTRY[name]().questions(facts)
        except InvalidInputError as error:
            found[name] = "two" if "a loss of one score" in str(error) else "any"  # or no such public rows
    assert found == said


def test_algorithms_with_a_forecast_are_those_that_are_said_to_have_one() -> None:
    said = re.findall(
        r"Forecasts of a model there are for (.*?);", " ".join(text("docs/explanation/forecasts.md").split())
    )
    having = {name for name in set(REGISTRY) - {"probe"} if not isinstance(forecaster_of(REGISTRY[name]()), str)}
    assert set(re.findall(r"`(\w+)`", said[0])) == having


# ── the examples of CONTRIBUTING.md ──────────────────────────────────────────


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AlgorithmRegistry:
    """The examples as the modules that they say they are, and a registry of the lines that the text gives for them."""
    for place, source in examples().items():
        if not place.startswith("common/"):
            continue
        file, module = tmp_path / place, "parley." + place.removesuffix(".py").replace("/", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec
        assert spec.loader
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module, made)
        spec.loader.exec_module(made)
    return AlgorithmRegistry(
        **dict(re.findall(r'`(\w+)="(parley\.common\.algorithms\.[\w.]+:\w+)",`', text("CONTRIBUTING.md")))
    )


def test_the_examples_train(registry: AlgorithmRegistry) -> None:
    rng, k, n, d = np.random.default_rng(5), 3, 200, 4
    X = rng.normal(size=(k, n, d)) / np.sqrt(4 * d)
    truth, rows = np.array([1.0, -1.0, 0.5, 0.0]), rng.normal(size=(20, d)) / np.sqrt(4 * d)
    shard = Shard(X, np.where(X @ truth > 0, 1.0, -1.0))
    terms = {"epsilon": 1.0, "delta": 1e-5, "n_features": d, "loss": Logistic()}
    public = {"public": rows, "public_shape": rows.shape}
    facts = FederationFacts.uniform(np.full(k, n), **(terms | public))  # type: ignore[arg-type]
    agreement = {}
    for name in registry:
        model = simulate(registry[name](), shard, facts, NoNoise())
        agreement[name] = float(np.mean((model.scores(X.reshape(-1, d)) > 0) == (shard.y.ravel() > 0)))
    print(f"without noise the examples of CONTRIBUTING.md classify {json.dumps(agreement)} rightly")
    assert len(agreement) == 3
    assert min(agreement.values()) > 0.8


@pytest.mark.long
def test_the_examples_prove_their_events(registry: AlgorithmRegistry) -> None:
    for name in registry:
        for secure_sum in (False, True):
            proven = prove(Case(name, registry[name](), secure_sum))
            assert {(each.event, each.proof) for each in proven} == {("GaussianEvent", "Additive")}
