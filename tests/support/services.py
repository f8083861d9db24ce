"""One service of each kind as a process, with its database, and a request that needs it."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support.cluster import LEARNER, USER, Cluster
from tests.support.keyholder import keyholder_settings
from tests.support.keyholder_process import start_keyholder
from tests.support.processes import free_port, start_learner, start_party

TOKENS = {"learner": USER, "party": LEARNER, "key holder": LEARNER}
NEEDS_IT = {
    "learner": ("POST", "/v1/runs", {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}),
    "party": ("DELETE", "/v1/runs/run", None),
    "key holder": ("DELETE", f"/v1/sessions/{'ab' * 16}", None),
}


def service(name: str, root: Path) -> tuple[Any, Callable[[Any], BaseProcess], Path]:
    """A service's settings, how it is started, and its database."""
    cluster = Cluster(root, n_parties=1)
    if name == "learner":
        settings = cluster.learner_settings({"party-1": f"http://127.0.0.1:{free_port()}"}, port=free_port())
        return settings, start_learner, settings.state / "learner.sqlite"
    if name == "party":
        party = cluster.party_settings("party-1", port=free_port())
        return party, start_party, party.state / "ledger.db"
    holder = keyholder_settings(root / "key-holder", port=free_port())
    return holder, start_keyholder, holder.state / "keyholder.db"
