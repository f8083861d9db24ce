"""The services' applications, to be asked what their OpenAPI documents say may be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient

from parley.learner.api.app import create_learner_app
from parley.party.api.app import create_party_app
from parley.party.keyholder.app import create_key_holder_app
from tests.support.cluster import Cluster
from tests.support.keyholder import FreshKeys, keyholder_settings
from tests.support.lines import line_over

SERVICES = ("learner", "party", "key holder")
PATIENT: dict[str, Any] = {"shares": {"failed_sign_ins": 10**6}}
"""Settings of a service that answers 401 as often as it is due: requests without a token come from one address here."""


@contextmanager
def application(service: str, cluster: Cluster) -> Iterator[FastAPI]:
    """A service's application, which the caller starts and stops; a learner's parties are in this process."""
    if service == "party":
        yield create_party_app(cluster.party_settings(cluster.names[0], **PATIENT))
    elif service == "key holder":
        yield create_key_holder_app(keyholder_settings(cluster.root / "key-holder", **PATIENT), FreshKeys())
    else:
        with ExitStack() as stack:
            parties = {name: create_party_app(cluster.party_settings(name)) for name in cluster.names}
            for party in parties.values():
                stack.enter_context(TestClient(party))
            wires = {name: httpx.ASGITransport(party) for name, party in parties.items()}
            settings = cluster.learner_settings(**PATIENT)
            yield create_learner_app(settings, lambda entry: line_over(entry, wires[entry.name]))


def document_of(service: str, root: Path) -> dict[str, Any]:
    """A service's OpenAPI document."""
    with application(service, Cluster(root / "cluster", n_parties=1)) as app, TestClient(app) as client:
        document: dict[str, Any] = client.get("/openapi.json").raise_for_status().json()
    return document
