"""Kill a party in the middle of a secure sum: the same query gets the same bytes, and no obfuscator is used twice."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import httpx

from tests.support.cluster import LEARNER
from tests.support.killing import last_answer
from tests.support.processes import free_port, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import weights
from tests.support.secure_cluster import SecureCluster
from tests.support.stage import Stage

KILLS, LONGEST_ROUND = 8, 0.03  # seconds


def test_a_killed_party_contributes_each_round_once(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3)
    settings = cluster.party_settings("party-1", port=free_port())
    url = f"http://127.0.0.1:{settings.port}"
    stage, kills = Stage(cluster, n_rounds=KILLS), random.Random(5)
    used: list[int] = []
    answered = 0
    process = start_party(settings)
    authorized = {"Authorization": f"Bearer {LEARNER}"}
    with httpx.Client(base_url=url, headers=authorized, trust_env=False, timeout=20) as client:
        wait_until_ready(url)
        stage.begin(client)
        for round in range(1, KILLS + 1):
            query = stage.query(round, weights(cluster, round))
            seconds = kills.uniform(0, LONGEST_ROUND) if round % 2 else None
            before = last_answer(partial(stage.ask, client, round, query), process.pid or 0, seconds)
            process.join()
            process = start_party(settings)
            wait_until_ready(url)
            after = stage.ask(client, round, query).raise_for_status().content
            assert before in (None, after)
            assert stage.ask(client, round, query).content == after
            stage.total(query, after)
            used += stage.obfuscators(after)
            answered += before is not None
        spent = client.get("/v1/budget").json()["units"]["spent"][0] / 1e6
    with stopped_at_exit(process):
        assert len(set(used)) == len(used) == KILLS * stage.roster.layout.blocks
        assert 0.999 < spent <= 1.001  # the whole run's epsilon, once
        print(
            f"party killed in {KILLS} rounds of a secure sum: {answered} had answered; "
            f"0 answers changed, 0 of {len(used)} obfuscators used twice, each round charged once"
        )
