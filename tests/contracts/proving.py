"""The proofs that algorithms must give of their events (`parley.common.privacy.proofs`), run: others are refused.

*Noise* is tested as the owner's service draws it, for one party at a time, and as a simulation does, stacked; in every
round, and late in a long run; under a secure sum in sums of as many answers as surely have noise, by parties taken at
random. Each test would reject true noise once in 10^6 times, and must reject the same noise at half its scale.

*Draws of an index* are no matter of chance: the chances that parties ask for are compared, exactly.

*Audits* bound epsilon from below, by Clopper and Pearson's intervals: a true claim is refused once in 10^6 times. The
author's neighbours and score show that half of the noise would be noticed. The suite's own, extreme rows and what
`tests.contracts.attacks` looks at in an answer, show that no number, sum or bit of it is exact or nearly so.

All of it is tried again elsewhere: with another loss, of weighted classes if the algorithm takes that, of rows of
another width and number, by other parties, in a long run. So mistakes are noticed that do not show in one place. What
is hidden on purpose is not: code that draws less for one secret message only passes any test that does not send it, and
has to be read. An audit sees answers alone, so it misses more than the other proofs: a leak once in a hundred answers;
one for rows, or beside other rows, that are not tried; one across rounds; exact data behind a code that no sum, bit or
value shows, such as a product or a checksum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, cast

import numpy as np
from scipy import special, stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Softmax
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.calibration import person_mu, tilted_mu
from parley.common.privacy.composition import releases
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    SequentialEvent,
)
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.privacy.proofs import Additive, Audit, Draws, NoiseInside, NoiseLaw, PostProcessing, Proof
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query
from tests.contracts.algorithms import PUBLIC, Case, D, ball, conversation, labels
from tests.contracts.attacks import ALARM, Attack, best_test, extreme_neighbours, runs_for
from tests.support.noises import Relay, RoundNoise, ScaledNoise

POWER = 0.99
ALONE, STACKED, AGAIN = 250, 400, 60
"""How often noise is drawn for one party at a time, how many parties draw it together, and how often elsewhere."""
N, PARTIES, MINIMUM, COLLUDERS = 6, 5, 5, 1
LONG = 200
TRIED = (1, 2, 3, 5, 8, 13, 21, 55, 144, LONG)
"""Rounds of a long run, and those that are tried. Of draws of an index fewer are asked, and all are tried as one."""
WIDER = 16
"""Noise that is drawn so much wider must come out so much wider: nothing cuts it off."""
AUDITED = 4_000
"""How often each neighbour of an audit answers."""
AUDIT_DELTA = 0.01
"""The largest delta of an event in an audit: at a larger one, attacks show little."""
LOOKED = 150
"""How often each of many neighbours answers, before the most telling answer more."""
_MOST_CLAIMED = 6.0
"""The largest epsilon that an attack on some thousand answers can show to be too small."""
ROUNDING = 1e-9
_FINE, _AGAIN = 2.0**24, 3
"""Noise so wide, in units, comes again so often with a chance below ALARM."""
_PAIRS, _BITS, _READ = 10, 16, 0.01
"""Neighbours for each message; bits that noise must reach; how far noise that is read may be off, in parts of it."""


class UnprovenError(AssertionError):
    """An algorithm's event is not proven."""


@dataclass(frozen=True)
class Proven:
    """What was shown of one kind of event: the proof, and figures in words."""

    event: str
    proof: str
    figure: str


@dataclass(frozen=True)
class Setting:
    """An algorithm, and public terms to try it on."""

    case: Case
    terms: Mapping[str, object] = field(default_factory=dict)
    classes: int = 2
    size: int = N
    own_names: bool = False
    """Whether run, parties and study are called as nowhere else."""

    def facts(self, k: int, n: int | None = None, **more: object) -> FederationFacts:
        """Facts of k parties of n examples; of a curator's algorithm, of the curator."""
        n = self.size if n is None else n
        sums = {"minimum_contributors": MINIMUM, "colluders": COLLUDERS} if self.case.secure_sum and k > 1 else {}
        facts = self.case.equal_facts(k, n, **(sums | dict(self.terms) | more))
        if not self.own_names:
            return facts
        study = None if facts.study is None else facts.study.model_copy(update={"name": "elsewhere"})
        return replace(facts, run="elsewhere", parties=tuple(f"site {k - i}" for i in range(k)), study=study)

    @property
    def width(self) -> int:
        """How many features there are."""
        return int(cast("int", self.terms.get("n_features", D)))

    def shard(self, rng: np.random.Generator, n: int | None = None) -> Shard:
        """A shard of n examples."""
        n = self.size if n is None else n
        y = labels(rng, n) if self.classes == 2 else rng.integers(0, self.classes, n) * 2.0 / (self.classes - 1) - 1
        return Shard(ball(rng, n, self.width), y)

    @property
    def parties(self) -> int:
        """How many parties there are."""
        if self.case.algorithm.curator:
            return 1
        return PARTIES + 2 if self.own_names else PARTIES

    def accepts(self) -> bool:
        """Whether the algorithm can be run so."""
        facts = self.facts(self.parties)
        try:
            self.case.algorithm.check_rows(facts)
            self.case.algorithm.questions(facts)
            self.case.algorithm.check_noise(facts.everyone)
            self.case.algorithm.event(1, facts.of(0))
        except InvalidInputError:
            return False
        return True


def settings(case: Case) -> Iterator[Setting]:
    """Two classes, then three, and no delta, as far as the algorithm takes them."""
    three: dict[str, object] = {"loss": Softmax(3)}
    if case.algorithm.rows == "held_out":
        three |= {"public": PUBLIC[:3], "public_shape": (3, D)}
    variants = (
        Setting(case),
        Setting(case, three, 3),
        Setting(case, {"delta": 0.0}),
        Setting(case, three | {"delta": 0.0}, 3),
    )
    yield from (setting for setting in variants if setting.accepts())


