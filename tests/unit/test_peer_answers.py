"""What another service answers in JSON is counted before it is parsed: it may be an adversary."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest
from pydantic import HttpUrl, SecretStr

from parley.common.client.endpoints import PeerEntry
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, Peer, all_of, ask_all, names_in, parse_answer
from parley.common.client.transport import PeerRequest, PeerResponse
from parley.common.encoding.npy import pack_array
from parley.common.errors import (
    AwaitingOwnerError,
    ConflictError,
    LedgerError,
    ParleyError,
    PartyRefusedError,
    TooLargeError,
    UnavailableError,
)
from parley.common.privacy.account import Cost
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import LONGEST_RECEIPT, MOST_RECEIPTS, HeldReceipts
from parley.common.secure_sum.envelope import Signed


@pytest.mark.parametrize(
    "content",
    [
        b"{" + b",".join(b'"%d":0' % i for i in range(70_000)) + b"}",
        b'{"receipts": [' + b"[" * 70_000 + b"]" * 70_000 + b"]}",
        b'{"receipts": ["' + b"a" * 2**22 + b'"]}',
    ],
    ids=["many names", "many lists", "a long text"],
)
def test_an_answer_that_is_a_bomb_is_not_parsed(content: bytes) -> None:
    with pytest.raises(TooLargeError):
        parse_answer(HeldReceipts, content)


def test_the_longest_answer_is_parsed() -> None:
    longest = HeldReceipts(receipts=("a" * LONGEST_RECEIPT,) * MOST_RECEIPTS)
    assert parse_answer(HeldReceipts, longest.model_dump_json().encode()) == longest


class Lines:
    """A line on which each request gets the next answer; it notes them."""

    def __init__(self, *answers: PeerResponse | Exception) -> None:
        self.answers, self.asked = list(answers), list[tuple[Any, ...]]()

    async def ask(self, *request: object, longest: int) -> PeerResponse:
        self.asked.append((*request, longest))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.asked.append(("closed",))


def says(status: int, content: object = b"", **headers: str) -> PeerResponse:
    """A response, whose body is JSON unless it is bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return PeerResponse(status, named, body)


class Receipts:
    """Receipts that are believed, but for what ``wrong`` says."""

    def __init__(self, wrong: str = "") -> None:
        self.newest, self.wrong = SimpleNamespace(text="the newest"), wrong
        self.unsettled: dict[str, Any] = {}
        self.taken: list[tuple[Any, ...]] = []

    def take(self, *given: object) -> Any:  # noqa: ANN401 -- stands for a receipt
        self.taken.append(given)
        if self.wrong:
            raise LedgerError(self.wrong)
        return SimpleNamespace(text="a receipt")

    def settle(self, *given: object) -> None:
        self.take(*given)
        self.unsettled.clear()


def peer(line: Lines, receipts: Receipts | None = None) -> Any:  # noqa: ANN401 -- a party, whose receipts are fakes
    """A party on this line."""
    client: Any = PartyClient("clinic", cast("Line", line))
    client.receipts = receipts or Receipts()
    return client


JSON_HEADERS = (("Content-Type", "application/json"),)
SHOWN = ("Parley-Receipt", "the newest")
LONGEST = 2**26


async def test_a_peer_is_asked_by_method_and_path_and_is_shown_its_newest_receipt() -> None:
    lines, receipts = Lines(says(200, {"receipts": ["a", "b"]}, parley_receipt="newer"), says(204)), Receipts()
    assert await peer(lines, receipts).stored_receipts() == ("a", "b")
    assert await peer(lines, receipts).store_receipts(["c"]) is None
    content = b'{"receipts": ["a", "b"]}'
    assert receipts.taken == [("newer", receipts.newest, None, content), (None, receipts.newest, None, b"")]
    assert lines.asked == [
        ("GET", "/v1/receipts", b"", *JSON_HEADERS, SHOWN, LONGEST),
        ("PUT", "/v1/receipts", b'{"receipts":["c"]}', *JSON_HEADERS, SHOWN, LONGEST),
    ]


