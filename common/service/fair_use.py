"""Fair use of a service: a share for each caller, and turns, so that nobody waits long for others.

A `Share` bounds how much one caller may have of something that lasts, such as an event stream. `CallerTurns` decide
whose work is done now: every caller may have one piece of work under way, however much the others have. Only a caller
that is alone may have more. So a caller with a single piece of work competes with at most one piece of each other
caller, however many of them wait.

A turn counts for a slice of time: work that lasts longer waits for others, such as a slow party. And where others are
active, a caller whose queue would take turn upon turn rests after each for as long as it took. So a short piece of
somebody else's work finds a free service about half of the time, and not always the middle of a long piece.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Self

from parley.common.errors import ShareUsedUpError

_MOST_ADDRESSES = 10_000
_WINDOW = 60.0  # seconds in which failed sign-ins are counted
_RECHECK = 0.05  # seconds after which waiting turns are reconsidered


@dataclass(slots=True)
class Share:
    """How much of one thing each caller may have at a time: at most ``most``, by the setting ``shares.<name>``.

    ``things`` names it in words; ``remedy`` says what helps a caller that has its share, ``retry_seconds`` when to ask
    again.
    """

    name: str
    most: int
    things: str
    remedy: str
    retry_seconds: int
    _taken: Counter[Hashable] = field(default_factory=Counter)

    @contextmanager
    def taken_by(self, caller: Hashable) -> Iterator[None]:
        """Count one more for a caller during the block; raises ShareUsedUpError."""
        self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    def take(self, caller: Hashable) -> None:
        """Count one more for a caller, until it is given back; raises ShareUsedUpError."""
        self.check(caller, self._taken[caller])
        self._taken[caller] += 1

    def give_back(self, caller: Hashable) -> None:
        """Count one less for a caller."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]

    def check(self, caller: Hashable, count: int) -> None:
        """Raise ShareUsedUpError if ``count`` is all that a caller may have."""
        if count >= self.most:
            raise ShareUsedUpError(
                f"{caller} has {count} {self.things}, and one caller may have {self.most} (shares.{self.name}): "
                f"{self.remedy}",
                share=self.name,
                most=self.most,
                retry_after=self.retry_seconds,
            )


