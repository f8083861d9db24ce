"""A release: its version is the tag, its wheel is whole and works by itself, and it is built only when it is ready."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scripts.loopback import free_ports, processes, wait_until_ready
from scripts.make_release import ready_version
from tests.support.checkout import PACKAGES, copy_packages

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", ".gitignore", "docs/how-to/install.md")
FIT = """
import sys
import numpy as np
import common, learner, party
import parley.common, parley.learner, parley.party
from parley import PrivateLogisticRegression
assert (common.WHOSE, learner.WHOSE, party.WHOSE) == ("another project",) * 3
for package in parley.common, parley.learner, parley.party:
    assert package.__file__.startswith(sys.prefix), package.__file__
rows = np.random.default_rng(0).normal(size=(400, 3))
model = PrivateLogisticRegression(bounds=(-4, 4), epsilon=5, delta=1e-5).fit(rows, rows[:, 0] > 0)
print(model.score(rows, rows[:, 0] > 0) > .5)
"""
STUDY = {
    "name": "biopsies",
    "features": [{"name": "radius", "lower": 0, "upper": 30}],
    "label": {"name": "malignant", "values": ["no", "yes"]},
}
ASK = """
import sys
import httpx
from parley import Learner
url, token = sys.argv[1:]
with Learner(url, token=token) as learner:
    print(*[study.name for study in learner.studies()])
print("<title>" in httpx.get(url, follow_redirects=True, trust_env=False).text)
"""

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def told(*command: str | Path, cwd: Path, **variables: str) -> str:
    """What a command prints in a folder that is its home too: no settings of Python or git reach it."""
    environment = own_environment(cwd, **variables)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_environment(home: Path, **variables: str) -> dict[str, str]:
    return {"GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], "HOME": str(home)} | variables


def git(folder: Path, *words: str) -> str:
    return told("git", "-c", "user.name=Parley", "-c", "user.email=parley@localhost", *words, cwd=folder)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A repository whose commit is tagged v9.8.7, with all that a release needs."""
    root = tmp_path / "repository"
    (root / "changelog.d").mkdir(parents=True)
    (root / "changelog.d" / "README.md").write_text("How.\n")
    (root / "docs").mkdir()
    (root / "docs" / "upgrading.md").write_text("# Upgrading\n\n## 9.8.7\n\nNothing.\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## [9.8.7] - 2026-11-24\n")
    git(root, "init", "--quiet")
    commit(root)
    git(root, "tag", "v9.8.7")
    return root


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Change it")