async def test_a_peer_first_accounts_for_each_receipt_that_others_handed_on() -> None:
    lines, receipts = Lines(*[says(200, {"receipts": []}, parley_receipt="r")] * 3), Receipts()
    handed = [SimpleNamespace(text="x"), SimpleNamespace(text="y")]
    receipts.unsettled = {each.text: each for each in handed}
    await peer(lines, receipts).stored_receipts()
    shown = [("GET", "/v1/receipts", b"", *JSON_HEADERS, ("Parley-Receipt", text), LONGEST) for text in ("x", "y")]
    assert lines.asked[:2] == shown
    assert receipts.taken[:2] == [("r", handed[0]), ("r", handed[1])]
    for unsettled in ({}, {"x": handed[0]}):
        wrong = Receipts("it was set back")
        wrong.unsettled = dict(unsettled)
        with pytest.raises(PartyRefusedError) as refused:
            await peer(Lines(says(200)), wrong).stored_receipts()
        assert refused.value.detail == "clinic refused: it was set back"
        assert refused.value.facts == {"reason": LedgerError.kind, "party": "clinic"}


LONGEST_BODY = 2**17
URN = "urn:parley:problem:"


@pytest.mark.parametrize(
    ("answer", "kind", "detail", "facts"),
    [
        (httpx.ReadError("?"), UnavailableError, "clinic cannot be reached (ReadError)", {}),
        (says(503), UnavailableError, "clinic cannot answer: HTTP status 503", {"party": "clinic"}),
        (says(500, {"detail": "a\nb"}), UnavailableError, "clinic cannot answer: a?b", {"party": "clinic"}),
        *[
            (
                says(status, {"detail": "not now"}),
                UnavailableError,
                "clinic cannot answer: not now",
                {"party": "clinic"},
            )
            for status in (400, 401, 408, 425, 429, 599)
        ],
        (
            says(503, {"type": f"{URN}awaiting-owner", "detail": "it asks"}),
            AwaitingOwnerError,
            "clinic cannot answer: it asks",
            {"party": "clinic"},
        ),
        (
            says(503, {"type": f"{URN}{LedgerError.kind}", "detail": "set back"}),
            PartyRefusedError,
            "clinic refused: set back",
            {"party": "clinic", "reason": LedgerError.kind},
        ),
        (
            says(307),
            PartyRefusedError,
            "clinic refused: it redirects (HTTP status 307), and redirects are not followed",
            {"party": "clinic", "reason": "http"},
        ),
        (says(404, b"[]"), PartyRefusedError, "clinic refused: HTTP status 404", {"party": "clinic", "reason": "http"}),
        (says(404, b"{"), PartyRefusedError, "clinic refused: HTTP status 404", {"party": "clinic", "reason": "http"}),
        (
            says(403, {"type": f"{URN}no", "detail": 3, "reason": "why"}),
            PartyRefusedError,
            "clinic refused: HTTP status 403",
            {"party": "clinic", "reason": "why"},
        ),
        (
            says(403, {"type": "no", "detail": "x" * 501, "epsilon_left": 0.5, "delta_left": 1, "other": 0.1}),
            PartyRefusedError,
            f"clinic refused: {'x' * 500}",
            {"party": "clinic", "reason": "no", "epsilon_left": 0.5},
        ),
        *[
            (
                says(403, b'{"reason":"r"' + b" " * (2**16 - 14 + more) + b"}"),
                PartyRefusedError,
                "clinic refused: HTTP status 403",
                {"party": "clinic", "reason": reason},
            )
            for more, reason in ((0, "r"), (1, "http"))
        ],
        (
            says(403, {"delta_left": 0.25, "epsilon_left": "1"}),
            PartyRefusedError,
            "clinic refused: HTTP status 403",
            {"party": "clinic", "reason": "http", "delta_left": 0.25},
        ),
        (
            says(200, b"x" * (LONGEST_BODY + 1)),
            PartyRefusedError,
            "clinic refused: its response has more than 131072 bytes",
            {"party": "clinic", "reason": "malformed-answer"},
        ),
    ],
)
async def test_an_answer_without_success_is_an_error_that_names_the_peer(
    answer: PeerResponse | Exception, kind: type[ParleyError], detail: str, facts: dict[str, object]
) -> None:
    client = peer(Lines(answer, says(200, b"x" * LONGEST_BODY)))
    with pytest.raises(kind) as failed:
        await client._send("GET", "/x", longest=LONGEST_BODY)
    assert type(failed.value) is kind
    assert (failed.value.detail, failed.value.facts) == (detail, facts)
    assert (await client._send("GET", "/x", longest=LONGEST_BODY)).status == 200


