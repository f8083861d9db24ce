"""Ten classes by softmax over five owners' processes and a secure sum: the very model of a simulation."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.protocol.simulation import simulate
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.experiments.datasets import DIGITS, digits_columns
from tests.support.cluster import AUTHORIZED, Stream, dealt, train
from tests.support.keyholder_process import start_keyholder
from tests.support.noises import StackedNoise
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready
from tests.support.secure_cluster import SUMS, SecureCluster

DESCENT: dict[str, Any] = {
    "algorithm": "dp_gd", "parameters": {"n_rounds": 4, "step": 4.0, "regularization": 1e-4}, **SUMS
}  # fmt: skip
AVERAGE: dict[str, Any] = {"algorithm": "parameter_average", "parameters": {"regularization": 0.01}, **SUMS}
"""Of models of ten classes, which the parties mark that have them."""


def streams(cluster: SecureCluster) -> dict[str, Stream]:
    """Each party's noise, from its start."""
    return {name: Stream(17, index) for index, name in enumerate(cluster.names)}


async def trained(url: str, terms: dict[str, Any]) -> dict[str, Any]:
    """The model document of a run by the services."""
    async with httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60) as client:
        return await train(client, study=DIGITS.name, epsilon=1.0, delta=1e-6, **terms)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [DESCENT, AVERAGE], ids=lambda terms: str(terms["algorithm"]))
def test_five_services_and_a_secure_sum_learn_the_digits_as_a_simulation_does(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    learner = {"deadline_seconds": 60}  # five parties encrypt 650 numbers at once, on any machine
    digits_and_shards = (DIGITS, dealt(digits_columns(), 5))
    cluster = SecureCluster(tmp_path, given=digits_and_shards, algorithms=(terms["algorithm"],), learner=learner)
    with ExitStack() as stack:
        urls = stack.enter_context(party_processes(cluster, streams(cluster)))
        urls |= {name: f"http://127.0.0.1:{free_port()}" for name in ("key-holder-1", "learner")}
        port = {name: httpx.URL(url).port for name, url in urls.items()}
        holder = start_keyholder(cluster.keyholder_settings("key-holder-1", port=port["key-holder-1"]))
        stack.enter_context(stopped_at_exit(holder))
        stack.enter_context(stopped_at_exit(start_learner(cluster.learner_settings(urls, port=port["learner"]))))
        for name in ("key-holder-1", "learner"):
            wait_until_ready(urls[name])
        model = asyncio.run(trained(urls["learner"], terms))

    shards = [cluster.shard(index) for index in range(5)]
    spec = specification(cluster, [int(shard.n_examples) for shard in shards], terms)
    noise = StackedNoise([stream.noise for stream in streams(cluster).values()])
    expected = simulate(spec.build(), Shard.stack(shards), spec.facts(), noise)
    assert model["spec_digest"] == spec.digest
    assert (model["kind"], np.array(model["weights"]).shape) == ("softmax", (10, 65))
    assert np.array(model["weights"]).tobytes() == expected.weights.tobytes()
    pooled = Shard.stack(shards).pooled()
    right = expected.scores(pooled.X).argmax(axis=-1) == decode_classes(pooled.y, 10)
    print(
        f"digits, 10 x 65 weights, {spec.algorithm} by 5 processes and a secure sum: "
        f"the simulation's model bit for bit; {right.mean():.3f} of the owners' rows told right"
    )


def specification(cluster: SecureCluster, sizes: list[int], question: dict[str, Any]) -> RunSpec:
    """What the learner should make of the request."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    members = [
        Member(name=name, n_examples=size, budget=budget) for name, size in zip(cluster.names, sizes, strict=True)
    ]
    terms = {"study": DIGITS, "parties": members, "minimum_contributors": len(members)}
    spec = RunSpec.model_validate(terms | question | {"colluders": 1})  # the default of a secure sum
    return spec.settled()[0]
