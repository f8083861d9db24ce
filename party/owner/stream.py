"""An owner's stream of costs, led privately: each action is in the ledger before anybody sees it.

The whole horizon is charged with the first action. An action is one transaction with the cost of the round before it,
which is kept as integers beside it: so a crash leaves either both or neither, and what the leader knows is worked out
from the ledger alone. What was stored and perhaps not seen is shown once more after a restart, with its round; nothing
is ever drawn twice. Nor is a cost heard twice: where that of a round before comes again, as an owner's file is read
from its beginning, it is compared with what was heard, and passed over. Costs are the owner's data: they lie in the
ledger's file, and in no audit of it. Its records name them by digests, which whoever guesses a cost could try: so they
are kept behind bytes that a salt makes of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from parley.common.arrays import IntArray
from parley.common.encoding.canonical_json import canonical, read_json
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.online import Leader, LeaderState, cost_in_units
from parley.common.privacy.calibration import Calibration
from parley.common.privacy.mechanisms.leader import MOST_ROUNDS_LED, Adversary
from parley.common.privacy.noise import Noise, SystemNoise
from parley.common.runs.pricing import price_at_once
from parley.common.strict import Identifier, Strict
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import SALT, TOLD, Ask, Ledger
from parley.party.policy import check_cost, rules_of
from parley.party.settings import Policy

_KEPT = np.dtype("<i4")
"""A cost's integers, as they are kept."""
_SEAL_BYTES = 32


class StreamTerms(Strict):
    """A stream as it is charged: see `parley.common.online.Leader`. The ledger knows it by its name."""

    name: Identifier
    actions: int
    horizon: int
    bound: FiniteFloat
    epsilon: FiniteFloat
    delta: FiniteFloat
    calibration: Calibration = "tight"
    adversary: Adversary = "adaptive"

    def leader(self, noise: Noise | None = None, state: LeaderState | None = None) -> Leader:
        """A leader of these terms; raises InvalidInputError where there is none."""
        return Leader(
            self.actions, self.horizon, self.bound, self.epsilon, self.delta,
            calibration=self.calibration, adversary=self.adversary, noise=noise, state=state,
        )  # fmt: skip


class CostLine(Strict):
    """A round's costs, one an action, and whose they are, where that is said."""

    round: Annotated[int | None, Field(ge=1, le=MOST_ROUNDS_LED)] = None
    cost: Annotated[tuple[float, ...], Field(description="one an action, none beyond the bound")]


_COSTS: TypeAdapter[CostLine] = TypeAdapter(CostLine)


@dataclass(frozen=True, slots=True)
class Action:
    """A round's action, both counted: rounds from 1, actions from 0; and whether it was drawn anew, or kept."""

    round: int
    action: int
    drawn: bool = True

    def __str__(self) -> str:
        return json.dumps({"round": self.round, "action": self.action})

    @property
    def body(self) -> bytes:
        """As the ledger keeps it."""
        return canonical(asdict(self))

    @classmethod
    def read(cls, body: bytes) -> Action:
        """One that was kept."""
        return cls(**json.loads(body))


