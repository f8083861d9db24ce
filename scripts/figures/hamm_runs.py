"""What Hamm, Cao & Belkin's figures measure: accuracies of a trial's models at several epsilons, and excess risks.

Parties are trained and asked once a trial, without noise; each run then draws new noise for all parties. That of
counts and of averages is drawn at once, as one party's that adds all of it: what M shares add up to has the same law.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from parley.common.algorithms.baselines import Local, Pooled
from parley.common.algorithms.ensemble import Ensemble, EnsembleSoft, EnsembleVote, train
from parley.common.algorithms.parameter_average import ParameterAverage
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.encoding.fixed_point import UNIT, from_wire
from parley.common.learning.erm import TOLERANCE, Doubtful, minimise
from parley.common.learning.losses import Logistic
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.mechanisms.additive import add_gaussian
from parley.common.privacy.mechanisms.class_means import classes_had
from parley.common.privacy.mechanisms.one_against_rest import each_against_rest
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import simulate
from scripts.figures.hamm_data import DRAWS, Split

LAMBDA = 1e-4
DELTA = 1e-5
CHANCE = 0.05
"""The chance with which each part of Theorem 4 may fail, its delta_p and delta_s."""
RISKY_LAMBDA = 0.01
PREDICTIONS = 1_000
"""How many answers one by one are to be had of a budget."""
_MEMBERS, _TESTED = 300, 20_000
_ROWS = 1_000
"""How many rows 20,000 parties vote on at a time: 160 MB."""
_BLOCK = 2**22
Asked = Ensemble | ParameterAverage


@dataclass(frozen=True, slots=True)
class Method:
    """A private method: its algorithm, whose noise, and whether its parameters are chosen from public facts."""

    algorithm: type[Asked]
    calibration: str
    chosen: bool

    @property
    def exact(self) -> Asked:
        """The algorithm to run without noise, at lambda = 1e-4: nothing has to be chosen."""
        calibration = self.calibration if self.algorithm is ParameterAverage else "paper"
        return self.algorithm(regularization=LAMBDA, calibration=calibration)  # type: ignore[arg-type]

    def build(self, facts: FederationFacts) -> Asked:
        """The algorithm for such facts; lambda is 1e-4 unless it is chosen."""
        terms: dict[str, object] = {"calibration": self.calibration}
        if self.chosen:
            choices = self.algorithm.choose(facts, terms, 1)  # type: ignore[arg-type]
            return self.algorithm(**terms, **{name: choice.value for name, choice in choices.items()})  # type: ignore[arg-type]
        return self.algorithm(regularization=LAMBDA, **terms)  # type: ignore[arg-type]


METHODS = {
    "vote, paper": Method(EnsembleVote, "paper", chosen=False),
    "soft, paper": Method(EnsembleSoft, "paper", chosen=False),
    "average, paper": Method(ParameterAverage, "paper", chosen=False),
    "soft, output_tight": Method(EnsembleSoft, "output_tight", chosen=True),
    "vote, tight": Method(EnsembleVote, "tight", chosen=True),
    "soft, tight": Method(EnsembleSoft, "tight", chosen=True),
    "average, tight": Method(ParameterAverage, "tight", chosen=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A federation that was asked already: its sum ``total`` without noise is kept, and noise is drawn for each run."""

    algorithm: Asked
    facts: FederationFacts
    total: IntArray
    noise: Noise

    async def answer(self, run: str, query: Query) -> Reply:  # noqa: ARG002
        """Return the sum of all answers, with the noise of all."""
        algorithm, alone = self.algorithm, all_noise(self.facts)
        if isinstance(algorithm, ParameterAverage):
            value = algorithm.local(query, self.total, alone, self.noise)
        elif query.step == "noise":
            value = algorithm.local(query, None, self.facts.everyone, self.noise).sum(axis=0)  # type: ignore[arg-type]
        elif algorithm.hides_votes:
            value = algorithm.hidden(self.total, algorithm.rows_asked(query.message), alone, self.noise)
        else:
            value = self.total
        return Reply(from_wire(value, 0), tuple(range(len(self.facts.parties))))


def all_noise(facts: FederationFacts) -> OwnFacts:
    """A party's view of the facts in which it adds all the noise of a sum."""
    return replace(facts, secure_sum=False).of(0)


