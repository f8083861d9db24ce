"""Two deployments for all tests of this folder, one under TLS: each test leaves every service running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.deployment.sites import hospitals
from tests.support.containers import Project, build_images, docker, keep_images, project


@pytest.fixture(scope="session")
def images() -> Iterator[None]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a run that is ended takes its containers along
    build_images()
    yield
    keep_images()


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Five parties, started by one command in a fresh clone, which builds the images."""
    with project(tmp_path_factory.mktemp("clone")) as made:
        assert [len(belongings) for belongings in listed(made)] == [8, 7, 15]
        yield made
    assert listed(made) == [[], [], []], "containers, networks or volumes remain"


@pytest.fixture(scope="session")
def secured(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Three parties under TLS."""
    with project(tmp_path_factory.mktemp("secured"), hospitals(3), tls=True) as made:
        yield made
    assert listed(made) == [[], [], []], "containers, networks or volumes remain"


def listed(services: Project) -> list[list[str]]:
    """The containers, networks and volumes of a project."""
    listings = ("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q")
    return [docker(*listing, "--filter", services.label).split() for listing in listings]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.containers)
