"""What a learner sends a party, for tests that play the learner: proposals and rounds, by hand."""

from __future__ import annotations

import httpx
import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.npy import NPY, pack_array, unpack_array
from parley.common.runs.specification import Budget, Member, PublicRows, RunSpec
from parley.common.wire.party_api import RunProposal
from tests.support.cluster import LEARNER, Cluster

ASKING = {"Authorization": f"Bearer {LEARNER}", "Accept-Encoding": "identity"}
"""The headers of a learner that the parties know."""


def run_spec(
    cluster: Cluster, n_rounds: int = 10, epsilon: float = 1.0, delta: float = 1e-5, **changes: object
) -> RunSpec:
    """The specification of a run among all parties of a cluster; ``changes`` are fields of it.

    Of rounds of dp_gd the rest is chosen, as the learner chooses it.
    """
    members = tuple(
        Member(name=name, n_examples=cluster.n_examples + index, budget=Budget(epsilon=epsilon, delta=delta))
        for index, name in enumerate(cluster.names)
    )
    fields = {
        "study": cluster.study,
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": n_rounds},
        "parties": members,
        "minimum_contributors": len(members),
    }
    spec = RunSpec.model_validate(fields | changes)
    return spec if "algorithm" in changes or "parameters" in changes else spec.settled()[0]


def completed(spec: RunSpec, rows: FloatArray | None = None) -> RunSpec:
    """A specification, with public rows if its algorithm asks about some, and rows held out if it needs them.

    Public rows are zeros unless they are given: five, with a label if one is asked for, or a model that is evaluated.
    """
    algorithm = spec.build()
    is_held_out, labelled = algorithm.rows == "held_out", algorithm.public_rows == "labelled"
    if is_held_out and spec.study.hold_out is None:
        spec = spec.model_copy(update={"study": spec.study.model_copy(update={"hold_out": 0.25})})
    if rows is None:
        rows = np.zeros((spec.facts().loss.outputs if is_held_out else 5, spec.study.n_features + labelled))
    full = spec.model_copy(update={"public": PublicRows.of(rows)})
    asks = labelled or any(question.public for question in algorithm.questions(full.facts()))
    return full if asks else spec


def propose(client: httpx.Client, spec: RunSpec, run: str = "run", **headers: str) -> httpx.Response:
    """Propose a run."""
    body = RunProposal(run=run, spec=spec).model_dump_json()
    return client.post("/v1/runs", content=body, headers={"Content-Type": "application/json"} | headers)


def weights(cluster: Cluster, round: int) -> FloatArray:
    """A message for each round, (d,), different from round to round."""
    return np.full(cluster.study.n_features, round / 64)


def ask(  # noqa: PLR0913, PLR0917 -- a round, as it is asked
    client: httpx.Client, round: int, message: FloatArray, run: str = "run", step: str = "gradient", reveal: str = "sum"
) -> httpx.Response:
    """Ask a round, in binary."""
    return client.put(
        f"/v1/runs/{run}/rounds/{round}",
        params={"step": step, "reveal": reveal},
        content=pack_array(message),
        headers={"Content-Type": NPY, "Accept": NPY},
    )


def answer_of(response: httpx.Response) -> IntArray:
    """The answer in a response that says success, (d,)."""
    return unpack_array(response.raise_for_status().content, "<i8")
