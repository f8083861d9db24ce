"""A learner in this process whose parties are not to be asked: for what it refuses by itself, test after test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from fastapi import FastAPI
from starlette.testclient import TestClient

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.learner.api.app import create_learner_app
from tests.support.cluster import AUTHORIZED, Cluster
from tests.support.intercepted import Intercepted, unreachable
from tests.support.lines import line_over


@contextmanager
def learner_alone(cluster: Cluster) -> Iterator[TestClient]:
    """A user's client of the learner; raises AssertionError at the end where a party was asked for anything."""
    parties = {name: Intercepted(httpx.ASGITransport(FastAPI()), unreachable()) for name in cluster.names}

    def connect_party(entry: PeerEntry) -> Line:
        return line_over(entry, parties[entry.name])

    with TestClient(create_learner_app(cluster.learner_settings(), connect_party), headers=AUTHORIZED) as client:
        yield client
    assert not any(party.seen for party in parties.values()), "a party was asked"