@pytest.mark.parametrize(
    ("asked", "seconds"), [("7", 7), ("60", 60), ("61", 60), ("9" * 5000, 60), ("-1", 0), ("\u0663", 0), ("soon", 0)]
)
async def test_a_peer_is_left_alone_for_as_long_as_it_asks(
    monkeypatch: pytest.MonkeyPatch, asked: str, seconds: float
) -> None:
    pauses: list[float] = []

    async def pause(lasts: float) -> None:
        pauses.append(lasts)

    monkeypatch.setattr(asyncio, "sleep", pause)
    busy = PeerResponse(503, {b"retry-after": asked.encode("latin-1", "replace")}, b"")
    client = peer(Lines(busy, says(200)))
    with pytest.raises(UnavailableError):
        await client._send("GET", "/x")
    await client._send("GET", "/x")
    assert pauses == ([pytest.approx(seconds, abs=0.5)] if seconds else [])


async def test_another_line_is_asked_and_closed_from_then_on() -> None:
    first, second = Lines(), Lines(says(200))
    client = peer(first)
    client.ask_over(cast("Line", second))
    await client.greet()
    await client.close()
    assert first.asked == []
    assert second.asked == [("GET", "/healthz", b"", *JSON_HEADERS, LONGEST), ("closed",)]


NPY = (("Content-Type", "application/x-npy"),)
SIGNED = (("Content-Type", "application/x-parley-signed"),)


async def test_a_party_answers_a_question_in_as_many_integers_as_are_asked() -> None:
    query = Query(2, "sums", np.arange(3.0))
    receipts = Receipts()
    answer = pack_array(np.arange(4, dtype="<i8"))
    lines = Lines(says(200, bytes(answer)))
    assert (await peer(lines, receipts).answer("run-1", query, 4)).tolist() == [0, 1, 2, 3]
    path = f"/v1/runs/run-1/rounds/2?step=sums&reveal={query.reveal}"
    assert lines.asked == [("PUT", path, query.body, *NPY, SHOWN, 2**16)]
    assert receipts.taken[0][2] == ("run-1", 2, query.digest)
    for content, words in (
        (b"no array", "its answer cannot be used: "),
        (bytes(pack_array(np.zeros((2, 2), dtype="<i8"))), "its answer is not a vector"),
        (bytes(answer), "it answered 4 values where 5 were asked"),
    ):
        with pytest.raises(PartyRefusedError) as refused:
            await peer(Lines(says(200, content))).answer("run-1", query, 5)
        assert refused.value.detail.startswith(f"clinic refused: {words}")
        assert refused.value.facts == {"reason": "malformed-answer", "party": "clinic"}


@pytest.mark.parametrize(
    ("ask", "method", "path"),
    [
        (PartyClient.facts, "GET", "/v1/party"),
        (PartyClient.pins, "GET", "/v1/party/pins"),
        (lambda party: party.budget("5d"), "GET", "/v1/budget?study=5d"),
        (
            lambda party: party.room("5d", Cost(4, 3, 2, 1)),
            "GET",
            "/v1/budget/room?study=5d&epsilon=4&delta=3&gdp=2&slack=1&variance=2&excess=0",
        ),
        (Peer.stored_receipts, "GET", "/v1/receipts"),
    ],
)
async def test_what_a_party_tells_is_read_strictly(ask: Callable[[PartyClient], Any], method: str, path: str) -> None:
    lines = Lines(says(200, {"unheard": "of"}))
    with pytest.raises(PartyRefusedError, match=r"^clinic refused: its answer is not \w+$") as refused:
        await ask(peer(lines))
    assert refused.value.facts == {"reason": "malformed-answer", "party": "clinic"}
    assert lines.asked == [(method, path, b"", *JSON_HEADERS, SHOWN, LONGEST)]