@dataclass(frozen=True, eq=False)
class Trial:
    """A split whose parties were trained, and what they answered."""

    split: Split
    _prepared: dict[ParameterAverage, IntArray] = field(default_factory=dict)
    _exact: dict[Ensemble, FloatArray] = field(default_factory=dict)

    def facts(self, epsilon: float) -> FederationFacts:
        """What all agree on: a secure sum among all parties, public rows, delta = 1e-5 where there is one."""
        split = self.split
        return FederationFacts.uniform(
            split.parties.n_examples, epsilon=epsilon, delta=DELTA, n_features=split.parties.n_features,
            loss=split.loss, secure_sum=True, public=split.public, public_shape=split.public.shape,
        )  # fmt: skip

    def run(self, algorithm: Asked, epsilon: float, noise: Noise) -> Model:
        """Run an algorithm, and return its model."""
        facts = self.facts(epsilon)
        if isinstance(algorithm, ParameterAverage):
            total = self.prepared(algorithm).sum(axis=0)
        else:
            rows = np.arange(algorithm.n_asked(facts)) * len(self.split.public) // algorithm.n_asked(facts)
            total = self.votes[0][rows].reshape(-1)
            if not (algorithm.hides_votes or isinstance(noise, NoNoise)):
                return Model(self.exact(algorithm) + self.noise_on_model(algorithm, facts, noise))
        return asyncio.run(drive(algorithm.program(facts), Kept(algorithm, facts, total, noise), "figure", MemoryLog()))

    def exact(self, algorithm: Ensemble) -> FloatArray:
        """Return the weights of an ensemble without noise on the votes or on the model, fitted once."""
        if algorithm not in self._exact:
            self._exact[algorithm] = self.run(algorithm, 1.0, NoNoise()).weights
        return self._exact[algorithm]

    def noise_on_model(self, algorithm: Ensemble, facts: FederationFacts, noise: Noise) -> FloatArray:
        """Draw the noise on an ensemble's weights, as its program adds it."""
        parties = Kept(algorithm, facts, np.zeros(0, np.int64), noise)
        return algorithm.noise_of(asyncio.run(parties.answer("figure", Query(2, "noise", np.zeros(0)))), facts)

    @cached_property
    def votes(self) -> tuple[IntArray, IntArray]:
        """The votes on public rows and on the first test rows, in integers of 2^-32; of two classes the second's."""
        tests = self.split.test.X[:PREDICTIONS]
        rows, facts = np.concatenate([self.split.public, tests]), self.facts(1.0).everyone
        voters, algorithm = train(self.split.parties, facts, LAMBDA), EnsembleVote(calibration="paper")
        parts = [
            algorithm.tally(voters.votes(block), block, facts).sum(axis=0).reshape(len(block), -1)
            for block in np.array_split(rows, math.ceil(len(rows) / _ROWS))
        ]
        votes = np.concatenate(parts)
        return votes[: len(self.split.public)], votes[len(self.split.public) :]

    def prepared(self, algorithm: ParameterAverage) -> IntArray:
        """What the parties prepare for an average, (M, ...)."""
        if algorithm not in self._prepared:
            self._prepared.clear()  # of one at a time: 20,000 parties' are 19 MB
            self._prepared[algorithm] = algorithm.prepare(self.split.parties, self.facts(1.0).everyone)
        return self._prepared[algorithm]

    @cached_property
    def members(self) -> FloatArray:
        """The parties' own minimisers, (M, d) or (M, K, d), of all classes."""
        return simulate(Local(LAMBDA), self.split.parties, self.facts(1.0), NoNoise()).weights

    def worth(self, model: Model) -> float:
        """Return a model's accuracy on the test rows."""
        return accuracy(model, self.split.test)

    def batch(self) -> float:
        """The accuracy of what all parties' rows, pooled, teach."""
        pooled = Shard.stack([self.split.parties.pooled()])
        facts = FederationFacts.uniform(
            pooled.n_examples, epsilon=1, delta=DELTA, n_features=pooled.n_features, loss=self.split.loss
        )
        return self.worth(simulate(Pooled(LAMBDA), pooled, facts, NoNoise()))

    def individual(self) -> float:
        """The mean accuracy of what the first 300 parties teach themselves, on the first 20,000 test rows."""
        return accuracy(Model(self.members[:_MEMBERS], "members"), self.split.test.view(slice(_TESTED)))

    def released(self, epsilon: float, noise: Noise) -> float:
        """The accuracy of the majority of all parties' classifiers, each released with tight noise of its own."""
        facts, algorithm = self.facts(epsilon), ParameterAverage(LAMBDA)
        exact = self.prepared(algorithm)[:, : facts.n_weights]
        noisy = add_gaussian(
            exact, gaussian_sigmas(facts.epsilon, facts.delta, algorithm.sum_sensitivity(facts)), 1.0, noise
        )
        test = self.split.test.view(slice(PREDICTIONS))
        return _hits(_majority(noisy.astype(np.float64).reshape(-1, *facts.shape), test.X), test)

    def answered(self, epsilon: float, noise: Noise) -> float:
        """The accuracy of noisy majorities on 1,000 test rows; each row spends its part of the budget."""
        test = self.split.test.view(slice(PREDICTIONS))
        algorithm, facts = EnsembleVote(auxiliary_rows=PREDICTIONS), self.facts(epsilon)
        noisy = algorithm.hidden(self.votes[1].reshape(-1), test.X, all_noise(facts), noise) / UNIT
        counts = noisy.reshape(len(test.y), -1)
        if counts.shape[1] == 1:
            counts = np.concatenate([len(facts.parties) - counts, counts], axis=1)
        return _hits(counts, test)


