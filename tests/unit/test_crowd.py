"""Who keeps a connection to a service, and who loses one, where there are too many."""

from __future__ import annotations

import socket
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from parley.common.errors import ShareUsedUpError, UnavailableError
from parley.common.service.http.connections import _BEYOND, Crowd


class Open:
    """An open connection, which notes that it was ended."""

    def __init__(self, heard: float, waiting: float | None = None, caller: str | None = None) -> None:
        self.last_heard, self.waiting_since, self.caller = heard, waiting, caller
        self.ended: list[str] = []
        self.transport = SimpleNamespace(abort=lambda: self.ended.append("aborted"))

    def leave(self) -> None:
        self.ended.append("left")


def sign_in(crowd: Crowd, caller: str, *, is_kept_room: bool = False) -> Any:  # noqa: ANN401 -- stands for a protocol
    connection: Any = Open(0)
    crowd.sign_in(connection, caller, is_kept_room=is_kept_room)
    return connection


def test_as_many_sign_in_as_there_may_be_and_one_that_leaves_makes_room_for_one() -> None:
    crowd = Crowd(set(), 2, 2)
    first = sign_in(crowd, "a")
    crowd.sign_in(first, "a", is_kept_room=False)  # counts once
    sign_in(crowd, "b")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="too many connections are open"):
            sign_in(crowd, "c")
        crowd.sign_out(first)
        crowd.sign_out(first)
        assert first.caller is None
        first = sign_in(crowd, "c")
    sign_in(crowd, "probe", is_kept_room=True)


def test_a_caller_has_at_most_its_share_and_half_of_all() -> None:
    for crowd, share in ((Crowd(set(), 10, 3), 3), (Crowd(set(), 10, 8), 5), (Crowd(set(), 1, 1), 1)):
        connections = [sign_in(crowd, "a") for _ in range(share)]
        if share < crowd.most:
            with pytest.raises(ShareUsedUpError) as refused:
                sign_in(crowd, "a")
            assert refused.value.facts == {"share": "connections", "most": share, "retry_after": 5}
        crowd.sign_in(connections[0], "b", is_kept_room=True)  # it has another caller from now on
        if share < crowd.most:
            sign_in(crowd, "a")


def test_while_there_are_few_nobody_loses_a_connection() -> None:
    stranger = Open(1)
    assert Crowd({stranger}, 2, 2).make_room()
    assert not stranger.ended


def test_the_stranger_that_was_silent_longest_makes_room() -> None:
    strangers, member = [Open(3), Open(2), Open(4)], Open(1, waiting=1, caller="a")
    assert Crowd({*strangers, member}, 4, 4).make_room()
    assert [connection.ended for connection in (*strangers, member)] == [[], ["aborted", "left"], [], []]


def test_without_strangers_the_member_that_asked_for_nothing_longest_makes_room() -> None:
    busy, early, late = Open(1, None, "a"), Open(2, 2, "b"), Open(3, 3, "c")
    assert Crowd({busy, early, late}, 3, 3).make_room()
    assert (busy.ended, early.ended, late.ended) == ([], ["aborted", "left"], [])


def test_where_all_are_busy_a_few_more_come_and_then_none() -> None:
    busy = {Open(n, None, "a") for n in range(2)}
    assert Crowd(busy, 2, 2).make_room()
    more = {Open(n, None, "a") for n in range(1 + _BEYOND)}
    assert Crowd(more, 2, 2).make_room()
    more.add(Open(0, None, "a"))
    assert not Crowd(more, 2, 2).make_room()


@pytest.mark.parametrize(("arrived", "heard", "is_taken"), [(1, 2, True), (2, 1, False)])
def test_of_a_handshake_and_a_stranger_the_older_makes_room(arrived: float, heard: float, *, is_taken: bool) -> None:
    stranger = Open(heard)
    crowd = Crowd({stranger}, 2, 2)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        crowd.arrivals[ours] = arrived
        assert crowd.make_room()
        assert (ours not in crowd.arrivals) == is_taken
        assert stranger.ended == ([] if is_taken else ["aborted", "left"])
        if is_taken:
            assert theirs.recv(1) == b"", "it was shut down"