async def test_a_party_says_whether_a_run_fits() -> None:
    lines = Lines(says(200, {"fits": False}), says(200, {"fits": True}))
    client, cost = peer(lines), Cost(1, 0)
    assert [await client.room("5d", cost), await client.room("5d", cost)] == [False, True]


async def test_the_end_of_a_run_is_told() -> None:
    lines = Lines(says(204))
    await peer(lines).end("run-1")
    assert lines.asked == [("DELETE", "/v1/runs/run-1", b"", *JSON_HEADERS, SHOWN, LONGEST)]


async def test_a_signed_message_is_answered_by_one() -> None:
    message = Signed(b"body", bytes(64))
    lines = Lines(says(200, message.to_bytes()), says(200, b"none"))
    client = peer(lines)
    assert await client.contribute("run-1", 3, message) == message
    with pytest.raises(PartyRefusedError, match="clinic refused: its answer cannot be used: ") as refused:
        await client.contribute("run-1", 3, message)
    assert refused.value.facts["party"] == "clinic"
    asked = ("PUT", "/v1/runs/run-1/rounds/3", message.to_bytes(), *SIGNED, SHOWN, LONGEST)
    assert lines.asked == [asked, asked]


async def test_a_roster_is_signed_with_the_pinned_key() -> None:
    roster = Signed(b"roster", bytes(64))
    for answer in ({"signature": "00" * 64}, {"signature": "zz"}):
        lines = Lines(says(200, answer))
        with pytest.raises(PartyRefusedError) as refused:
            await peer(lines).join("run-1", roster, "00" * 32)
        assert lines.asked == [("PUT", "/v1/runs/run-1/roster", roster.to_bytes(), *SIGNED, SHOWN, LONGEST)]
        if answer["signature"] == "zz":
            continue
        assert refused.value.detail == "clinic refused: its signature of the roster is not by the pinned key"
        assert refused.value.facts == {"reason": "bad_signature", "party": "clinic"}


class Consenting(PartyClient):
    """A party that consents to what it is listed, and once listed also to what is only named, unless it forgot."""

    def __init__(self, *answers: Any) -> None:  # noqa: ANN401 -- consents and errors
        super().__init__("clinic", cast("Line", None))
        self.answers, self.offers = list(answers), list[bytes]()

    async def _consent(self, proposal: Any, offer: bytes) -> Any:  # noqa: ANN401 -- stands for a consent
        self.offers.append(offer)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_members_are_listed_to_a_party_once_and_again_if_it_forgot_them() -> None:
    members = SimpleNamespace(digest="one")
    proposal: Any = SimpleNamespace(spec=SimpleNamespace(members=members), naming=b"named", listing=b"listed")
    forgot, no = (PartyRefusedError("no", reason=reason) for reason in ("unknown-members", "no"))
    party: Any = Consenting(1, 2, forgot, 3, no, 4, no, 5)
    assert [await party.approve(proposal) for _ in range(3)] == [1, 2, 3]
    assert party.offers == [b"listed", b"named", b"named", b"listed"]
    with pytest.raises(PartyRefusedError, match="no"):
        await party.approve(proposal)
    members.digest = "two"
    assert await party.approve(proposal) == 4
    members.digest = "three"
    with pytest.raises(PartyRefusedError, match="no"):
        await party.approve(proposal)
    assert await party.approve(proposal) == 5
    assert party.offers[4:] == [b"named", b"listed", b"listed", b"listed"]


