"""The services' applications as their OpenAPI documents describe them: made here, and never started."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

from learner.api.app import create_learner_app
from party.api.app import create_party_app
from party.keyholder.app import create_key_holder_app
from tests.support.cluster import Cluster
from tests.support.keyholder import FreshKeys, keyholder_settings

SERVICES = ("learner", "party", "key holder")


def application(service: str, root: Path) -> FastAPI:
    """A service's application, on a state under ``root``."""
    cluster = Cluster(root / "cluster", n_parties=2)
    if service == "learner":
        return create_learner_app(cluster.learner_settings())
    if service == "party":
        return create_party_app(cluster.party_settings("party-1"))
    return create_key_holder_app(keyholder_settings(root / "key-holder"), FreshKeys())
