"""An owner's stream of costs, led privately: each action is in the ledger before anybody sees it.

The whole horizon is charged with the first action. An action and the cost of the round before it, as integers, are
stored in one transaction: a crash leaves either both or neither, and the leader's state follows from the ledger alone.
An action that was stored and perhaps not seen is shown again after a restart, with its round; nothing is ever drawn
twice. No cost is read twice either: if the cost of an earlier round comes again, because an owner's file is read from
its beginning, it is compared with the stored one and skipped.

Costs are the owner's data: they lie in the ledger's file, and in no audit of it. The ledger's records name them by
digests. So that nobody can confirm a guess of a cost by its digest, each is stored behind bytes made with a salt.
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
from parley.party.ledger.ledger import OWNER_INPUT, SALT, Ask, Ledger
from parley.party.policy import check_cost, rules_of
from parley.party.settings import Policy

_KEPT = np.dtype("<i4")
"""How a cost's integers are stored."""
_SEAL_BYTES = 32


class StreamTerms(Strict):
    """The terms that a stream is charged by, see `parley.common.online.Leader`; ``name`` is its run in the ledger.

    ``study`` is the one whose people the costs are about; the account of all people pays if it is empty.
    """

    name: Identifier
    actions: int
    horizon: int
    bound: FiniteFloat
    epsilon: FiniteFloat
    delta: FiniteFloat
    calibration: Calibration = "tight"
    adversary: Adversary = "adaptive"
    study: str = ""

    def leader(self, noise: Noise | None = None, state: LeaderState | None = None) -> Leader:
        """Return a leader of these terms. Raises InvalidInputError where there is none."""
        return Leader(
            self.actions, self.horizon, self.bound, self.epsilon, self.delta,
            calibration=self.calibration, adversary=self.adversary, noise=noise, state=state,
        )  # fmt: skip


class CostLine(Strict):
    """A round's costs, one for each action, and the number of the round if the line states it."""

    round: Annotated[int | None, Field(ge=1, le=MOST_ROUNDS_LED)] = None
    cost: Annotated[tuple[float, ...], Field(description="one an action, none beyond the bound")]


_COSTS: TypeAdapter[CostLine] = TypeAdapter(CostLine)


@dataclass(frozen=True, slots=True)
class Action:
    """A round's action: rounds count from 1, actions from 0; ``drawn`` is False if the last action was kept."""

    round: int
    action: int
    drawn: bool = True

    def __str__(self) -> str:
        return json.dumps({"round": self.round, "action": self.action})

    @property
    def body(self) -> bytes:
        """The bytes that the ledger stores."""
        return canonical(asdict(self))

    @classmethod
    def read(cls, body: bytes) -> Action:
        """Read an action that the ledger stored."""
        return cls(**json.loads(body))


