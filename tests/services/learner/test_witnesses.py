"""Witnesses that are silent, refuse or lie hold up no run; what honest ones hold is put to those who signed it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from structlog.testing import capture_logs

from parley.common.client.peer import Peer
from parley.common.errors import PartyRefusedError, UnavailableError
from parley.common.protocol.receipts import Head, Receipt, ReceiptKeeper, read_receipt, write_receipt
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


class Holding:
    """A peer that holds receipts, and notes those that it is handed."""

    def __init__(self, name: str, *held: str, newest: Receipt | None = None, error: Exception | None = None) -> None:
        self.name, self.held, self.error = name, held, error
        self.learnt: list[str] = []
        self.receipts = SimpleNamespace(
            newest=newest,
            stored=newest,
            learn=self.learnt.append,
            was_newer=ReceiptKeeper(name, newest=newest).was_newer,
        )
        self.handed: list[list[str]] = []

    async def stored_receipts(self) -> Sequence[str]:
        if self.error:
            raise self.error
        return self.held

    async def store_receipts(self, texts: Sequence[str]) -> None:
        self.handed.append(list(texts))
        if self.error:
            raise self.error


def receipt(signer: str, count: int, to: str = "") -> Receipt:
    """A receipt of so many entries."""
    head = Head(count, f"{count:064x}")
    return read_receipt(write_receipt(KEY, signer=signer, ledger="0" * 64, head=head, to=to).text)


def handing(*peers: Holding) -> witnesses.Witnesses:
    """Witnesses among these peers."""
    return witnesses.Witnesses(cast("Any", {peer.name: peer for peer in peers}))


async def test_each_signer_accounts_for_each_receipt_once() -> None:
    later, other, nobodys = (receipt(signer, 7).text for signer in ("ann", "bob", "nobody"))
    ann, bob = Holding("ann", other, "junk"), Holding("bob", later, nobodys, later)
    eve = Holding("eve", later, error=UnavailableError("eve is away"))
    with capture_logs() as lines:
        await handing(ann, bob, eve).ask(["ann", "bob", "eve", "unknown"])
    assert (ann.learnt, bob.learnt, eve.learnt) == ([later], [other], [])
    assert lines == [{"event": "witness", "error": "UnavailableError", "log_level": "debug"}]
    ann.learnt.clear()
    await handing(ann, bob).ask(["ann"])
    assert (ann.learnt, bob.learnt) == ([], [other, other]), "bob is not asked"


async def test_a_learner_that_was_set_back_is_told_by_a_receipt_that_it_once_had() -> None:
    for later, is_ours in ((receipt("ann", 7, "us"), True), (receipt("ann", 7, "others"), False)):
        ann, bob = Holding("ann", newest=receipt("ann", 5, "us")), Holding("bob", later.text)
        with capture_logs() as lines:
            await handing(ann, bob).ask(["bob"])
        assert [(line["event"], line["peer"]) for line in lines] == [("set back", "ann")] * is_ours
        assert ann.learnt == [later.text], "ann has to account for it in any case"


async def test_each_peer_is_handed_each_receipt_of_the_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = receipt("ann", 1), receipt("ann", 2)
    ann, bob, eve = Holding("ann", newest=first), Holding("bob", newest=receipt("bob", 5)), Holding("eve")
    among = handing(ann, bob, eve)
    assert [among.newest(name) for name in ("ann", "eve", "unknown")] == [first, None, None]
    for _ in range(2):
        await among.hand_on(["bob", "eve", "unknown"])
    assert (ann.handed, bob.handed) == ([], [[first.text]])
    assert eve.handed == [[first.text, receipt("bob", 5).text]]
    ann.receipts.stored, bob.error = second, PartyRefusedError("no", party="bob")
    for _ in range(2):
        await among.hand_on(["bob", "eve"])
    assert bob.handed[1:] == [[second.text]] * 2, "it was not taken"
    assert eve.handed[1:] == [[second.text]]
    monkeypatch.setattr(witnesses, "MOST_RECEIPTS", 1)
    bob.receipts.stored, ann.receipts.stored = receipt("bob", 6), receipt("ann", 3)
    for _ in range(3):
        await among.hand_on(["eve"])
    assert eve.handed[2:] == [[receipt("ann", 3).text], [receipt("bob", 6).text]]


async def test_a_receipt_of_a_backup_is_handed_on_to_nobody() -> None:
    """A later one may be lost; this one would be taken for the newest."""
    old, newer = receipt("ann", 1), receipt("ann", 2)
    ann, bob = Holding("ann", newest=old), Holding("bob")
    among = witnesses.Witnesses(cast("Any", {"ann": ann, "bob": bob}), frozenset({old.text}))
    await among.hand_on(["bob"])
    assert (bob.handed, among.is_copied(old), among.is_copied(newer)) == ([], True, False)
    ann.receipts.stored = newer
    await among.hand_on(["bob"])
    assert bob.handed == [[newer.text]]


async def test_few_peers_at_a_time_are_handed_receipts_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, turns, pauses = {str(number): None for number in range(3)}, list[list[str]](), list[float]()
    monkeypatch.setattr(witnesses, "_WITNESSES_A_TURN", 2)
    among = witnesses.Witnesses(cast("Any", peers))

    async def hand_on(names: list[str]) -> None:
        turns.append(names)
        if len(turns) == 2:
            del peers["0"], peers["1"]
        if len(turns) == 3:
            peers.clear()
        if len(turns) == 4:
            raise asyncio.CancelledError

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(among, "hand_on", hand_on)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await among.keep_handing_on()
    assert turns == [["0", "1"], ["2"], ["2"], []], "it rests where there is nobody"
    assert pauses == [witnesses._PAUSE] * 4


async def test_a_witness_that_is_slow_is_passed_over() -> None:
    with capture_logs() as lines:
        assert await witnesses._soon(asyncio.Event().wait, 0.001) is None
    assert lines == [{"event": "witness", "error": "TimeoutError", "log_level": "debug"}]


async def test_a_later_receipt_that_a_witness_holds_fails_the_run_by_name(cluster: Cluster, parties: Parties) -> None:
    identity = cluster.party_settings("party-1").identity
    later = write_receipt(identity.signing_key, signer="party-1", ledger="0" * 64, head=Head(99, "f" * 64)).text
    parties["party-2"].intercept = showing(later)
    async with learner_of(cluster, parties) as client:
        run = await submit(client, parameters={"n_rounds": 3})
        problem = (await watch(client, run))[-1][1]["problem"]
    assert (problem["party"], problem["reason"]) == ("party-1", "ledger-refused")
    assert not parties["party-1"].rounds(), "it is asked nothing before it has accounted for it"