def accuracies_on(split: str, number: int, epsilons: Sequence[float], repeat: int) -> list[tuple[str, float, float]]:
    """`accuracies` of a trial with its number, on one of `DRAWS`."""
    return list(accuracies(Trial(DRAWS[split](number)), number, epsilons, repeat))


def averages_on(split: str, number: int) -> list[tuple[str, float]]:
    """Return `averages` for a trial, by its number."""
    return list(averages(Trial(DRAWS[split](number))))


def risks_on(
    split: str, number: int, parties: Sequence[int], epsilons: Sequence[float], repeat: int
) -> list[tuple[float, int, float, float]]:
    """Return `excess_risks` for a trial, by its number."""
    return list(excess_risks(DRAWS[split](number), number, parties, epsilons, repeat))


def accuracies(trial: Trial, number: int, epsilons: Sequence[float], repeat: int) -> Iterator[tuple[str, float, float]]:
    """Each line's name, 1/epsilon, and accuracy; those with noise so many times, and once without (0)."""
    yield "batch", 0.0, trial.batch()
    yield "individual", 0.0, trial.individual()
    for place, (name, method) in enumerate(METHODS.items()):
        yield name, 0.0, trial.worth(trial.run(method.exact, 1.0, NoNoise()))
        for epsilon in epsilons:
            algorithm = method.build(trial.facts(epsilon))
            for i in range(repeat):
                noise = SeededNoise([number, place, round(100 * epsilon), i])
                yield name, 1 / epsilon, trial.worth(trial.run(algorithm, epsilon, noise))
    for place, (name, alternative) in enumerate({"all released": trial.released, "one by one": trial.answered}.items()):
        yield name, 0.0, alternative(1e4, NoNoise())
        for epsilon in epsilons:
            for i in range(repeat if name == "one by one" else 1):
                noise = SeededNoise([number, len(METHODS) + place, round(100 * epsilon), i])
                yield name, 1 / epsilon, alternative(epsilon, noise)


def averages(trial: Trial) -> Iterator[tuple[str, float]]:
    """Names and accuracies without noise: of the other methods, and of averages made in several ways."""
    fits, averages = trial.members, trial.prepared(ParameterAverage(LAMBDA, "paper")).reshape(trial.members.shape)
    has_class = classes_had(trial.split.parties, trial.split.loss.outputs)[..., None]
    apart = has_class * against_the_rest(trial.split.parties, trial.split.loss.outputs)
    ways = {
        "average": averages.mean(axis=0),
        "average, by who has the class": averages.sum(axis=0) / has_class.sum(axis=0),
        "average, all classes": fits.mean(axis=0),
        "average, all classes, by who has them": fits.sum(axis=0) / has_class.sum(axis=0),
        "average, all classes, where had": (fits * has_class).mean(axis=0),
        "average, one against the rest": apart.mean(axis=0),
        "average, one against the rest, by who has it": apart.sum(axis=0) / has_class.sum(axis=0),
    }
    for name, average in ways.items():
        yield name, trial.worth(Model(average))
    for name in ("vote, paper", "soft, paper"):
        yield name.removesuffix(", paper"), trial.worth(trial.run(METHODS[name].exact, 1.0, NoNoise()))
    yield "batch", trial.batch()
    yield "individual", trial.individual()