class Stream:
    """A stream that is new or continues where the ledger says it stood; ``noise`` makes each round's noise."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        terms: StreamTerms,
        noise: Callable[[int], Noise] = lambda _: SystemNoise(),
    ) -> None:
        """Reserve the price of the horizon, unless it is reserved already.

        Raises InvalidInputError for invalid terms, ForbiddenError where the owner's policy allows no run of that price,
        BudgetExhaustedError, and ConflictError where the stream has ended or was begun with other terms.
        """
        leader = terms.leader()
        price = price_at_once(leader.terms.event, terms.epsilon, terms.delta)
        check_cost(price, rules_of(policy))
        spec = canonical(terms.model_dump(mode="json", exclude=None if terms.study else {"study"}))
        self._book = ledger.consents.begin_own(terms.name, "ftrl", spec, terms.horizon, price, terms.study)
        self._ledger, self._name, self._noise = ledger, terms.name, noise
        self._salt = ledger.chain.attachment(self._book.number, SALT)
        self._owner_input = b""
        self._action: Action | None = None
        self._query = hashlib.sha256(spec).digest()
        totals, draws = np.zeros(terms.actions, np.int64), 0
        for round, number in self._book.answers.items():
            if round > 1:
                totals += self._take_cost(ledger.chain.attachment(number, OWNER_INPUT))
            self._action = Action.read(ledger.chain.attachment(number, "body"))
            draws += self._action.drawn
        rounds, action = (self._action.round - 1, self._action.action) if self._action else (0, 0)
        state = LeaderState(totals, rounds, acted=self._action is not None, action=action, draws=draws)
        self.leader = terms.leader(state=state)

    @property
    def is_over(self) -> bool:
        """Whether the last round of the horizon has its cost."""
        return self.leader.state.rounds >= self.leader.terms.horizon

    def act(self) -> Action:
        """Store and return the action of the next round; it stays the same until the round's cost is known.

        Raises UnavailableError where it cannot be stored; the caller may try again. Raises ConflictError where another
        process has stored another cost for the round before.
        """
        if self._action is None:
            before = self.leader.state
            round = before.rounds + 1
            ask = Ask(OWNER, self._name, round, self._query.hex(), "act", self._owner_input)
            try:
                stored = self._ledger.rounds.answer(ask, lambda noise: (self._draw(round), noise))
            except ConflictError:
                if round not in self._book.answers:
                    raise
                raise ConflictError(
                    f"another process has stored another cost of round {round - 1} of {self._name}: the same command "
                    "goes on with that"
                ) from None
            action = self._action = Action.read(stored.body)  # perhaps stored by another process
            draws = before.draws + action.drawn
            self.leader.state = replace(before, acted=True, action=action.action, draws=draws)
        return self._action

    def observe(self, cost: tuple[float, ...], round: int | None = None) -> None:
        """Take the cost of ``round``; of the round whose action was shown last if None.

        For an earlier round the cost must be the stored one, and changes nothing. Raises ConflictError if it differs,
        and InvalidInputError for a later round and as `Leader.observe` does.
        """
        at = self.leader.state
        if round is not None and 1 <= round <= at.rounds:
            units = cost_in_units(cost, self.leader.terms.actions, self.leader.bound)
            if _kept(units) != self._stored_cost(round):
                raise ConflictError("the ledger has another cost of this round")
        elif round not in {None, at.rounds + 1} and not self.is_over:
            raise InvalidInputError(f"the cost of round {at.rounds + 1} comes next")
        else:
            self.leader.observe(cost)
            self._take_cost(self._sealed(_kept(self.leader.state.totals - at.totals)))
            self._action = None
        if self.is_over:
            self._ledger.consents.end(OWNER, self._name, "owner")

    def _draw(self, round: int) -> bytes:
        """Draw an action, and leave the leader's state as it was: `act` changes it once the action is stored."""
        before, self.leader.noise = self.leader.state, self._noise(round)
        action = Action(round, self.leader.act(), drawn=self.leader.state.draws > before.draws)
        self.leader.state = before
        return action.body

    def _stored_cost(self, round: int) -> bytes:
        """Return the stored cost of an earlier round, as bytes."""
        later = self._book.answers.get(round + 1)
        return (self._owner_input if later is None else self._ledger.chain.attachment(later, OWNER_INPUT))[_SEAL_BYTES:]

    def _take_cost(self, record: bytes) -> IntArray:
        """Take a stored cost into the next round's question, and return its integers (p,)."""
        self._owner_input = record
        self._query = hashlib.sha256(self._query + record).digest()
        return np.frombuffer(record[_SEAL_BYTES:], _KEPT).astype(np.int64)

    def _sealed(self, cost: bytes) -> bytes:
        """Put bytes before a cost that nobody can compute without the salt; the same cost gets the same bytes."""
        return hmac.digest(self._salt, self._query + cost, "sha256") + cost


def play(stream: Stream, lines: Iterable[str], *, from_start: bool = True) -> Iterator[Action]:
    """Yield the action of the next round, then one for each line of costs, except for the last of the horizon.

    ``from_start`` says that the input's first line is round 1's; lines of rounds whose costs were read before are then
    skipped. Otherwise the first line is that of the next round. A line may also state its round itself.

    Raises InvalidInputError for a line that is no cost, comes too early or comes after the horizon, and ConflictError
    for a line that differs from what was read before for its round.
    """
    shown_action = stream.act()
    yield shown_action
    round = 1 if from_start else shown_action.round
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            cost_line = read_cost(line)
            round = cost_line.round or round
            stream.observe(cost_line.cost, round)
        except (InvalidInputError, ConflictError) as error:
            words = f"line {number} of the input, round {round}: {error.detail}"
            if isinstance(error, ConflictError) and from_start and cost_line.round is None:
                words += f"; if the first line is the cost of round {shown_action.round}, say --input rest"
            raise type(error)(words) from None
        round += 1
        if not stream.is_over and (action := stream.act()) != shown_action:
            yield (shown_action := action)


def read_cost(line: str) -> CostLine:
    """Parse a line of JSON: a list of numbers, or an object with one as ``cost``. Raises InvalidInputError."""
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
    """Return the bytes that store a cost (p,), which is in integers."""
    return units.astype(_KEPT).tobytes()