class Stream:
    """A stream, begun or taken up again where the ledger says it stood; ``noise`` is each round's."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        terms: StreamTerms,
        noise: Callable[[int], Noise] = lambda _: SystemNoise(),
    ) -> None:
        """Reserve the price of the horizon, unless that is done.

        Raises InvalidInputError for unfit terms, ForbiddenError where the owner's policy allows no run of that price,
        BudgetExhaustedError, and ConflictError where the stream has ended or was begun with other terms.
        """
        leader = terms.leader()
        due = price_at_once(leader.terms.event, terms.epsilon, terms.delta)
        check_cost(due, rules_of(policy))
        spec = canonical(terms.model_dump(mode="json"))
        self._book = ledger.consents.begin_own(terms.name, "ftrl", spec, terms.horizon, due)
        self._ledger, self._name, self._noise = ledger, terms.name, noise
        self._salt = ledger.chain.attachment(self._book.number, SALT)
        self._told = b""
        self._shown: Action | None = None
        self._query = hashlib.sha256(spec).digest()
        totals, draws = np.zeros(terms.actions, np.int64), 0
        for round, number in self._book.answers.items():
            if round > 1:
                totals += self._hear(ledger.chain.attachment(number, TOLD))
            self._shown = Action.read(ledger.chain.attachment(number, "body"))
            draws += self._shown.drawn
        rounds, action = (self._shown.round - 1, self._shown.action) if self._shown else (0, 0)
        state = LeaderState(totals, rounds, acted=self._shown is not None, action=action, draws=draws)
        self.leader = terms.leader(state=state)

    @property
    def is_over(self) -> bool:
        """Whether the horizon is over, the last cost known."""
        return self.leader.state.rounds >= self.leader.terms.horizon

    def act(self) -> Action:
        """The action of the round that is to come: stored by now; the same until its cost is known.

        Raises UnavailableError where it cannot be stored, and may be asked again then. Raises ConflictError where
        another process has told the round before another cost.
        """
        if self._shown is None:
            before = self.leader.state
            round = before.rounds + 1
            ask = Ask(OWNER, self._name, round, self._query.hex(), "act", self._told)
            try:
                stored = self._ledger.rounds.answer(ask, lambda kept: (self._draw(round), kept))
            except ConflictError:
                if round not in self._book.answers:
                    raise
                raise ConflictError(
                    f"another process has told round {round - 1} of {self._name} another cost: the same command goes "
                    "on with that"
                ) from None
            shown = self._shown = Action.read(stored.body)  # what another process stored first, where one did
            draws = before.draws + shown.drawn
            self.leader.state = replace(before, acted=True, action=shown.action, draws=draws)
        return self._shown

    def observe(self, cost: tuple[float, ...], round: int | None = None) -> None:
        """Take the cost of a round: of the one whose action was shown, unless another is said.

        The cost of a round before has to be what was heard, and changes nothing. Raises ConflictError where it is
        another, and InvalidInputError for that of a later round, and as `Leader.observe` does.
        """
        at = self.leader.state
        if round is not None and 1 <= round <= at.rounds:
            units = cost_in_units(cost, self.leader.terms.actions, self.leader.bound)
            if _kept(units) != self._heard(round):
                raise ConflictError("another cost of this round was heard before")
        elif round not in {None, at.rounds + 1} and not self.is_over:
            raise InvalidInputError(f"the cost of round {at.rounds + 1} comes next")
        else:
            self.leader.observe(cost)
            self._hear(self._sealed(_kept(self.leader.state.totals - at.totals)))
            self._shown = None
        if self.is_over:
            self._ledger.consents.end(OWNER, self._name, "owner")

    def _draw(self, round: int) -> bytes:
        """An action; where the leader stands is for `act` to say, once it is stored."""
        before, self.leader.noise = self.leader.state, self._noise(round)
        action = Action(round, self.leader.act(), drawn=self.leader.state.draws > before.draws)
        self.leader.state = before
        return action.body

    def _heard(self, round: int) -> bytes:
        """The cost of a round that has been heard, as it is kept."""
        later = self._book.answers.get(round + 1)
        return (self._told if later is None else self._ledger.chain.attachment(later, TOLD))[_SEAL_BYTES:]

    def _hear(self, told: bytes) -> IntArray:
        """A cost as it is kept, back as integers (p,); from then on it is part of what the next round asks."""
        self._told = told
        self._query = hashlib.sha256(self._query + told).digest()
        return np.frombuffer(told[_SEAL_BYTES:], _KEPT).astype(np.int64)

    def _sealed(self, cost: bytes) -> bytes:
        """A cost behind bytes that nobody can make who has not got the salt; the same for whoever tells the same."""
        return hmac.digest(self._salt, self._query + cost, "sha256") + cost


def play(stream: Stream, lines: Iterable[str], *, whole: bool = True) -> Iterator[Action]:
    """The action of the round to come, then one for each line of its costs but the last of the horizon.

    Of the ``whole`` input the first line is round 1's, and lines of rounds that have been heard are passed over; else
    it is the line of the round that is to come. A line may say its round itself.

    Raises InvalidInputError for a line that is no cost, or comes too early or after the horizon, and ConflictError for
    one of a round that has been heard otherwise.
    """
    shown = stream.act()
    yield shown
    round = 1 if whole else shown.round
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            told = read_cost(line)
            round = told.round or round
            stream.observe(told.cost, round)
        except (InvalidInputError, ConflictError) as error:
            words = f"line {number} of the input, round {round}: {error.detail}"
            if isinstance(error, ConflictError) and whole and told.round is None:
                words += f"; if the first line is the cost of round {shown.round}, say --input rest"
            raise type(error)(words) from None
        round += 1
        if not stream.is_over and (action := stream.act()) != shown:
            yield (shown := action)


def read_cost(line: str) -> CostLine:
    """A line of JSON: a list of numbers, or an object with one as ``cost``; raises InvalidInputError."""
    try:
        value = read_json(line.encode())
        return _COSTS.validate_python({"cost": value} if isinstance(value, list) else value)
    except ValidationError:
        raise InvalidInputError(
            "a line must be a list of numbers, or an object with one as cost, which may have its round, from 1"
        ) from None
    except (ValueError, RecursionError):
        raise InvalidInputError("a line must be JSON, of finite numbers and no name twice") from None


def _kept(units: IntArray) -> bytes:
    """A cost (p,) in integers, as it is kept."""
    return units.astype(_KEPT).tobytes()
