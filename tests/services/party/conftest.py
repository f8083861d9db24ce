"""One party of two, on data made up, asked over ASGI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Two parties' files; the tests run the first party."""
    return Cluster(tmp_path, n_parties=2)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """The first party, as the learner sees it."""
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        yield client