class Turn:
    """A caller's turn: a block that begins when the turn has come, and ends it unless it was ended before.

    A turn of a probe, such as a check of health, makes its caller active only while it lasts.
    """

    __slots__ = ("_turns", "began", "caller", "is_probe")

    def __init__(self, turns: CallerTurns, caller: Hashable, *, is_probe: bool = False) -> None:
        self._turns, self.caller, self.is_probe, self.began = turns, caller, is_probe, 0.0

    async def __aenter__(self) -> Self:
        await self._turns.begin(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the turn, unless it has ended."""
        self._turns.end(self)

    async def pass_on(self) -> None:
        """Begin the next slice of the same work: at once if nobody else is active, in the caller's turn otherwise."""
        await self._turns.pass_on(self)


_Waiting = tuple[Turn, "asyncio.Future[None]"]


class CallerTurns:
    """Turns of callers, for one event loop.

    Every caller may have one turn at any time. A caller who is alone may have ``per_caller``, and all callers together
    ``total``, besides the one of each. A turn counts for ``slice_seconds``. A caller is active while it has a turn that
    counts, or waits, and for ``memory_seconds`` after its last turn began. Waiting callers are served in rotation. A
    caller with more work waiting rests, while others are active, for as long as its last turn took, and at most
    ``rest_seconds``.
    """

    def __init__(
        self,
        per_caller: int,
        total: float = math.inf,
        slice_seconds: float = math.inf,
        memory_seconds: float = 0.0,
        rest_seconds: float = 0.0,
    ) -> None:
        self._per_caller, self._total = per_caller, total
        self._slice, self._memory, self._most_rest = slice_seconds, memory_seconds, rest_seconds
        self._rests: dict[Hashable, float] = {}  # until when callers with more work waiting rest
        self._turns: dict[Hashable, set[Turn]] = {}
        self._count = 0
        self._waiting: dict[Hashable, deque[_Waiting]] = {}
        self._seen: dict[Hashable, float] = {}  # when each caller's last turn began, the oldest first
        self._recheck: asyncio.TimerHandle | None = None

    def turn(self, caller: Hashable, *, is_probe: bool = False) -> Turn:
        """Return a turn of a caller, as a context."""
        return Turn(self, caller, is_probe=is_probe)

    async def begin(self, turn: Turn) -> None:
        """Begin a turn, as soon as it may begin."""
        if turn.caller not in self._waiting and self._may_begin(turn.caller, time.monotonic()):
            self._begin(turn)
        else:
            await self._come(turn, self._enqueue(turn))

    def end(self, turn: Turn) -> None:
        """See `Turn.end`. It counts until the loop has run all others: otherwise a queue would be one long turn."""
        if turn in self._turns.get(turn.caller, ()):
            asyncio.get_running_loop().call_soon(self._remove, turn)

    async def pass_on(self, turn: Turn) -> None:
        """See `Turn.pass_on`."""
        now = time.monotonic()
        if not self._is_contended(turn.caller, now):
            turn.began = now
            self._see(turn.caller, now)
            return
        future = self._enqueue(turn, is_first=True)  # before others of the same caller: begun work continues
        self._remove(turn, goes_on=True)
        await self._come(turn, future)

    def _enqueue(self, turn: Turn, *, is_first: bool = False) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(turn.caller, deque())
        (queue.appendleft if is_first else queue.append)((turn, future))
        self._look_again()
        return future

    async def _come(self, turn: Turn, future: asyncio.Future[None]) -> None:
        """Wait until a turn begins."""
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                turn.end()
            elif (turn, future) in (queue := self._waiting.get(turn.caller, deque())):
                queue.remove((turn, future))
                if not queue:
                    del self._waiting[turn.caller]
            raise

    def _may_begin(self, caller: Hashable, now: float) -> bool:
        if self._is_resting(caller, now):
            return False
        if not (turns := self._turns.get(caller)):
            return True
        if self._count >= self._total:
            return False
        counting = sum(now - turn.began < self._slice for turn in turns)
        return counting < (1 if self._is_contended(caller, now) else self._per_caller)

    def _is_resting(self, caller: Hashable, now: float) -> bool:
        if caller not in self._rests:
            return False
        if now < self._rests[caller] and self._is_contended(caller, now):
            return True
        del self._rests[caller]
        return False

    def _is_contended(self, caller: Hashable, now: float) -> bool:
        """Say whether another caller is active."""
        if any(other != caller for other in self._waiting):
            return True
        for other, turns in self._turns.items():
            if other != caller and any(now - turn.began < self._slice for turn in turns):
                return True
        newest = next((began for other, began in reversed(self._seen.items()) if other != caller), -math.inf)
        return now - newest < self._memory

    def _begin(self, turn: Turn) -> None:
        turn.began = time.monotonic()
        if not turn.is_probe:
            self._see(turn.caller, turn.began)
        self._turns.setdefault(turn.caller, set()).add(turn)
        self._count += 1

    def see(self, caller: Hashable) -> None:
        """Note that a caller is active, though it takes no turn here."""
        self._see(caller, time.monotonic())

    def _see(self, caller: Hashable, now: float) -> None:
        if self._memory:
            self._seen.pop(caller, None)
            self._seen[caller] = now
            if len(self._seen) > _MOST_ADDRESSES:
                del self._seen[next(iter(self._seen))]

    def _remove(self, turn: Turn, *, goes_on: bool = False) -> None:
        turns = self._turns.get(turn.caller, set())
        if turn in turns:
            turns.remove(turn)
            self._count -= 1
            if not turns:
                del self._turns[turn.caller]
            n_others = len(self._waiting.get(turn.caller, ())) - goes_on  # without the next slice of this work
            if self._most_rest and n_others > 0:
                self._rest_after(turn, time.monotonic())
            self._serve()

    def _rest_after(self, turn: Turn, now: float) -> None:
        """Make a caller with more work waiting rest, unless it is alone."""
        if self._is_contended(turn.caller, now):
            seconds = min(now - turn.began, self._most_rest)
            self._rests[turn.caller] = now + seconds
            asyncio.get_running_loop().call_later(seconds, self._serve)

    def _serve(self) -> None:
        """Begin all turns that may begin now, one of each caller after the other."""
        has_begun = True
        while has_begun:
            has_begun = False
            for caller in list(self._waiting):
                if self._may_begin(caller, time.monotonic()):
                    queue = self._waiting.pop(caller)  # it returns to the end of the rotation
                    turn, future = queue.popleft()
                    if queue:
                        self._waiting[caller] = queue
                    if not future.cancelled():
                        self._begin(turn)
                        future.set_result(None)
                    has_begun = True
        self._look_again()

    def _look_again(self) -> None:
        """Reconsider waiting turns soon, since running turns cease to count as time passes."""
        if self._waiting and self._recheck is None and (self._slice < math.inf or self._memory):
            self._recheck = asyncio.get_running_loop().call_later(_RECHECK, self._recheck_now)

    def _recheck_now(self) -> None:
        self._recheck = None
        self._serve()


class SignIns:
    """Failed sign-ins by address: beyond ``most`` a minute, the answer is to wait.

    Others behind the same address are not locked out: a valid token is always accepted.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._failed: dict[str, tuple[float, int]] = {}

    def fail(self, address: str, detail: str) -> bool:
        """Count a failed sign-in, which is answered with ``detail``; returns whether it is the last with that answer.

        Raises ShareUsedUpError for each one beyond.
        """
        network, now = network_of(address), self._clock()
        since, count = self._failed.get(network, (now, 0))
        if now - since >= _WINDOW:
            since, count = now, 0
        self._failed.pop(network, None)
        self._failed[network] = since, count + 1
        if len(self._failed) > _MOST_ADDRESSES:
            del self._failed[next(iter(self._failed))]
        if count >= self._most:
            raise ShareUsedUpError(
                f"{detail}; {count} sign-ins from this address have failed within a minute, and {self._most} may "
                "(shares.failed_sign_ins): wait, or show a valid token, which is accepted at any time",
                share="failed_sign_ins",
                most=self._most,
                retry_after=math.ceil(since + _WINDOW - now),
            )
        return count + 1 == self._most


def network_of(address: str) -> str:
    """Return the client that an address stands for: itself, or for IPv6 the network of 64 bits that one customer has.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6"), network_of("a socket")
    ('192.0.2.7', '2001:db8:1:2::', 'a socket')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