class Wire:
    """A transport that answers with these statuses, and notes the requests."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.sent = list(statuses), list[Any]()

    async def send(self, request: PeerRequest) -> PeerResponse:
        self.sent.append(request)
        return says(self.statuses.pop(0))

    async def close(self) -> None:
        self.sent.append("closed")


async def test_a_line_shows_the_newest_token_and_asks_once_more_where_it_has_changed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    entry = PeerEntry(name="clinic", url=HttpUrl("https://clinic.example:8100/siteX/"), token_file=token)
    wire = Wire(401, 200, 401, 401, 403, 200)
    line = Line(entry, wire)

    def request(token: str, longest: int = 9) -> PeerRequest:
        headers = (
            ("Host", "clinic.example:8100"),
            ("Authorization", f"Bearer {token}"),
            ("Accept-Encoding", "identity"),
            ("A", "b"),
        )
        return PeerRequest("PUT", "/siteX/v1/x", headers, b"body", longest)

    async def ask() -> int:
        return (await line.ask("PUT", "/v1/x", b"body", ("A", "b"), longest=9)).status

    token.write_text("new")
    assert await ask() == 200
    assert await ask() == 401
    token.unlink()
    assert [await ask(), await ask()] == [401, 403]
    assert wire.sent == [request("old"), *[request("new")] * 4]
    await line.ask("GET", "/y")
    assert (wire.sent[-1].longest, wire.sent[-1].content, wire.sent[-1].target) == (2**26, b"", "/siteX/y")
    await line.close()
    assert wire.sent[-1] == "closed"
    named = Line(PeerEntry(name="clinic", connects_with=f"sha256:{'0' * 64}", token=SecretStr("t")), wire)
    wire.statuses.append(200)
    await named.ask("GET", "/y")
    assert (wire.sent[-1].headers[0], wire.sent[-1].target) == (("Host", "clinic"), "/y")


async def test_all_are_asked_again_after_growing_pauses_until_they_answer_or_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    away, refused = UnavailableError("away"), PartyRefusedError("no")
    does: dict[str, list[Any]] = {"a": [*[away] * 7, "yes"], "b": [away, refused], "c": [AwaitingOwnerError("asks")]}
    parties = [PartyClient(name, cast("Line", None)) for name in does]

    async def request(party: PartyClient) -> str:
        done = does[party.name].pop(0)
        if isinstance(done, Exception):
            raise done
        return str(done)

    took: dict[str, float] = {}
    first, second, third = await ask_all(parties, request, 60, took)
    assert (first, second, str(third)) == ("yes", refused, "asks")
    assert sorted(pauses) == pytest.approx(sorted([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.05]))
    assert list(took) == ["a"]
    assert 0 <= took["a"] < 60
    does["a"] = ["yes"]
    assert await ask_all(parties[:1], request, 60) == ["yes"]


async def test_who_does_not_answer_in_time_is_unavailable_for_the_last_reason() -> None:
    async def hang(party: PartyClient) -> None:
        if party.name == "b" and not tried:
            tried.append(party.name)
            raise UnavailableError("away")
        await asyncio.Event().wait()

    tried: list[str] = []
    silent: list[Any] = await ask_all([PartyClient(name, cast("Line", None)) for name in "ab"], hang, 0.08)
    assert [error.detail for error in silent] == ["a did not answer within 0.08 s", "away"]
    assert [error.facts for error in silent] == [{"party": "a"}, {"party": "b"}]


def test_silent_peers_are_one_error_that_names_them() -> None:
    a, b = UnavailableError("a is away", party="a"), AwaitingOwnerError("b asks", key_holder="b")
    c = AwaitingOwnerError("c asks", silent=["c", "d"])
    assert all_of([1, 2]) == [1, 2]
    with pytest.raises(ConflictError, match="no"):
        all_of([1, a, ConflictError("no"), ConflictError("later")])
    with pytest.raises(UnavailableError) as one:
        all_of([1, a])
    assert one.value is a
    with pytest.raises(UnavailableError) as some:
        all_of([a, 1, b])
    assert type(some.value) is UnavailableError
    assert (some.value.detail, some.value.facts) == ("a is away; b asks", {"silent": ["a", "b"]})
    with pytest.raises(AwaitingOwnerError) as asking:
        all_of([b, c])
    assert (asking.value.detail, asking.value.facts) == ("b asks; c asks", {"silent": ["b", "c", "d"]})
    facts: dict[str, Any] = {"party": "a", "key_holder": "b", "silent": ["c"], "unprepared": ["d", "e"], "other": "f"}
    assert names_in(UnavailableError("x", **facts)) == ("a", "b", "c", "d", "e")
    assert names_in(UnavailableError("x", silent="c", unprepared=7)) == ()
