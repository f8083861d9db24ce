"""A learner with the breast cancer study, three owners as processes, and a visitor of its page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

from parley.common.service.tokens import hash_token
from parley.learner.experiments.datasets import BIOPSIES, wdbc_columns
from tests.support.browser import Site, Visitor, chromium, served
from tests.support.cluster import USER, Cluster, dealt
from tests.support.processes import party_processes

ROLES = {"viewer": "a-viewers-token", "operator": "an-operators-token"}
EPSILON = 5.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Three owners of biopsies, and as many of those public."""
    root = tmp_path_factory.mktemp("cluster")
    *tables, public = dealt(wdbc_columns(), 4)
    write_csv(pa.table(dict(public)), root / "public.csv")
    users = [{"name": "alice", "token_hash": hash_token(USER)}]
    users += [{"name": role, "token_hash": hash_token(token), "role": role} for role, token in ROLES.items()]
    return Cluster(
        root,
        given=(BIOPSIES, tables),
        hold_out=0.2,
        epsilon=EPSILON,
        algorithms=("dp_gd", "psgd", "describe", "evaluate"),
        learner={"users": users, "public_data": {BIOPSIES.name: root / "public.csv"}},
    )


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """The learner, served."""
    with (
        party_processes(cluster) as urls,
        served(cluster.learner_settings(urls, shares={"streams": 256, "connections": 512})) as site,
    ):
        yield site


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go: PARLEY_PICTURES, or a folder that pytest clears away."""
    folder = Path(os.environ.get("PARLEY_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visitor(site: Site, pictures: Path) -> Iterator[Visitor]:
    """Somebody with a browser."""
    with chromium() as browser:
        yield Visitor(browser, site, pictures)
