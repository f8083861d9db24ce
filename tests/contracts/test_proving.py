"""The contract suite itself: it refuses algorithms that draw less noise than they say, and takes honest ones.

Each of these is a way in which an event may be false, or its proof empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from scipy import special

from parley.common.algorithms import AlgorithmRegistry
from parley.common.algorithms._parameters import algorithm
from parley.common.algorithms.dp_gd import DpGd
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Huber, Logistic
from parley.common.learning.model import Model
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    ParallelEvent,
    SequentialEvent,
)
from parley.common.privacy.mechanisms.additive import add_gaussian
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Audit, Draws, NoiseInside, PostProcessing, Proof
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question
from tests.contracts.algorithms import Case
from tests.contracts.proving import Proven, UnprovenError, prove
from tests.support.noises import ScaledNoise

pytestmark = pytest.mark.long

EACH_AND_SUM = pytest.mark.parametrize("secure", [False, True], ids=["each", "sum"])


def tried(one: Algorithm, *, secure: bool = False) -> list[Proven]:
    """Return what the suite proves about an algorithm."""
    return prove(Case("cheat", replace(one, n_rounds=3) if isinstance(one, DpGd) else one, secure))


def signs(released: IntArray) -> IntArray:
    """Return the sign of each number."""
    return np.sign(released) * np.int64(UNIT)


@algorithm
class SignsOfSums(DpGd):
    """Honest: the signs of noisy sums of gradients."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the signs of the noisy sums."""
        return signs(self.noisy(query, prepared, facts, noise))

    def noisy(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the sums with their noise."""
        return DpGd.local(self, query, prepared, facts, noise)

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Signs of a Gaussian release."""
        return PostProcessing(lambda prepared, noise: self.noisy(query, prepared, facts, noise), signs, Additive())


@algorithm
class Advanced(DpGd):
    """Honest: sums with Gaussian noise, charged as (epsilon, delta) a round."""

    def event(self, round: int, facts: OwnFacts) -> Event:
        """A T-th of the budget."""
        return ApproximateEvent(*self.part(facts))

    def part(self, facts: OwnFacts) -> tuple[float, float]:
        """A T-th of the budget."""
        return float(facts.own_epsilon.min()) / self.n_rounds, float(facts.own_delta.min()) / self.n_rounds

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise of one round, for a T-th of the budget."""
        alone = DpGd(n_rounds=1, clip_norm=self.clip_norm)
        return DpGd.sigma(
            alone, replace(facts, epsilon=facts.epsilon / self.n_rounds, delta=facts.delta / self.n_rounds)
        )

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """State that the noise is Gaussian."""
        return Additive(GaussianEvent(2 * self.clip_norm / float(np.max(self.sigma(facts)))))


@algorithm
class OnePerCent(Advanced):
    """Cheats: `Advanced` with a hundredth of the noise."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Answer with far too little noise."""
        return Advanced.local(self, query, prepared, facts, ScaledNoise(noise, 0.01))


def largest(released: IntArray) -> IntArray:
    """The two numbers that are furthest from 0, and zeros."""
    return np.where(np.abs(released) >= np.sort(np.abs(released), axis=-1)[..., -2:-1], released, 0)


FUNCTIONS: dict[str, Callable[[IntArray], IntArray]] = {
    "largest": largest,
    "rounded": lambda released: released // UNIT * UNIT,
    "averaged": lambda released: released // 6,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_noisy_sums_are_taken(name: str) -> None:
    function = FUNCTIONS[name]

    @algorithm
    class Function(SignsOfSums):
        def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
            return function(self.noisy(query, prepared, facts, noise))

        def proof(self, query: Query, facts: OwnFacts) -> Proof:
            return PostProcessing(
                lambda prepared, noise: self.noisy(query, prepared, facts, noise), function, Additive()
            )

    assert tried(Function())


@EACH_AND_SUM
@pytest.mark.parametrize("honest", [SignsOfSums(), Advanced()], ids=lambda honest: type(honest).__name__)
def test_honest_algorithms_are_taken(honest: Algorithm, secure: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    assert tried(honest, secure=secure)


def canaries() -> tuple[Shard, Shard]:
    """Return a record and its opposite."""
    row = np.array([[1.0, 0.0, 0.0, 0.0]])
    return Shard(row, np.ones(1)), Shard(row, -np.ones(1))


def audit(score: Callable[[FloatArray], FloatArray], **terms: Any) -> Audit:  # noqa: ANN401 -- of several kinds
    """An audit of sums of gradients at w = 0, by a score."""
    arguments: dict[str, Any] = {"loss": Huber(0.5), "epsilon": 9.0, "delta": 0.03, "parameters": {}}
    return Audit(*canaries(), score, **(arguments | {"message": np.zeros(4)} | terms))


FIRST = audit(lambda answers: -answers[:, 0])
BLIND = audit(lambda answers: np.zeros(len(answers)), epsilon=100.0)

EVENTS: dict[str, Callable[[ApproximateEvent], Event]] = {
    "any": lambda told: told,
    "sequence": lambda told: SequentialEvent((told,)),
    "parallel": lambda told: ParallelEvent((told, NoEvent())),
    "draw": lambda told: DrawEvent(told.epsilon, 1),
    "hidden": lambda told: SequentialEvent((GaussianEvent(0.01), told)),
    "gaussian": lambda _: GaussianEvent(0.01),
    "laplace": lambda _: LaplaceEvent(0.01),
    "l2": lambda _: L2LaplaceEvent(0.01, 4),
    "free": lambda _: NoEvent(),
}
PROOFS: list[Callable[[GaussianEvent], Proof | None]] = [
    lambda _: None,
    lambda _: Additive(),
    Additive,
    lambda _: Additive(GaussianEvent(100.0)),
    lambda _: Draws(),
    lambda _: FIRST,
    lambda _: BLIND,
    lambda law: NoiseInside(lambda _, answers: answers[:, None], law, 2.0, (0.0, 0.0)),
]


@pytest.mark.parametrize("proof", PROOFS, ids=["none", "own", "law", "less", "draws", "audit", "blind", "inside"])
@pytest.mark.parametrize(
    "event",
    [
        pytest.param(event, id=name, marks=[pytest.mark.slow] if name not in {"any", "draw"} else [])
        for name, event in EVENTS.items()
    ],
)
def test_a_hundredth_of_the_noise_is_refused_under_every_proof(
    event: Callable[[ApproximateEvent], Event], proof: Callable[[GaussianEvent], Proof | None]
) -> None:
    @algorithm
    class Said(OnePerCent):
        def event(self, round: int, facts: OwnFacts) -> Event:
            return event(ApproximateEvent(*self.part(facts)))

        def proof(self, query: Query, facts: OwnFacts) -> Proof:
            return cast("Proof", proof(GaussianEvent(2 * self.clip_norm / float(np.max(self.sigma(facts))))))

    with pytest.raises(UnprovenError):
        tried(Said())


class Cheat(DpGd):
    """Sums whose noise ``changed`` spoils, given the query, the facts, and the noise's integers."""

    __slots__ = ()
    changed: ClassVar[Callable[[Query, OwnFacts, IntArray], IntArray]]

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum, and the spoilt noise."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        drawn = add_gaussian(np.zeros_like(total), self.sigma(facts), facts.share, noise)
        return total + type(self).changed(query, facts, drawn)


def kept(
    part: Callable[[Query, OwnFacts, tuple[int, ...]], bool | BoolArray],
) -> Callable[[Query, OwnFacts, IntArray], IntArray]:
    """Noise where ``part`` holds, a hundredth of it elsewhere."""

    def changed(query: Query, facts: OwnFacts, drawn: IntArray) -> IntArray:
        return np.where(part(query, facts, drawn.shape), drawn, drawn // 100)

    return changed


def is_stack(_query: Query, facts: OwnFacts, _shape: tuple[int, ...]) -> bool:
    """Whether several parties answer together."""
    return facts.own_epsilon.ndim > 0


CHEATS: dict[str, Callable[[Query, OwnFacts, IntArray], IntArray]] = {
    "one coordinate": kept(lambda _query, _facts, shape: np.arange(shape[-1]) == 0),
    "all but one coordinate": kept(lambda _query, _facts, shape: np.arange(shape[-1]) != 2),
    "the first round": kept(lambda query, _facts, _shape: query.round == 1),
    "all but the second round": kept(lambda query, _facts, _shape: query.round != 2),
    "the first ten rounds": kept(lambda query, _facts, _shape: query.round <= 10),
    "a stack": kept(is_stack),
    "a party alone": kept(lambda query, facts, shape: not is_stack(query, facts, shape)),
    "half of it": lambda _query, _facts, drawn: drawn // 2,
    "one draw for all coordinates": lambda _query, _facts, drawn: np.repeat(drawn[..., :1], drawn.shape[-1], axis=-1),
    "two coordinates alike": lambda _query, _facts, drawn: drawn[..., [0, 1, 2, 0]],
    "never negative": lambda _query, _facts, drawn: np.abs(drawn),
    "whole noise, but not in shares": lambda _query, facts, drawn: drawn if facts.share == 1 else drawn // 2,
    "the first party's alone": lambda _query, facts, drawn: 2 * drawn
    * np.reshape(np.arange(len(facts.parties))[facts.index] % 4 == 0, (*facts.own_epsilon.shape, 1)),
}  # fmt: skip
CHEATS |= {
    "rounds that are not asked in a short run": kept(lambda query, _facts, _shape: not 5 <= query.round <= 15),
    "messages that are not 0": kept(lambda query, _facts, _shape: bool(query.message.any())),
    "one budget": kept(lambda _query, facts, _shape: bool((facts.epsilon == 1).all())),
    "one size": kept(lambda _query, facts, _shape: bool((facts.n_examples == 6).all())),
    "a run of a hundred rounds at most": kept(lambda query, _facts, _shape: query.round <= 100),
    "one number of parties": kept(lambda _query, facts, _shape: len(facts.parties) in {5, 400}),
    "names like the suite's": kept(lambda _query, facts, _shape: facts.parties[0] == "party-1"),
    "one width": kept(lambda _query, facts, _shape: facts.n_features == 4),
    "losses of classes": kept(lambda _query, facts, _shape: not isinstance(facts.loss, Huber)),
    "the first bits": lambda _query, _facts, drawn: drawn >> 12 << 12,
}
IN_SUMS = {"whole noise, but not in shares", "the first party's alone"}


@pytest.mark.parametrize("changed", CHEATS)
def test_noise_that_is_right_in_part_is_refused(changed: str) -> None:
    made = type("Spoilt", (Cheat,), {"__slots__": (), "changed": staticmethod(CHEATS[changed])})
    with pytest.raises(UnprovenError):
        tried(made(), secure=changed in IN_SUMS)


@algorithm
class ForSomeData(DpGd):
    """Cheats: draws no noise where all labels are equal."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum, and noise or none."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        drawn = add_gaussian(np.zeros_like(total), self.sigma(facts), facts.share, noise)
        return np.asarray(total + drawn * (np.ptp(prepared.y, axis=-1, keepdims=True) > 0))


@algorithm
class ForRareClasses(DpGd):
    """Cheats: one number has no noise where a class has one row."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum, and noise or none in the last number."""
        noisy = DpGd.local(self, query, prepared, facts, noise)
        if (np.sum(prepared.y < 0, axis=-1) == 1).all():
            noisy[..., -1] = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)[..., -1]
        return noisy


def ranks(_prepared: object, answers: FloatArray) -> FloatArray:
    """Normal numbers in the order of answers: they have the right law, even where the answers have not."""
    order = (answers.argsort(axis=0).argsort(axis=0) + 0.5) / len(answers)
    return np.asarray(20 * special.ndtri(order))[:, None]


@algorithm
class MadeUp(OnePerCent):
    """Noise is read off answers that was never drawn."""

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Made up of the answers' order."""
        return NoiseInside(ranks, GaussianEvent(2 / 20), 2.0, (0.0, 0.0))


@algorithm
class DrawnOnce(DpGd):
    """The noise of the first round is that of all."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum plus noise that is kept."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        sigma = self.sigma(facts)
        return total + noise.once("kept", lambda: add_gaussian(np.zeros_like(total), sigma, facts.share, noise))


@algorithm
class CutOff(DpGd):
    """Cheats: draws no noise beyond three deviations."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum, and noise that is cut off."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        drawn = add_gaussian(np.zeros_like(total), self.sigma(facts), facts.share, noise)
        most = (3 * UNIT * self.sigma(facts)[..., None]).astype(np.int64)
        return np.asarray(total + np.clip(drawn, -most, most))


DRAWN: dict[str, IntArray] = {}


@algorithm
class TakenBack(DpGd):
    """Every second round takes the noise of the one before away."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum plus noise, or less the noise that is kept."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        drawn = add_gaussian(np.zeros_like(total), self.sigma(facts), facts.share, noise)
        key = f"{drawn.shape} {facts.index} {self.sigma(facts)}"
        if query.round % 2 == 0:
            return total - DRAWN.pop(key, drawn)
        if drawn.any():
            DRAWN[key] = drawn
        return np.asarray(total + drawn)


@algorithm
class LargerShards(DpGd):
    """Three gradients of each record, of more than a few."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum, or three of them."""
        times = 2 * (prepared.X.shape[-2] > 10)
        more = times * gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        return np.asarray(DpGd.local(self, query, prepared, facts, noise) + more)


@algorithm
class NotItsOwn(DpGd):
    """Noise from a generator of its own, the same each time."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The sum plus noise that anybody can draw."""
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
        drawn = np.random.default_rng(query.round).normal(size=total.shape) * self.sigma(facts)[..., None] * UNIT
        return np.asarray(total + drawn.astype(np.int64))


@algorithm
class FurtherOff(DpGd):
    """The sensitivity of one clipped gradient, and not of two."""

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return half of the true sensitivity."""
        return self.clip_norm / 2

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the noise for the understated sensitivity."""
        return DpGd.sigma(self, facts) / 4

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the understated sensitivity."""
        return GaussianEvent(self.clip_norm / 2 / float(self.sigma(facts)))


@algorithm
class FreeLater(DpGd):
    """Cheats: charges only the first round."""

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Nothing, from the second on."""
        return DpGd.event(self, round, facts) if round == 1 else NoEvent()


REMEMBERED: dict[str, Shard] = {}


@algorithm
class Peeks(SignsOfSums):
    """The function looks at the shard that was last worked on."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Signs where the shard's first label says so."""
        REMEMBERED["last"] = prepared
        return self.turned(self.noisy(query, prepared, facts, noise))

    def turned(self, released: IntArray) -> IntArray:
        """Signs, turned round by a label."""
        return np.asarray(signs(released) * REMEMBERED["last"].y[..., :1].astype(np.int64))

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """As if it were a function of the release."""

        def release(prepared: Shard, noise: Noise) -> IntArray:
            return self.noisy(query, prepared, facts, noise)

        return PostProcessing(release, self.turned, Additive())


@algorithm
class AnswersElse(SignsOfSums):
    """What is answered is not the function of the release."""

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """The signs of exact sums."""
        self.noisy(query, prepared, facts, noise)
        return signs(gradient_sum(facts.loss, prepared, query.message, self.clip_norm))


@algorithm
class ReleasesMore(SignsOfSums):
    """The release has exact numbers beside the noisy ones."""

    def noisy(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """All but one with noise."""
        drawn = DpGd.local(self, query, prepared, facts, noise)
        drawn[..., 0] = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)[..., 0]
        return drawn


@pytest.mark.parametrize(
    "cheat",
    [
        ForSomeData,
        ForRareClasses,
        MadeUp,
        DrawnOnce,
        CutOff,
        TakenBack,
        LargerShards,
        NotItsOwn,
        FurtherOff,
        FreeLater,
        Peeks,
        AnswersElse,
        ReleasesMore,
    ],
    ids=lambda c: c.__name__,
)
def test_other_cheats_are_refused(cheat: type[Algorithm]) -> None:
    with pytest.raises(UnprovenError):
        tried(cheat())


# ── audits ───────────────────────────────────────────────────────────────────


@algorithm
class Majority(Algorithm):
    """The label of most examples, turned over with chance 1 / (1 + e^epsilon) (Warner 1965)."""

    part: ClassVar[float] = 1.0

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Declare one question."""
        return (Question("label", (0,), 1, "each"),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the labels."""
        reply = yield Query(1, "label", np.zeros(0), "each")
        return Model(np.full(facts.n_features, float(reply.value.mean())))

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Answer 0 or 1."""
        votes = zip(
            np.atleast_1d((prepared.y * prepared.mask).sum(axis=-1) > 0), np.atleast_1d(facts.own_epsilon), strict=True
        )
        drawn = [self.draw(bool(label), float(epsilon), noise.member(i)) for i, (label, epsilon) in enumerate(votes)]
        return np.reshape(drawn, (*facts.own_epsilon.shape, 1)) * np.int64(UNIT)

    def draw(self, label: bool, epsilon: float, noise: Noise) -> int:  # noqa: FBT001 -- it is private
        """Draw the label, or with a small chance the other one."""
        odds = np.exp([epsilon / self.part, 0.0])[:: 1 if not label else -1]
        fractions, exponents = np.frexp(odds)
        return int(noise.categorical((fractions * 2**53).astype(np.int64), exponents.astype(np.int64), 1)[0])

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """What is answered is no sum."""
        return math.inf

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return pure epsilon."""
        return ApproximateEvent(float(facts.own_epsilon))

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """One record, and the other label."""
        return Audit(*canaries(), lambda answers: -answers[:, 0], Logistic(), 1.0, 0.0, {})


class TooSure(Majority):
    """Cheats: turns the label over far less often."""

    __slots__ = ()
    part = 0.01


@pytest.mark.slow
def test_an_audit_takes_an_honest_draw_and_refuses_one_that_is_too_sure() -> None:
    (honest,) = {case.proof for case in tried(Majority())}
    assert honest == "Audit"
    with pytest.raises(UnprovenError, match="epsilon is at least"):
        tried(TooSure())


AUDITS: dict[str, tuple[Audit, str]] = {
    "a score that sees nothing": (audit(lambda a: np.zeros(len(a)), loss=Logistic(), epsilon=5.0), "would not notice"),
    "one shard twice": (replace(FIRST, other=FIRST.one), "would not notice"),
    "no neighbours": (
        replace(FIRST, one=Shard(np.eye(2, 4), np.ones(2)), other=Shard(-np.eye(2, 4), np.ones(2))),
        "differ in 2 records",
    ),
    "another mechanism": (replace(FIRST, parameters={"sparse": True}), "changes numbers"),
    "a delta at which leaks pass": (replace(FIRST, epsilon=0.3, delta=0.9), "lets too much pass"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_that_shows_nothing_is_refused_even_of_an_honest_algorithm(name: str) -> None:
    claim, words = AUDITS[name]

    @algorithm
    class Audited(Advanced):
        def proof(self, query: Query, facts: OwnFacts) -> Proof:
            return claim

    with pytest.raises(UnprovenError, match=words):
        tried(Audited())


@pytest.mark.slow
def test_an_audit_takes_gaussian_noise_that_is_what_it_should_be() -> None:
    @algorithm
    class Audited(Advanced):
        def proof(self, query: Query, facts: OwnFacts) -> Proof:
            return FIRST

    for case in tried(Audited()):
        print(case)


Leak = Callable[[Query, Shard, IntArray, IntArray], tuple[int, IntArray]]
"""A query, a shard, exact sums and noisy ones to the place of the number that leaks, and what it then is."""


def nearly(part: int, place: int = 2) -> Leak:
    """A part of the noise in one number."""
    return lambda _query, _shard, total, noisy: (place, total[place] + (noisy[place] - total[place]) // part)


def where(condition: Callable[[Query, Shard], bool], leak: Leak) -> Leak:
    """A leak under a condition, and none else."""
    return lambda query, shard, total, noisy: (
        leak(query, shard, total, noisy) if condition(query, shard) else (0, noisy[0])
    )


EXACT: Leak = lambda _query, _shard, total, _noisy: (3, total[3])  # noqa: E731 -- one of many
LEAKS: dict[str, Leak] = {
    "the last number": EXACT,
    "a number in the middle": lambda _query, _shard, total, _noisy: (1, total[1]),
    "a sum of two numbers": lambda _query, _shard, total, noisy: (2, total[2] + total[3] - noisy[3]),
    "a difference, by noise used twice": lambda _query, _shard, total, noisy: (2, total[2] + noisy[1] - total[1]),
    "a number with a hundredth of the noise": nearly(100),
    "a number with half of the noise": nearly(2),
    "a number from the second round on": where(lambda query, _shard: query.round > 1, EXACT),
    "a number of a rare class": where(lambda _query, shard: int((shard.y < 0).sum()) == 1, EXACT),
    "the last bits": lambda _query, _shard, total, noisy: (0, noisy[0] >> 12 << 12 | (total[2] >> 22 & 0xFFF)),
    "the last digits": lambda _query, _shard, total, noisy: (0, noisy[0] // 1000 * 1000 + total[2] // 2**24 % 1000),
    "the parity of a sum": lambda _query, shard, _total, noisy: (
        0, noisy[0] ^ (noisy[0] ^ noisy[1] ^ (shard.y[0] > 0)) & 1,
    ),
    "a sign": lambda _query, _shard, total, noisy: (0, np.copysign(noisy[0], total[0]).astype(np.int64)),
    "how wide the noise is": lambda _query, shard, total, noisy: (
        0, total[0] + (noisy[0] - total[0]) * (1 + 3 * (shard.y[0] > 0)),
    ),
    "which numbers are equal": lambda _query, shard, _total, noisy: (1, noisy[0] if shard.y[0] > 0 else noisy[1]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_an_audit_refuses_a_leak_that_its_author_does_not_look_at(name: str) -> None:
    @algorithm
    class Leaky(Advanced):
        def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
            noisy = Advanced.local(self, query, prepared, facts, noise)
            total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm)
            place, leaked = LEAKS[name](query, prepared, total, noisy)
            noisy[place] = leaked
            return noisy

        def proof(self, query: Query, facts: OwnFacts) -> Proof:
            return FIRST

    with pytest.raises(UnprovenError, match="tells neighbours' answers apart"):
        tried(Leaky())


# ── the registry ─────────────────────────────────────────────────────────────


class Unproven(Cheat):
    """An algorithm whose author forgot the proof."""

    __slots__ = ()
    proof = Algorithm.proof  # type: ignore[assignment]


def test_the_registry_refuses_an_algorithm_without_a_proof() -> None:
    registry = AlgorithmRegistry(unproven=f"{__name__}:Unproven", proven=f"{__name__}:SignsOfSums")
    assert registry["proven"] is SignsOfSums
    with pytest.raises(InvalidInputError, match="'unproven' declares events and no proof of them"):
        registry["unproven"]