def against_the_rest(parties: Shard, n_classes: int) -> FloatArray:
    """Logistic fits of each class against all others, (M, K, d), for each party of (M, n, d)."""
    strength = LAMBDA * parties.n_examples.astype(np.float64)
    fits = [minimise(Logistic(), two, strength, tolerance=TOLERANCE) for two in each_against_rest(parties, n_classes)]
    return np.stack(fits, axis=1)


def excess_risks(
    split: Split, number: int, parties: Sequence[int], epsilons: Sequence[float], repeat: int
) -> Iterator[tuple[float, int, float, float]]:
    """Epsilon, M, how much more the risk of the published soft labels is with noise, and a bound on that at 95 %.

    The noise b has |b| <= d log(d / .05) 2 / (lambda M epsilon) with that probability, and the risk curves by at most
    c + lambda, so it rises by at most (c + lambda) |b|^2 / 2: half of Theorem 4's term for noise.
    """
    for m in parties:
        trial = Trial(replace(split, parties=next(split.parties.parties(m))[1]))
        algorithm = EnsembleSoft(regularization=RISKY_LAMBDA, calibration="paper")
        part = trial.votes[0][:, 0] / (UNIT * m)
        least = _risk(trial.run(algorithm, 1.0, NoNoise()), split, part)
        d = split.parties.n_features
        for epsilon in epsilons:
            bound = noise_term(d, m, epsilon, RISKY_LAMBDA, split.loss.smoothness) / 2
            for i in range(repeat):
                noisy = trial.run(algorithm, epsilon, SeededNoise([number, m, round(100 * epsilon), i]))
                excess = _risk(noisy, split, part) - least
                yield epsilon, m, excess, bound


def noise_term(features: int, parties: int, epsilon: float, regularization: float, smoothness: float = 0.25) -> float:
    """Theorem 4's term for noise, 4 d^2 (c + lambda) log^2(d / delta_p) / (lambda M epsilon)^2, at delta_p = .05.

    c bounds the second derivative of the loss: 1/4 for the logistic.

    >>> round(noise_term(300, 1000, 10.0, 1e-4), -5)
    6800000.0
    """
    longest = 2 * features * math.log(features / CHANCE) / (regularization * parties * epsilon)
    return (smoothness + regularization) * longest**2


def sampling_term(rows: int, regularization: float) -> float:
    """Theorem 4's term for N public rows, 16 (32 + log(1 / delta_s)) / (lambda N), at delta_s = .05.

    >>> round(sampling_term(1000, 1e-4))
    5599
    """
    return 16 * (32 + math.log(1 / CHANCE)) / (regularization * rows)


def _risk(model: Model, split: Split, part: FloatArray) -> float:
    """J of a linear model on public rows, of whose votes the second class has these parts (N,)."""
    losses = Doubtful(split.loss).value(model.scores(split.public), 2 * part - 1)
    return float(losses.mean() + RISKY_LAMBDA / 2 * (model.weights**2).sum())


def _majority(weights: FloatArray, rows: FloatArray) -> IntArray:
    """How many of these linear classifiers, (M, d) or (M, K, d), are for each class of rows (N, d), (N, K)."""
    outputs = 1 if weights.ndim == 2 else weights.shape[1]  # noqa: PLR2004
    k = max(outputs, 2)
    counts = np.zeros((len(rows), k), dtype=np.int64)
    most = max(1, _BLOCK // (len(rows) * outputs))
    for start in range(0, len(weights), most):
        scores = weights[start : start + most] @ rows.T
        chosen = scores.argmax(axis=1) if outputs > 1 else (scores > 0).astype(np.int64)
        for party in range(k):
            counts[:, party] += (chosen == party).sum(axis=0)
    return counts


def _hits(counts: FloatArray | IntArray, test: Shard) -> float:
    """The share of rows whose class has the largest count, ties as in eq. 6."""
    k = counts.shape[1]
    winners = (counts[:, 1] >= counts[:, 0]) if k == 2 else counts.argmax(axis=1)  # noqa: PLR2004
    return float((winners == decode_classes(test.y, k)).mean())