def prove(case: Case) -> list[Proven]:
    """Run the proofs of all events of an algorithm; raises UnprovenError."""
    proven = [proof for setting in settings(case) for proof in _proofs_of(setting, _all_rounds(setting))]
    if not proven:
        raise UnprovenError(f"{case.name} accepts none of the terms that it is tried on")
    if (other := elsewhere(case)) is not None:  # noise may be right in one place alone
        list(_proofs_of(other, _all_rounds(other), first=False))
    return list(dict.fromkeys(proven))


def elsewhere(case: Case) -> Setting | None:
    """A setting that has nothing in common with the first ones, as far as the algorithm takes that."""
    if hasattr(case.algorithm, "n_rounds"):
        facts = Setting(case).facts(1 if case.algorithm.curator else PARTIES)
        draws = isinstance(case.algorithm.proof(case.first_query(facts), facts.of(0)), Draws)
        case = replace(case, algorithm=with_parameters(case.algorithm, n_rounds=LONG // 10 if draws else LONG))
    budget: dict[str, object] = {"epsilon": 0.6, "delta": 1e-3}
    narrow: dict[str, object] = {"n_features": D - 1}
    if case.algorithm.rows in {"training", "held_out"}:
        public = np.delete(case.public["public"], 0, axis=1)
        narrow |= {"public": public, "public_shape": public.shape}
    loss: dict[str, object] = {"loss": Huber(0.5)}
    weighted: dict[str, object] = {"loss": Huber(0.5, class_weights=(0.25, 1.0))}
    for terms in (budget | narrow | weighted, budget | narrow | loss, budget | narrow, budget | loss, budget):
        setting = Setting(case, terms, size=5 * N, own_names=True)
        if setting.accepts():
            return setting
    return None


def with_parameters(algorithm: Algorithm, **parameters: float) -> Algorithm:
    """The same algorithm with other numbers for some of its parameters."""
    return cast("Algorithm", replace(cast("Any", algorithm), **parameters))


def _all_rounds(setting: Setting) -> list[Query]:
    """Return a query of each round."""
    return conversation(setting.case, setting.facts(setting.parties), seed=3)[0]


def _proofs_of(setting: Setting, round_queries: Sequence[Query], *, first: bool = True) -> Iterator[Proven]:
    """Run the proof of each round that is asked, of parties that do the same; ``first`` tries stacks of them too."""
    algorithm, facts = setting.case.algorithm, setting.facts(setting.parties)
    for group in [[i] for i in range(setting.parties)] if algorithm.roles else [list(range(setting.parties))]:
        own_facts, paid = facts.of(group[0]), False
        for query in round_queries:
            if len(round_queries) >= LONG and query.round not in {*TRIED, len(round_queries)}:
                continue
            event, proof = algorithm.event(query.round, own_facts), algorithm.proof(query, own_facts)
            if any(isinstance(release, NonPrivateEvent) for release in releases(event)):
                yield Proven(type(event).__name__, "none needed", "nothing is claimed")
            elif isinstance(event, NoEvent):
                if not (paid and isinstance(proof, Draws)):
                    check_ignores_data(setting, query, group[0])
            else:
                trial = Trial(setting, query, group, first)
                name = type(proof).__name__
                if isinstance(proof, PostProcessing):
                    trial.check_function()
                    proof = proof.of
                    name += f" of {type(proof).__name__}"
                yield Proven(type(event).__name__, name, trial.check(event, proof, round_queries))
                paid = isinstance(proof, Draws)
                if first and isinstance(proof, Additive):
                    trial.check_rounds_apart(
                        [earlier for earlier in round_queries if earlier.round <= query.round][-3:]
                    )


# ── what is tried ────────────────────────────────────────────────────────────

HOSTILE = [np.nan, np.inf, -np.inf, 1e308, 5e-324, 1e200, -1e18, 50.0]


def neighbours(rng: np.random.Generator, pairs: int, n: int, adjacency: Adjacency, d: int = D) -> tuple[Shard, Shard]:
    """Shards and their neighbours, stacked: one record replaced, or all, as if the owner had checked nothing.

    A fifth of the records replaced are not numbers, a fifth lie far outside the ball, a fifth pull the sum of gradients
    along the second axis with all their might when the weights point down the first; the rest are anything.
    """
    X, y = ball(rng, pairs, n, d) * rng.uniform(0, 2, (pairs, n, 1)), labels(rng, pairs, n)
    other_X, other_y = X.copy(), y.copy()
    if adjacency == "whole_party":
        other_X, other_y = ball(rng, pairs, n, d), labels(rng, pairs, n)
    kind = np.arange(pairs) % 5
    for rows, targets in ((X, y), (other_X, other_y)):
        rows[:, 0] = ball(rng, pairs, d)
        rows[kind == 0, 0, rng.integers(d)] = rng.choice(HOSTILE, (kind == 0).sum())
        rows[kind == 1, 0] = rng.choice(HOSTILE, ((kind == 1).sum(), d))
        rows[kind == 2, 0] *= 10.0 ** rng.uniform(0, 300, ((kind == 2).sum(), 1))
        targets[:, 0] = rng.choice([-1.0, 1.0, -1.0, 1.0, np.nan, np.inf, 1e9, 0.5], pairs)
    for rows, targets, sign in ((X, y, 1), (other_X, other_y, -1)):
        rows[kind == 3, 0] = [0.01, sign * math.sqrt(1 - 0.01**2), *[0] * (d - 2)]
        targets[kind == 3, 0] = 1.0
    return Shard(X, y), Shard(other_X, other_y)


def queries(query: Query, rng: np.random.Generator) -> list[Query]:
    """What a curious learner may ask: a question of the program, and others like it with other values."""
    if not query.message.size:
        return [query]
    steep = np.resize([-60_000.0, *[0] * (query.message.shape[-1] - 1)], query.message.shape)
    any_weights = rng.normal(size=query.message.shape) * 10.0 ** rng.uniform(-3, 4)
    return [query, replace(query, message=steep), replace(query, message=any_weights)]


def too_far(moved: IntArray, law: Event, bound: float) -> bool:
    """Whether a move in integers is longer than the bound in the norm that the law's noise hides: exactly, if (m,)."""
    power = 1 if isinstance(law, LaplaceEvent) else 2
    if moved.ndim > 1 and isinstance(law, L2LaplaceEvent):  # of several vectors the lengths add up
        return bool(np.linalg.norm(moved.astype(np.float64), axis=-1).sum() > bound * UNIT * (1 + ROUNDING))
    return bool(sum(abs(v) ** power for v in moved.ravel().tolist()) > (Fraction(bound) * UNIT) ** power)


def repeated(shard: Shard, k: int) -> Shard:
    """A stack of k parties that hold the same."""
    X, y = (np.broadcast_to(part, (k, *part.shape)) for part in (shard.X, shard.y))
    return Shard(X, y, norm=shard.norm)


def numbers(answer: IntArray) -> IntArray:
    """The numbers of an answer that are not 0, in order."""
    return np.sort(answer[answer != 0])


def check_ignores_data(setting: Setting, query: Query, index: int) -> None:
    """An answer that costs nothing is the same for every shard."""
    own_facts, rng = setting.facts(setting.parties).of(index), np.random.default_rng(9)
    algorithm = setting.case.algorithm
    answers = [
        algorithm.local(query, algorithm.prepare(setting.shard(rng), own_facts), own_facts, SeededNoise(10))
        for _ in range(4)
    ]
    if not all(np.array_equal(one, other) for one, other in pairwise(answers)):
        raise UnprovenError(
            f"{setting.case.name} declares that round {query.round} costs nothing, and answers from the data"
        )


# ── laws of noise ────────────────────────────────────────────────────────────


def p_of_ks(sample: FloatArray, cdf: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """The p-values (m,) of Kolmogorov and Smirnov's test for columns (n, m), by Stephens's formula."""
    n = len(sample)
    heights = cdf(np.sort(np.nan_to_num(sample), axis=0))
    steps = np.arange(n + 1)[:, None] / n
    apart = np.maximum((steps[1:] - heights).max(axis=0), (heights - steps[:-1]).max(axis=0))
    return np.asarray(stats.kstwobign.sf((math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * apart))


def p_of_correlation(one: FloatArray, other: FloatArray | None = None) -> float:
    """The p-value of the closest relation between the signs of columns (n, m), or of those of two such samples."""
    signs = np.sign(one)
    if other is None:
        products = signs.T @ signs / len(one)
        products = products[np.triu_indices(products.shape[0], 1)]
    else:
        products = (signs.T @ np.sign(other) / len(one)).ravel()
    if not products.size:
        return 1.0
    return float(min(1.0, products.size * 2 * stats.norm.sf(np.abs(products).max() * math.sqrt(len(one)))))


def p_of_law(noise: FloatArray, law: NoiseLaw, sensitivity: float) -> float:
    """How well noise (n, ..., m) fits what a law and the sensitivity imply: in each number, as long, and unrelated."""
    flat = noise.reshape(len(noise), -1)
    if isinstance(law, L2LaplaceEvent):
        vectors = noise.reshape(-1, noise.shape[-1]) * law.epsilon / sensitivity
        d, lengths = vectors.shape[-1], np.linalg.norm(vectors, axis=-1)
        if d != law.dimension:
            return 0.0
        p_values = [p_of_ks(lengths[:, None], stats.gamma(d).cdf)]
        if d > 1:
            cosines = (
                np.divide(vectors, lengths[:, None], where=lengths[:, None] > 0, out=np.ones_like(vectors)) + 1
            ) / 2
            p_values.append(p_of_ks(cosines, lambda x: special.betainc((d - 1) / 2, (d - 1) / 2, np.clip(x, 0, 1))))
    else:
        scaled = flat * (law.mu if isinstance(law, GaussianEvent) else law.epsilon) / sensitivity
        if isinstance(law, GaussianEvent):
            p_values = [
                p_of_ks(scaled, special.ndtr),
                p_of_ks((scaled**2).sum(axis=1, keepdims=True), stats.chi2(scaled.shape[1]).cdf),
            ]
        else:
            p_values = [
                p_of_ks(scaled, stats.laplace.cdf),
                p_of_ks(np.abs(scaled).sum(axis=1, keepdims=True), stats.gamma(scaled.shape[1]).cdf),
            ]
    all_p_values = np.concatenate(p_values)
    return min(1.0, 2 * all_p_values.size * float(all_p_values.min()), 2 * p_of_correlation(flat))


def is_within(apart: IntArray, law: NoiseLaw, sensitivity: float, moves: Sequence[float]) -> bool:
    """Whether numbers, or vectors' norms, of a difference are no larger than moves that add up to the sensitivity."""
    reals = to_reals(apart)
    sizes = np.linalg.norm(reals, axis=-1).ravel() if isinstance(law, L2LaplaceEvent) else np.abs(reals).ravel()
    sizes = np.sort(sizes)[::-1]
    allowed = np.zeros(max(len(sizes), len(moves)))
    allowed[: len(moves)] = np.array(moves) * sensitivity / sum(moves)
    return bool((sizes <= allowed[: len(sizes)] * (1 + ROUNDING) + ROUNDING).all())


def check_cost(declared: Event, law: NoiseLaw, vectors: int = 1, moves: Sequence[Sequence[float]] = ()) -> None:
    """Refuse an event that costs less than the law of its noise; of several vectors, one that is not pure.

    If neighbours make certain ``moves``, each list of them is to cost no more.
    """
    if declared == law:
        return
    if moves and not isinstance(law, GaussianEvent):
        of_lists = [
            SequentialEvent(tuple(replace(law, epsilon=law.epsilon * move / sum(one_list)) for move in one_list))
            for one_list in moves
        ]
        enough = all(
            epsilon_after([of_list], delta) <= epsilon_after([declared], delta) * (1 + ROUNDING)
            for of_list in of_lists
            for delta in (0.0, 1e-9, 1e-6, 1e-4, 1e-2)
        )
    elif vectors > 1:
        enough = isinstance(declared, ApproximateEvent) and epsilon_after([law], 0.0) <= declared.epsilon * (
            1 + ROUNDING
        )
    else:
        deltas = (0.0, 1e-9, 1e-6, 1e-4, 1e-2)
        enough = all(
            epsilon_after([law], delta) <= epsilon_after([declared], delta) * (1 + ROUNDING) for delta in deltas
        )
    if not enough:
        raise UnprovenError(f"the declared {declared} costs less than noise of {law} does")


# ── trials ───────────────────────────────────────────────────────────────────


@dataclass
class Trial:
    """One question to parties that do the same, ``group``; ``first`` tries everything, other trials less."""

    setting: Setting
    query: Query
    group: list[int]
    first: bool

    def __post_init__(self) -> None:
        self.algorithm = self.setting.case.algorithm
        self.stacked = self.first and not self.algorithm.roles and not self.algorithm.curator
        self.where = f"{self.setting.case.name}, round {self.query.round}"
        self.facts = self.setting.facts(self.setting.parties)
        self.owns = {i: self.facts.of(i) for i in self.group}
        self.runs = ALONE if self.first else AGAIN
        self.queries = queries(self.query, np.random.default_rng(4))
        self.query = self.queries[-1]
        first = self.setting.shard(np.random.default_rng(5))
        equal_rows = Shard(np.broadcast_to(first.X[:1], first.X.shape), np.ones_like(first.y))
        rare = Shard(equal_rows.X, np.where(np.arange(len(equal_rows.y)) == 0, -1.0, 1.0))  # a class of one row
        self.shards = first, Shard(0 * first.X, first.y), equal_rows, rare
        self.prepared = {
            i: [self.algorithm.prepare(shard, own_facts) for shard in self.shards] for i, own_facts in self.owns.items()
        }
        self.parts = 1
        if self.setting.case.secure_sum and not self.algorithm.whole_noise(self.query.round):
            self.parts = MINIMUM - COLLUDERS

    def check(self, event: Event, proof: Proof | None, round_queries: Sequence[Query]) -> str:
        """The figures of a proof of the event."""
        match proof:
            case Additive():
                return self.check_additive(event, proof)
            case NoiseInside():
                return self.check_inside(event, proof)
            case Draws():
                return self.check_draws(round_queries)
            case Audit():
                return self.check_audit(proof)
            case _:
                raise UnprovenError(f"{self.where} declares {event} and no proof of it")

    def released(self, prepared: Any, own_facts: OwnFacts, noise: Noise, query: Query | None = None) -> IntArray:  # noqa: ANN401 -- as `prepare` makes it
        """What has the noise: the answer, or what it is a function of."""
        query = self.query if query is None else query
        proof = self.algorithm.proof(query, own_facts)
        if isinstance(proof, PostProcessing):
            return proof.release(prepared, noise)
        return self.algorithm.local(query, prepared, own_facts, noise)

    def alone(self, noise: Noise) -> FloatArray:
        """Releases of single parties less what is exact, summed up by parts, (runs, ..., m), in sensitivities.

        They are asked by several messages, and hold several shards, in turn.
        """
        rng, turns = np.random.default_rng(6), list(product(range(len(self.shards)), self.queries))
        exact: dict[tuple[int, int], IntArray] = {}
        drawn, moved = [], []
        for run in range(self.runs):
            turn = run % len(turns)
            place, query = turns[turn]
            members = rng.choice(self.group, self.parts, replace=len(self.group) < self.parts).tolist()
            for i in members:
                prepared, own_facts = self.prepared[i][place], self.owns[i]
                if (i, turn) not in exact:
                    exact[i, turn] = self.released(prepared, own_facts, NoNoise(), query)
                drawn.append(self.released(prepared, own_facts, noise, query) - exact[i, turn])
            moved.append(self.sensitivity(self.owns[members[0]], query))
        draws_made = np.array(drawn)
        self.check_bits(draws_made, np.array(list(exact.values())))
        self.check_repeats(draws_made)
        sums = to_reals(draws_made.reshape(self.runs, self.parts, *draws_made.shape[1:]).sum(axis=1))
        return np.asarray(sums / np.reshape(moved, (-1, *[1] * (sums.ndim - 1))))

    def check_bits(self, noise: IntArray, exact: IntArray) -> None:
        """Check that noise has all the bits of exact answers: coarser noise would leave the last ones as they are."""
        for bit in range(_BITS):
            if not (exact >> bit & 1).any() or np.abs(noise).mean() < 2.0 ** (bit + 5):
                continue
            odd = (noise >> bit & 1).reshape(-1)
            if 2 * stats.norm.sf(abs(odd.mean() - 0.5) * 2 * math.sqrt(len(odd))) * _BITS < ALARM:
                raise UnprovenError(f"{self.where}: the noise leaves bit {bit} of an answer as it is")

    def check_repeats(self, noise: IntArray) -> None:
        """Check that fine noise does not come again, as it does where an answer is exact for some data."""
        for column in noise.reshape(len(noise), -1).T:
            if column.std() > _FINE and np.unique(column, return_counts=True)[1].max() > _AGAIN:
                raise UnprovenError(f"{self.where}: the same noise comes again, so some answers may have none")

    def together(self, noise: Noise) -> FloatArray:
        """The same of a stack of parties that hold equal shards, (STACKED, ..., m)."""
        k = STACKED * self.parts
        facts = self.setting.facts(k).everyone
        shard = repeated(self.shards[0], k)
        prepared = self.algorithm.prepare(shard, facts)
        drawn = self.released(prepared, facts, noise) - self.released(prepared, facts, NoNoise())
        drawn = np.random.default_rng(7).permutation(drawn)
        return to_reals(drawn.reshape(STACKED, self.parts, *drawn.shape[1:]).sum(axis=1))

    # An additive law.

    def check_additive(self, event: Event, proof: Additive) -> str:
        """The sensitivity, the law of the noise, and that each answer has noise of its own."""
        law = event if proof.law is None else proof.law
        if not isinstance(law, NoiseLaw):
            raise UnprovenError(
                f"{self.where}: no law of noise follows from {event}: say which it has, or give another proof"
            )
        for query in self.queries:
            self.check_sensitivity(law, query, proof.moves)
        noise = self.alone(RoundNoise(SeededNoise(8)))
        check_cost(event, law, math.prod(noise.shape[1:-1]), proof.moves)
        words = self.check_law("alone", noise, law, 1.0)
        if not self.first:
            wide = self.alone(ScaledNoise(RoundNoise(SeededNoise(18)), WIDER)) / WIDER
            if p_of_law(wide, law, 1.0) <= ALARM:
                raise UnprovenError(
                    f"{self.where}: large noise is cut off: drawn {WIDER} times as wide, it is less wide"
                )
        flat = noise.reshape(self.runs, -1)
        if p_of_correlation(flat[1:], flat[:-1]) < ALARM:
            raise UnprovenError(f"{self.where}: the noise of one answer says something about the next one's")
        if not self.stacked:
            return words
        stack = self.setting.facts(STACKED * self.parts).of(0)  # whose size may tell in the noise
        proof = cast("Additive", self.proven_noise(stack))
        law = cast("NoiseLaw", self.algorithm.event(self.query.round, stack) if proof.law is None else proof.law)
        noise = self.together(RoundNoise(SeededNoise(9)))
        return f"{words}; {self.check_law('stacked', noise, law, self.sensitivity(stack, self.query))}"

    def check_rounds_apart(self, queries: Sequence[Query]) -> None:
        """Check that the noise of this round, the last of several that are asked in turn, tells nothing of theirs."""
        index = self.group[0]
        own_facts, prepared = self.owns[index], self.prepared[index][0]
        noisy = [
            query for query in queries if isinstance(self.algorithm.proof(query, own_facts), (Additive, PostProcessing))
        ]
        exact = [self.released(prepared, own_facts, NoNoise(), query) for query in noisy]
        noise = RoundNoise(SeededNoise(19))
        drawn = [[self.released(prepared, own_facts, noise, query) for query in noisy] for _ in range(2 * AGAIN)]
        *earlier, last = (
            (np.array([answers[place] for answers in drawn]) - exact[place]).reshape(len(drawn), -1).astype(np.float64)
            for place in range(len(noisy))
        )
        if any(p_of_correlation(last, answers) < ALARM for answers in earlier):
            raise UnprovenError(f"{self.where}: the noise of a round says something about another one's")

    def sensitivity(self, own_facts: OwnFacts, query: Query) -> float:
        """What the algorithm declares; refused unless it is finite."""
        declared = float(np.max(self.algorithm.sensitivity(query, own_facts)))
        if not 0 < declared < math.inf:
            raise UnprovenError(f"{self.where}: additive noise hides a finite sensitivity, not {declared}")
        return declared

    def proven_noise(self, own_facts: OwnFacts) -> object:
        """The proof of what has the noise."""
        proof = self.algorithm.proof(self.query, own_facts)
        return proof.of if isinstance(proof, PostProcessing) else proof

    def check_law(self, way: str, noise: FloatArray, law: NoiseLaw, sensitivity: float) -> str:
        """Check that noise fits the law, and would not at half its scale."""
        p, halved = p_of_law(noise, law, sensitivity), p_of_law(noise / 2, law, sensitivity)
        if p <= ALARM:
            raise UnprovenError(
                f"{self.where}: noise drawn {way} does not fit {law} for a sensitivity of {sensitivity:g}"
            )
        if halved >= ALARM and self.first:
            raise UnprovenError(f"{self.where}: half of the noise drawn {way} would not be noticed")
        return f"{way} p = {p:.2g}, halved {halved:.0e}"

    def check_sensitivity(self, law: NoiseLaw, query: Query, moves: Sequence[Sequence[float]]) -> None:
        """Check that no neighbour's release is further off, of few examples and of more, or off in other ``moves``."""
        n = 2 if self.first else self.setting.size
        rng, own_facts = np.random.default_rng(11), self.setting.facts(self.setting.parties, n).of(self.group[0])
        pairs = neighbours(rng, _PAIRS, n, self.algorithm.adjacency, self.setting.width)
        bound = self.sensitivity(own_facts, query)
        for i in range(_PAIRS if self.first or query is self.query else 0):
            one, other = (
                self.released(self.algorithm.prepare(pair.party(i), own_facts), own_facts, NoNoise(), query)
                for pair in pairs
            )
            if too_far(one - other, law, bound):
                raise UnprovenError(
                    f"{self.where}: a neighbour's release is further off than the sensitivity, {bound:g}"
                )
            if moves and not any(is_within(one - other, law, bound, one_list) for one_list in moves):
                raise UnprovenError(f"{self.where}: a neighbour's release is off by other moves than {moves}")

    # Post-processing.

    def check_function(self) -> None:
        """Check that the answer is the function of the release, which sees nothing of the shard, alone or stacked."""
        rng = np.random.default_rng(12)
        for own_facts in [self.owns[self.group[0]], *([self.facts.everyone] if self.stacked else [])]:
            for seed, shard in enumerate((*self.shards, *self.shards)):
                pair = [shard, self.setting.shard(rng)]
                if own_facts.own_epsilon.ndim:  # a stack
                    pair = [repeated(one_shard, self.setting.parties) for one_shard in pair]
                prepared, of_other = (self.algorithm.prepare(one_shard, own_facts) for one_shard in pair)
                release = self.proof_(own_facts).release(prepared, SeededNoise(seed))
                answer = self.algorithm.local(self.query, prepared, own_facts, SeededNoise(seed))
                if self.proof_(own_facts).places_only and not np.array_equal(numbers(release), numbers(answer)):
                    raise UnprovenError(f"{self.where}: the answer has other numbers than the release")
                # The algorithm may have remembered the release: ask for another one in between.
                self.algorithm.local(self.query, of_other, own_facts, SeededNoise(seed + 1))
                if not np.array_equal(answer, self.proof_(own_facts).function(np.array(release))):
                    raise UnprovenError(f"{self.where}: the answer is no function of the release alone")

    def proof_(self, own_facts: OwnFacts) -> PostProcessing:
        """Return the proof of the query, built again by the algorithm."""
        return cast("PostProcessing", self.algorithm.proof(self.query, own_facts))

    # Noise inside a minimisation.

    def check_inside(self, event: Event, proof: NoiseInside) -> str:
        """The law of the noise, how far neighbours' noise for the same answer differs, and what both cost."""
        if self.parts > 1:
            raise UnprovenError(f"{self.where}: noise inside a minimisation is not drawn in shares")
        index = self.group[0]
        own_facts, noise = self.owns[index], RoundNoise(SeededNoise(8))
        drawn = {"alone": np.concatenate([self.noise_alone(place) for place in range(len(self.shards))])}
        if self.stacked:
            answers = to_reals(self.answers_together(noise))
            drawn["stacked"] = self.noise_of(own_facts)(self.prepared[index][0], answers)
        self.check_inside_cost(event, proof, drawn["alone"].shape[1])
        some = [self.released(self.prepared[index][0], own_facts, noise) for _ in range(8)]
        self.check_change(proof, to_reals(np.stack(some)))
        return "; ".join(self.check_law(way, values, proof.law, proof.reach) for way, values in drawn.items())

    def noise_alone(self, place: int) -> FloatArray:
        """The noise (runs, k, d) that is read off one party's answers: some of what it has drawn."""
        index = self.group[0]
        own_facts, prepared = self.owns[index], self.prepared[index][place]
        source, answers, heard = SeededNoise([8, place]), [], []
        for _ in range(self.runs // len(self.shards)):
            noise = KeptDraws(source)
            answers.append(to_reals(self.released(prepared, own_facts, noise)))
            heard.append(noise.drawn)
        read = self.noise_of(own_facts)(prepared, np.stack(answers))
        for vectors, draws in zip(read, heard, strict=True):
            for vector in vectors:
                like = [draw.reshape(-1, len(vector)) - vector for draw in draws if draw.shape[-1] == len(vector)]
                nearest = min((float(np.linalg.norm(draw, axis=-1).min()) for draw in like), default=math.inf)
                if nearest > _READ * float(np.linalg.norm(vector)):
                    raise UnprovenError(f"{self.where}: what is read off an answer is not the noise that was drawn")
        return read

    def answers_together(self, noise: Noise) -> IntArray:
        """Releases of a stack of parties that hold the same."""
        facts = self.setting.facts(STACKED).everyone
        shard = repeated(self.shards[0], STACKED)
        return self.released(self.algorithm.prepare(shard, facts), facts, noise)

    def noise_of(self, own_facts: OwnFacts) -> Callable[[Any, FloatArray], FloatArray]:
        """Return the function that computes the noise in answers."""
        return cast("NoiseInside", self.proven_noise(own_facts)).noise_of

    def check_inside_cost(self, event: Event, proof: NoiseInside, draws: int) -> None:
        """Check that the event costs no less than all draws, their determinants and the other costs together."""
        delta = event.delta if isinstance(event, ApproximateEvent) else float(self.owns[self.group[0]].own_delta)
        epsilon = epsilon_after([event], delta)
        if proof.besides is None:
            delta_left = delta / draws - proof.spent[1]
            allowed = draws * (epsilon_after([proof.law], max(delta_left, 0.0)) + proof.spent[0])
        else:
            delta_left = delta - proof.besides[1] - draws * proof.spent[1]
            covering = person_mu if proof.persons else tilted_mu
            covers = [GaussianEvent(covering(cast("GaussianEvent", proof.law).mu, proof.spent[0]))] * draws
            allowed = epsilon_after(covers, max(delta_left, 0.0)) + proof.besides[0]
        if delta_left < 0 or allowed > epsilon * (1 + ROUNDING):
            raise UnprovenError(
                f"{self.where}: {event} costs less than its noise, epsilon {allowed:g} at the same delta"
            )

    def check_change(self, proof: NoiseInside, answers: FloatArray) -> None:
        """Check that neighbours' noise for one answer differs by at most the reach, and its density by its factor."""
        n, step = 3, 1e-4
        own_facts, rng = self.setting.facts(self.setting.parties, n).of(self.group[0]), np.random.default_rng(13)
        noise_of, m = self.noise_of(own_facts), answers.shape[1]
        for answer in answers:
            one = self.setting.shard(rng, n)
            X, y = one.X.copy(), one.y.copy()
            X[0], y[0] = -X[0] if rng.random() < 0.5 else ball(rng, self.setting.width), y[rng.integers(n)]
            pair = [self.algorithm.prepare(shard, own_facts) for shard in (one, Shard(X, y))]
            apart = np.subtract(*(noise_of(shard, answer[None])[0] for shard in pair))
            if np.linalg.norm(apart, axis=-1).max() > proof.reach * (1 + ROUNDING):
                raise UnprovenError(
                    f"{self.where}: a neighbour's noise for the same answer is further off than {proof.reach:g}"
                )
            around = answer + step * np.concatenate([np.eye(m), -np.eye(m)])
            slopes = [noise_of(shard, around).reshape(2, m, m) for shard in pair]
            factors = [np.linalg.slogdet((up - down) / (2 * step))[1] for up, down in slopes]
            # Infinite determinants differ by nan, which is no smaller than anything.
            if not abs(factors[0] - factors[1]) <= proof.spent[0] * apart.shape[0] + 1e-6:
                raise UnprovenError(
                    f"{self.where}: the determinants of neighbours cost more than the {proof.spent[0]:g} spent"
                )

    # Draws of an index.

    def check_draws(self, round_queries: Sequence[Query]) -> str:
        """Check that chances differ by at most the spread, that so many are drawn, and that answers reveal no more."""
        own_facts = self.setting.facts(self.setting.parties, **self.widest_norm).of(self.group[0])
        event = self.algorithm.event(self.query.round, own_facts)
        if not isinstance(event, DrawEvent):
            raise UnprovenError(f"{self.where}: draws of an index cost a DrawEvent, not {event}")
        rounds = [self.query, *self.paid_with(own_facts, round_queries)]
        widest, most = 0.0, 0
        for seed, pair in enumerate(self.pairs_of_draws()):
            heard = [HeardDraws(seed) for _ in pair]
            prepared = [self.algorithm.prepare(shard, own_facts) for shard in pair]
            for query in rounds:
                answers = [
                    self.algorithm.local(query, prepared_shard, own_facts, noise)
                    for prepared_shard, noise in zip(prepared, heard, strict=True)
                ]
                if not np.array_equal(answers[0], answers[1]):
                    raise UnprovenError(f"{self.where}: of the same draws neighbours answer differently")
            one, other = heard
            if [n for _, n in one.asked] != [n for _, n in other.asked]:
                raise UnprovenError(f"{self.where}: how many draws there are depends on the data")
            most = max(most, sum(n for _, n in one.asked))
            for (mine, _), (its, _) in zip(one.asked, other.asked, strict=True):
                widest = max(widest, float(np.ptp(mine - its)))
        if most > event.draws or widest > event.spread * (1 + ROUNDING):
            raise UnprovenError(
                f"{self.where}: {most} draws, with chances that differ by {widest:g}, are more than {event}"
            )
        if not most or widest <= event.spread / 2:
            raise UnprovenError(f"{self.where}: of {most} draws, half of the randomness would not be noticed")
        part = widest / event.spread
        return f"{most} draws; the widest range is {part:.2f} of the spread, halved {2 * part:.2f}"

    def paid_with(self, own_facts: OwnFacts, round_queries: Sequence[Query]) -> Iterator[Query]:
        """The later rounds that cost nothing and are draws too."""
        for query in round_queries:
            free = isinstance(self.algorithm.event(query.round, own_facts), NoEvent)
            if query.round > self.query.round and free and isinstance(self.algorithm.proof(query, own_facts), Draws):
                yield query

    @property
    def widest_norm(self) -> dict[str, Any]:
        """The norm in which rows may be longest."""
        return {"norm": "max"} if "max" in self.algorithm.norms else {}

    def pairs_of_draws(self) -> Iterator[tuple[Shard, Shard]]:
        """Neighbours: one row of a corner is another; or all rows are alike, and one is turned round."""
        rng = np.random.default_rng(14)
        for corner in rng.choice([-1.0, 1.0], (10, self.setting.width)):
            for rows in (
                rng.uniform(-1, 1, (N, self.setting.width)),
                np.tile(corner, (N, 1)),
                np.tile(-corner, (N, 1)),
            ):
                for y in (np.ones(N), labels(rng, N)):
                    one, other = rows.copy(), rows.copy()
                    one[0], other[0] = corner, -corner
                    yield Shard(one, y, **self.widest_norm), Shard(other, y, **self.widest_norm)

    # Audits.

    def check_audit(self, proof: Audit) -> str:
        """Check that no test, author's or suite's, beats the claim, and that one does with half of the noise."""
        self.check_audit_terms(proof)
        # Only the first proof of the first setting is audited in full.
        is_first = self.first and [*self.setting.terms] == [*next(settings(self.setting.case)).terms]
        self.check_extremes(thorough=is_first)
        if is_first:
            question = self.audited(proof, proof.epsilon, proof.delta)
            if (delta := question.claim()[1]) > AUDIT_DELTA:
                raise UnprovenError(
                    f"{self.where}: an audit at a delta of {delta:g} lets too much pass: at most {AUDIT_DELTA:g}"
                )
        budgets = [(1.0, 1e-4), (proof.epsilon, proof.delta)]  # noise that is right for the audit alone is not
        for budget in budgets[: 1 + is_first]:
            claimed, attained = self.played(proof, *budget, 1.0, AUDITED if is_first else AUDITED // 10)
            if attained.epsilon > claimed:
                raise UnprovenError(
                    f"{self.where}: epsilon is at least {attained.epsilon:.3g}, and {claimed:.3g} is claimed"
                )
        if not is_first:
            return "no attack shows more than is claimed"
        claim, halved = self.played(proof, proof.epsilon, proof.delta, 0.5, AUDITED)
        if halved.power(claim) < POWER:
            raise UnprovenError(
                f"{self.where}: the audit would not notice half of the noise: it shows an epsilon of at least "
                f"{halved.epsilon:.3g}, and {claim:.3g} is claimed"
            )
        self.check_neighbours(question, proof.one, LOOKED, AUDITED)
        return f"epsilon {claim:.3g} claimed, with half the noise at least {halved.epsilon:.2g}; power > {POWER}"

    def check_audit_terms(self, proof: Audit) -> None:
        """Check that it is the same algorithm that is audited, on neighbours."""
        for name, value in proof.parameters.items():
            if not all(type(number) in {int, float} for number in (value, getattr(self.algorithm, name, None))):
                raise UnprovenError(f"{self.where}: an audit changes numbers of the algorithm, and {name} is none")
        one, other = proof.one, proof.other
        if one.X.shape != other.X.shape or one.norm != other.norm:
            raise UnprovenError(f"{self.where}: the audit's shards are of different shapes")
        differ = int(((one.X != other.X).any(axis=-1) | (one.y != other.y)).sum())
        if self.algorithm.adjacency == "replace_one" and differ > 1:
            raise UnprovenError(
                f"{self.where}: the audit's shards differ in {differ} records, and neighbours do in one"
            )

    def check_extremes(self, *, thorough: bool) -> None:
        """Check that extreme neighbours look alike; if ``thorough``, for two bases, by two messages and parties."""
        first, _, equal_rows, _ = self.shards
        bases = [(first, self.queries[0], self.group[0]), (equal_rows, self.queries[-1], self.group[-1])]
        for base, query, index in bases if thorough else bases[self.query.round % 2 :][:1]:
            members = [index, *(self.group * MINIMUM)[: self.parts - 1]]
            self.check_neighbours(
                SummedQuestion(self.algorithm, query, [self.owns[i] for i in members]),
                base,
                LOOKED if thorough else LOOKED // 3,
            )

    def check_neighbours(self, question: SummedQuestion, base: Shard, looked: int, runs: int = 0) -> None:
        """Check that no feature of answers separates extreme neighbours of a base better than the event allows.

        ``looked`` answers of each say which pairs to ask more often: at least ``runs`` times, a fifth of them choose
        again.
        """
        claim, delta = question.claim()
        if claim > _MOST_CLAIMED:
            raise UnprovenError(
                f"{self.where}: an epsilon of {claim:.3g} at a delta of {delta:g} hides next to nothing"
            )
        whole_party = self.algorithm.adjacency == "whole_party"
        shards, pairs = extreme_neighbours(base, self.setting.classes, all_rows=whole_party)
        answers = question.answers(shards, base, looked, 20)
        tests = [(best_test(answers[i], answers[j], delta), shards[i], shards[j]) for i, j in pairs]
        tests.sort(key=lambda test: -test[0].promise)
        for first, *pair in tests[:2]:
            one, other = question.answers(pair, base, max(runs, runs_for(claim)), 21)
            chosen = runs // 5
            test = best_test(one[:chosen], other[:chosen], delta) if chosen else first
            attained = test.attack(one[chosen:], other[chosen:], delta)
            if attained.epsilon > claim:
                raise UnprovenError(
                    f"{self.where}: {test.name} tells neighbours' answers apart: epsilon is at least "
                    f"{attained.epsilon:.3g}, and {claim:.3g} is claimed"
                )

    def audited(self, proof: Audit, epsilon: float, delta: float) -> SummedQuestion:
        """What an audit asks at a budget."""
        played = replace(self.setting.case, algorithm=with_parameters(self.algorithm, **proof.parameters))
        k = 1 if self.algorithm.curator else PARTIES
        setting = Setting(played, dict(self.setting.terms) | {
            "loss": proof.loss, "epsilon": epsilon, "delta": delta, "n_features": proof.one.n_features,
            "norm": proof.one.norm,
        })  # fmt: skip
        facts = setting.facts(k, proof.one.X.shape[0])
        query = conversation(played, facts, seed=3)[0][self.query.round - 1]
        if proof.message is not None:
            query = replace(query, message=proof.message)
        played.algorithm.questions(facts)[query.round - 1].check(query)
        return SummedQuestion(played.algorithm, query, [facts.of(i) for i in (self.group * MINIMUM)[: self.parts]])

    def played(self, proof: Audit, epsilon: float, delta: float, factor: float, runs: int) -> tuple[float, Attack]:
        """The epsilon that is claimed at a budget, and the best attack on answers with ``factor`` times the noise."""
        question = self.audited(proof, epsilon, delta)
        claim, delta = question.claim()
        answers = to_reals(question.answers([proof.one, proof.other], proof.one, runs, 15, factor))
        apart = np.subtract(*(answer[::4].mean(axis=0) for answer in answers[::-1]))
        scores = [
            [np.asarray(proof.score(answer), dtype=np.float64) for answer in answers],
            [answer @ apart for answer in answers],
        ]
        attacks = [
            Attack.of(*pair, delta)
            for null, alternative in scores
            for pair in ((null, alternative), (-alternative, -null))
        ]
        return claim, max(attacks, key=lambda attack: attack.epsilon)


@dataclass(frozen=True)
class SummedQuestion:
    """A question to parties whose answers are summed up; the first holds one shard or its neighbour."""

    algorithm: Algorithm
    query: Query
    party_facts: list[OwnFacts]

    def claim(self) -> tuple[float, float]:
        """The epsilon that the event claims, and the delta: of the event, if it has one, and at most of the budget."""
        event, delta = self.algorithm.event(self.query.round, self.party_facts[0]), float(self.party_facts[0].own_delta)
        claim = epsilon_after([event], delta)
        return claim, min(delta, event.delta) if isinstance(event, ApproximateEvent) else delta

    def answers(self, shards: Sequence[Shard], base: Shard, runs: int, seed: int, factor: float = 1.0) -> IntArray:
        """Answers (shards, runs, m) where the first party holds each of the shards, and the others hold the base."""
        mine = [
            self._of(self.party_facts[0], shard, runs, [seed, 1, place], factor) for place, shard in enumerate(shards)
        ]
        others = [
            self._of(own_facts, base, runs, [seed, 0, place], factor)
            for place, own_facts in enumerate(self.party_facts[1:])
        ]
        total: IntArray = np.stack(mine) + sum(others, start=np.zeros_like(mine[0]))
        return total

    def _of(self, own_facts: OwnFacts, shard: Shard, runs: int, seed: list[int], factor: float) -> IntArray:
        """Return one party's answers (runs, m)."""
        noise, prepared = ScaledNoise(RoundNoise(SeededNoise(seed)), factor), self.algorithm.prepare(shard, own_facts)
        return np.array([self.algorithm.local(self.query, prepared, own_facts, noise) for _ in range(runs)]).reshape(
            runs, -1
        )


class KeptDraws(RoundNoise):
    """Noise that keeps what is drawn in reals."""

    def __init__(self, source: Noise) -> None:
        super().__init__(source)
        self.drawn: list[FloatArray] = []

    def draw(self, law: str, scale: Any, shape: Any, *parts: float) -> Any:  # noqa: ANN401 -- as `Noise` has them
        drawn = super().draw(law, scale, shape, *parts)
        self.drawn.append(np.asarray(drawn, dtype=np.float64))
        return drawn


class HeardDraws(Relay):
    """Noise that keeps the log-chances of every index that is drawn, and draws them by a seed alone."""

    def __init__(self, seed: int) -> None:
        super().__init__(SeededNoise(seed))
        self.rng = np.random.default_rng(seed)
        self.asked: list[tuple[FloatArray, int]] = []

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        self.asked.append((np.log(mantissas) + exponents * math.log(2), n))
        return self.rng.integers(len(mantissas), size=n)