def copy_sources(to: Path) -> None:
    """All that the packages are built from."""
    copy_packages(to)
    for name in FILES:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to / name)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An environment that has the wheel, and finds what it depends on in the environment of the tests."""
    source = tmp_path / "source"
    source.mkdir()
    copy_sources(source)
    build = ["build", "--quiet", "--offline", "--no-build-isolation", "--wheel", "--python", sys.executable]
    told(sys.executable, "-m", "uv", *build, "--out-dir", tmp_path / "built", source, cwd=tmp_path)
    (wheel,) = (tmp_path / "built").glob("*.whl")
    assert wheel.name == "parley_learning-0.dev0-py3-none-any.whl", "without history it is the fallback's version"
    made = tmp_path / "environment"
    told(sys.executable, "-m", "venv", "--without-pip", made, cwd=tmp_path)
    install = [
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
        "--python",
        str(made / "bin" / "python"),
    ]
    told(sys.executable, "-m", "uv", *install, wheel, cwd=tmp_path)
    (installed,) = made.glob("lib/python3*/site-packages")
    assert {path.name for path in installed.iterdir()} == {"parley", "parley_learning-0.dev0.dist-info"}
    for file in (path for package in PACKAGES for path in (source / package).rglob("*") if path.is_file()):
        assert (installed / "parley" / file.relative_to(source)).read_bytes() == file.read_bytes(), file
    (about,) = installed.glob("*.dist-info/METADATA")
    assert about.read_text().endswith((ROOT / "docs" / "how-to" / "install.md").read_text())
    # A line of a .pth adds a folder, but not what that folder's own .pth files add: the checkout that is tested.
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


@pytest.mark.slow
def test_the_wheel_works_beside_a_project_that_has_packages_of_the_same_names(place: Path, tmp_path: Path) -> None:
    (installed,) = place.glob("lib/python3*/site-packages")
    project = tmp_path / "project"
    for package in (folder / name for folder in (project, installed) for name in PACKAGES):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('WHOSE = "another project"\n')
    tell = partial(told, cwd=project, PYTHONPATH=str(project))
    for tool in ("parley-learner", "parley-party"):
        assert tell(place / "bin" / tool, "--version") == f"{tool} 0.dev0\n"
        assert "Begin:" in tell(place / "bin" / tool, "--help")
    assert tell(place / "bin" / "python", "-c", FIT) == "True\n"
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    tell(place / "bin" / "parley-learner", "init", url, "--plain-http", "--out", "learner-service")
    service = project / "learner-service"
    (service / "studies" / "biopsies.json").write_text(json.dumps(STUDY))
    serve: list[str | Path] = [place / "bin" / "parley-learner", "serve", "--config", service / "learner.toml"]
    with processes({"learner": serve}, tmp_path, own_environment(project, PYTHONPATH=str(project))):
        wait_until_ready({"learner": url})
        token = (service / "secrets" / "operator.token").read_text().strip()
        assert tell(place / "bin" / "python", "-c", ASK, url, token) == "biopsies\nTrue\n"
        output = tell(place / "bin" / "parley-learner", "list", PARLEY_URL=url, PARLEY_TOKEN=token)
        assert "algorithm" in output


@needs_git
@pytest.mark.slow
def test_a_tag_is_built_twice_the_same(ready: Path, tmp_path: Path) -> None:
    copy_sources(ready)
    commit(ready)
    git(ready, "tag", "--force", "v9.8.7")
    (ready / "common" / "ignored.db").write_text("what git ignores is in no release")
    script: list[str | Path] = [
        sys.executable,
        ROOT / "scripts" / "make_release.py",
        "--no-images",
        "--root",
        ready,
        "--out",
    ]
    digests = [told(*script, tmp_path / zone, cwd=tmp_path, TZ=zone) for zone in ("UTC", "EST5")]
    assert digests[0] == digests[1] == (tmp_path / "UTC" / "DIGESTS").read_text()
    names = ["parley_learning-9.8.7.tar.gz", "parley_learning-9.8.7-py3-none-any.whl"]
    assert [line.split("  ")[1] for line in digests[0].splitlines()] == names
    with tarfile.open(tmp_path / "UTC" / names[0]) as archive:
        members = set(archive.getnames())
    assert "parley_learning-9.8.7/parley/common/errors.py" in members
    assert not [member for member in members if member.startswith("parley_learning-9.8.7/common")]
    assert not [member for member in members if member.endswith("ignored.db")]
    assert git(ready, "status", "--porcelain") == "", "nothing is left in the repository"


@needs_git
def test_a_clone_says_which_commit_it_is(ready: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", ready)
    commit(ready)
    assert told(sys.executable, "-m", "setuptools_scm", cwd=ready).startswith("9.8.8.dev1+g")
    git(ready, "tag", "--delete", "v9.8.7")
    assert told(sys.executable, "-m", "setuptools_scm", cwd=ready).startswith("0.dev2+g")


@needs_git
def test_what_is_ready_is_its_tag(ready: Path) -> None:
    assert ready_version(ready) == "9.8.7"


@needs_git
@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        (lambda root: (root / "new").write_text("1"), "- the tree has changes: commit them, or build in a clone"),
        (
            lambda root: git(root, "tag", "--delete", "v9.8.7"),
            "- this commit must have one tag such as v1.2.3; it has 0 (for a wheel to try it: make wheel)",
        ),
        (
            lambda root: replace(root, "changelog.d/+new.fixed.md", "It works."),
            "- changelog.d has unreleased fragments, +new.fixed.md: see docs/upgrading.md",
        ),
        (
            lambda root: replace(root, "CHANGELOG.md", "\n## [Unreleased]\n\n## [9.8.7]\n"),
            "- CHANGELOG.md has changes that are unreleased: give them the version's heading, with its date",
        ),
        (
            lambda root: replace(root, "CHANGELOG.md", "\n## [9.8.7] - unreleased\n"),
            "- CHANGELOG.md has changes that are unreleased: give them the version's heading, with its date",
        ),
        (lambda root: replace(root, "CHANGELOG.md", "# Changelog\n"), "- CHANGELOG.md has no heading [9.8.7]"),
        (
            lambda root: replace(root, "docs/upgrading.md", "\n## 9.8.71\n"),
            "- docs/upgrading.md has no note on 9.8.7",
        ),
    ],
)
def test_what_is_not_ready_is_refused(ready: Path, spoil: Callable[[Path], object], missing: str) -> None:
    spoil(ready)
    with pytest.raises(SystemExit) as refused:
        ready_version(ready)
    assert str(refused.value).splitlines() == ["not ready for a release:", missing]


def replace(root: Path, name: str, text: str) -> None:
    """A file's text is another, in the commit that the tag names."""
    (root / name).write_text(text)
    commit(root)
    git(root, "tag", "--force", "v9.8.7")


@needs_git
def test_a_commit_of_two_versions_is_refused(ready: Path) -> None:
    git(ready, "tag", "v9.8.8")
    with pytest.raises(SystemExit, match=r"one tag such as v1\.2\.3; it has 2"):
        ready_version(ready)
