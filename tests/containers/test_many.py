"""Fifty parties under TLS come up on one machine by one command, and train a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.deployment.sites import hospitals
from tests.support.containers import Project, model_by_two_requests, project
from tests.support.nightly import nightly

FIFTY = hospitals(50)


@pytest.fixture
def fifty(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("fifty"), FIFTY, tls=True) as made:
        yield made


@nightly
def test_fifty_parties_come_up_and_train_a_model(fifty: Project) -> None:
    assert model_by_two_requests(fifty)["contributors"] == list(FIFTY)
