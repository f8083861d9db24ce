"""A learner and three parties in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.cluster import Cluster
from tests.support.intercepted import Intercepted, intercepted_parties, learner_of


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The files of three parties."""
    return Cluster(tmp_path, n_parties=3)


@pytest.fixture
async def parties(cluster: Cluster) -> AsyncIterator[dict[str, Intercepted]]:
    """The parties, open to interception."""
    async with intercepted_parties(cluster) as parties:
        yield parties


@pytest.fixture
async def client(cluster: Cluster, parties: dict[str, Intercepted]) -> AsyncIterator[httpx.AsyncClient]:
    """A user of the learner."""
    async with learner_of(cluster, parties) as client:
        yield client
