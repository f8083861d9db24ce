"""Witnesses that are silent, refuse or lie hold up no run; what honest ones hold is put to those who signed it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Sequence

import httpx
import pytest

from parley.common.client.peer import Peer
from parley.common.protocol.receipts import Head, write_receipt
from parley.learner.execution import witnesses
from tests.support.cluster import Cluster, submit, watch
from tests.support.intercepted import Intercept, Intercepted, always, learner_of, silent, unreachable
from tests.support.ledgers import KEY
from tests.support.lines import line_to

Parties = dict[str, Intercepted]
RECEIPTS = "/v1/receipts"
JSON = {"content-type": "application/json"}


def forged(signer: str) -> str:
    """A receipt by a key that is not the signer's."""
    return write_receipt(KEY, signer=signer, ledger="0" * 64, head=Head(99, "f" * 64)).text


def showing(*texts: str) -> Intercept:
    """A witness that holds these."""
    return always(200, json.dumps({"receipts": texts}).encode(), RECEIPTS, **JSON)


LYING: dict[str, Callable[[], Intercept]] = {
    "silent": lambda: silent(RECEIPTS),
    "unreachable": lambda: unreachable(RECEIPTS),
    "refuses": lambda: always(403, b"{}", RECEIPTS),
    "fails": lambda: always(500, b"", RECEIPTS),
    "torn": lambda: always(200, b"{", RECEIPTS, **JSON),
    "junk": lambda: showing("", "junk", "e30=.e30="),
    "forged": lambda: showing(forged("party-1"), forged("party-2"), forged("nobody")),
}


@pytest.mark.parametrize("kind", LYING)
async def test_no_witness_holds_up_or_fails_a_run(
    cluster: Cluster, parties: Parties, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "_PATIENCE_TO_ASK", 0.2)
    parties["party-2"].intercept = LYING[kind]()
    async with learner_of(cluster, parties) as client:
        run = await submit(client, parameters={"n_rounds": 3})
        assert (await watch(client, run))[-1][1]["state"] == "completed"
    assert f"GET {RECEIPTS}" in parties["party-2"].seen


async def test_a_run_that_is_cancelled_as_witnesses_are_asked_leaves_nothing_behind() -> None:
    class Asked(Peer):
        async def held(self) -> Sequence[str]:
            await asyncio.sleep(60)
            return ()

    peer = Asked("party-1", line_to("party-1", httpx.MockTransport(lambda _: httpx.Response(200))))
    asking = asyncio.create_task(witnesses.Witnesses({"party-1": peer}).ask(["party-1"]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gc.collect()  # a coroutine that nobody awaited would warn, and that is an error


async def test_a_later_receipt_that_a_witness_holds_fails_the_run_by_name(cluster: Cluster, parties: Parties) -> None:
    identity = cluster.party_settings("party-1").identity
    later = write_receipt(identity.signing_key, signer="party-1", ledger="0" * 64, head=Head(99, "f" * 64)).text
    parties["party-2"].intercept = showing(later)
    async with learner_of(cluster, parties) as client:
        run = await submit(client, parameters={"n_rounds": 3})
        problem = (await watch(client, run))[-1][1]["problem"]
    assert (problem["party"], problem["reason"]) == ("party-1", "ledger-refused")
    assert not parties["party-1"].rounds(), "it is asked nothing before it has accounted for it"
