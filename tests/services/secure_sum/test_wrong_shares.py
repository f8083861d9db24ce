"""A party that answers what no honest one would: the run ends, says whose sum it was, and learns nothing of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parley.common.arrays import IntArray
from parley.common.secure_sum import party as role
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.messages import SumQuery
from parley.common.secure_sum.packing import Layout, encode
from parley.common.secure_sum.party import PartyRole
from tests.support.cluster import submit, watch
from tests.support.intercepted import learner_of
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

WRONG = "party-2"
ROUND = 2
Share = Callable[[IntArray, Layout], list[int]]


def far(values: IntArray, layout: Layout) -> list[int]:
    """One number, by half of what a lane holds: 10^6 in reals, where rows and noise come to less than 10^4."""
    return encode(values + np.int64(2**52) * (np.arange(len(values)) == 0), layout)


def random(values: IntArray, layout: Layout) -> list[int]:
    """Return random blocks instead of an answer."""
    return [secrets.randbelow(layout.modulus) for _ in range(layout.blocks)]


@pytest.mark.parametrize(("share", "reasons"), [(far, {Reason.BEYOND_BOUND}), (random, None)])
async def test_a_wrong_share_is_noticed(
    share: Share, reasons: set[Reason] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = PartyRole.answer

    def wrong(self: PartyRole, query: SumQuery, *others: *tuple[object, ...]) -> Signed:
        with monkeypatch.context() as patch:
            if self._identity.name == WRONG and query.round == ROUND:
                patch.setattr(role, "encode", share)
            return answer(self, query, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(PartyRole, "answer", wrong)
    cluster = SecureCluster(tmp_path, n_parties=3)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        run = await submit(client, parameters={"n_rounds": 3}, **SUMS)
        events = await watch(client, run)
        problem = events[-1][1]["problem"]
        assert events[-1][1]["state"] == "failed"
        assert problem["reason"] in (reasons or {Reason.COUNT_MISMATCH, Reason.PADDING_NOT_ZERO, Reason.LANE_TOO_LARGE})
        assert f"the sum of round {ROUND} is no sum of answers" in problem["detail"]
        assert "One of party-1, party-2, party-3, or a key holder, sent a wrong share" in problem["detail"]
        assert (await client.get(f"/v1/runs/{run}")).json()["rounds"]["done"] == ROUND - 1
        assert (await client.get(f"/v1/runs/{run}/model")).status_code != 200
