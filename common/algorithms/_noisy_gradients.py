"""Sums of noisy gradients: how to choose a descent's parameters, and what an owner answers in Wu et al.

*What an owner answers* is by Wu, Farokhi, Smith & Kaafar, "The Value of Collaboration in Convex Machine Learning with
Differential Privacy", IEEE S&P 2020: sums of gradients under its own budget, for an agreed horizon (`NoisyGradients`).
The paper's owner answers the mean of its n_l gradients, and the learner weighs the answers by n_l / n. Here the owner
answers the sum, which is n_l times as much, noise included, and the learner divides the sum of the answers by n: the
same numbers, the same noise on the mean, and the learner sees only a sum.

*Descent with momentum, without tuning* (`choose_descent`). Let s be the deviation of the noise on a coordinate of the
mean gradient, if there were one round. With T rounds it is s sqrt(T), so along directions without curvature noise moves
the model by S s, where S = T step / (1 - momentum) is the distance that the model travels along a constant gradient of
norm 1, *for every T*: rounds cost time, and no privacy. S is the one choice, and

    S = drift / s

lets noise move the scores of rows of norm 1 by a constant, the *drift*, for all n, d, epsilon and delta: by 1.8 if the
sign or the largest of scores is the prediction; if the score itself is, by the label's deviation, or by .2 if the study
does not say it, the label's bounds being -1 and +1. With steps of 1 / c, c the loss's curvature plus a lambda that is
given, and a momentum of 1 - 10 / T (the heavy ball of Polyak 1964) this takes T = sqrt(10 S c) rounds; without momentum
S c, which are fewer below 10. Where there is curvature, noise averages out in the mean of the last quarter of the
iterates (Polyak & Juditsky 1992). If noise allows at most 7.5 steps, one is taken: more would go in nearly the same
direction, with what the first has learnt already subtracted and its noise still there. That holds for classes, where
one step decides the scores' signs; a number needs the full distance. Clipping below the loss's largest slope trades
bias for noise: at 1/2 the logistic loss stays convex, and an example on the wrong side counts as much as an undecided
one. A number's clip norm is .8 of its deviation, or .25.

*Lambda*, if it is chosen, only keeps the weights within P's ball. A lambda that is given makes the model settle: after
a distance S it has gone all but exp(-lambda S) of the way to the minimiser, so S is at most 3 / lambda. More would add
noise alone.

*What was chosen by looking at data*: the drifts, the 7.5, the quarter and the clip norms, by test accuracy and R^2 on
public sets: on those that ``scripts/benchmarks/utility.py`` reports on, where drifts of classes from .8 to 2.4 are
within .01 of each other, and on seven sets of R's packages with bounds as a stranger would type them, often far too
wide, where 1.8 is better than 1.2 by .006 in the mean, and by up to .04; and the 3, of 2 to 10, by the fitness on four
sets of scikit-learn. No epsilon counts that.

*Stability.* w <- w + b (w - last) - a h w shrinks if 0 < a h < 2 (1 + b) (Polyak 1964), h any curvature of the fitness:
from lambda to c + lambda.

*Wu et al.'s horizon*, if it is chosen, follows from how far the noise of all rounds may move a weight
(`bearable_drift`). Numbers need the full distance, as above. For *classes* the sign of a score decides, or the largest,
and after few steps rounds are worth less: their benefit grows no faster than their number T, and their noise by T if it
composes by squares (``tight``), but by T^1.5 if each round hides its part alone (``paper``). What is left to gain is
the intercept's, and what columns of different scales need. For three classes and more, a bound on the 1-norm of K d
numbers leaves so little of a step that the published noise of a second costs more than it brings.

*What was chosen by looking at data*: the drifts of classes, of .03 to 1.8, by test accuracy on breast cancer, wine,
iris and digits of scikit-learn, Cod-RNA, a sample of card frauds and three made-up sets, and there the longest step
between 16 and 64, which give the same results; some runs on texts, rare classes, HAR and KDD99 were seen too. No
epsilon counts that.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import (
    LEAST_STEP,
    CalibrationChoice,
    ClipNorm,
    Regularization,
    Rounds,
    algorithm,
    rounded,
)
from parley.common.algorithms._regularization import choose_regularization
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.gradients import gradient_sum
from parley.common.learning.losses import Logistic, Loss, Softmax, Squared, curvature_of
from parley.common.privacy.calibration import Calibration, gaussian_sigmas
from parley.common.privacy.events import Event, GaussianEvent, LaplaceEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_laplace, fitting
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof
from parley.common.protocol.algorithm import Algorithm, Choice
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply

# ── descent with momentum: its parameters from public facts ──────────────────

_DRIFT, _DRIFT_OF_NUMBERS = 1.8, 0.2
SETTLED = 3.0
"""The longest distance that a model travels, in units of 1 / lambda, if lambda is given."""
_FEW_STEPS = 7.5
_CLIPPED_DEVIATIONS = 0.8
_DAMPING = 10.0
_REGULARIZATION = 1e-6
_ROOM, _MOST_MOMENTUM = 1.05, 0.95  # for steps that are given: 1 / c is far from diverging
_CLIP_NORMS: Mapping[type, float] = {Logistic: 0.5, Softmax: 0.7, Squared: 0.25}


def choose_descent(facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
    """Choose the parameters of a descent with momentum that are not ``given``, by the rule.

    They are rounds, step, momentum, averaging, regularisation and clip norm. Raises InvalidInputError if no Gaussian
    noise keeps a budget.
    """
    clip_norm = given.get("clip_norm", _clip_norm(facts))
    noise = noise_of_one_round(facts, clip_norm)
    curvature = curvature_of(facts.loss) + given.get("regularization", 0.0)
    way, flat = drift_of(facts) / noise, 1 / curvature
    if way <= _FEW_STEPS * flat and not isinstance(facts.loss, Squared):
        way = min(way, flat)
    until = f"noise of {noise:.2g} on a mean gradient would move scores by {way * noise:.2g}"
    if "regularization" in given and way > (settled := SETTLED / given["regularization"]):
        way, until = settled, "it has settled, by lambda"
    longest = given.get("step", flat)
    steps = way / longest
    wanted = math.ceil(min(steps, math.sqrt(_DAMPING * steps)))
    rounds = int(given.get("n_rounds", max(1, min(wanted, most_rounds))))
    momentum = given.get("momentum", _momentum(rounds, steps if "step" in given else math.inf))
    if "momentum" not in given:  # what a given step needs, so as not to diverge
        momentum = max(momentum, min(_MOST_MOMENTUM, _ROOM * longest / flat / 2 - 1))
    step = max(LEAST_STEP, min(longest, way * (1 - momentum) / rounds))
    short = "" if rounds >= wanted else f"; {wanted} would be more than time or owners allow"
    chosen = {
        "n_rounds": Choice(
            rounds, f"as many as let the model travel {rounds * step / (1 - momentum):.3g}, until {until}{short}"
        ),
        "step": Choice(rounded(step), f"at most 1 / c, c = {curvature:g} being the largest curvature"),
        "momentum": Choice(rounded(momentum), "1 - 10 / rounds: the same way in fewer rounds; none below 10 rounds"),
        "averaging": Choice(0.25, "noise averages out over the last quarter of the rounds"),
        "regularization": Choice(_REGULARIZATION, "the noise limits how far the model travels; no more is needed"),
        "clip_norm": Choice(clip_norm, "noise is scaled to it; an example beyond it counts as much as one at it"),
    }  # fmt: skip
    return {name: choice for name, choice in chosen.items() if name not in given}


def drift_of(facts: FederationFacts) -> float:
    """Return how far noise may move the score of a row of norm 1."""
    if not isinstance(facts.loss, Squared):
        return _DRIFT
    usual = facts.study and facts.study.usual_label
    return usual.deviation if usual else _DRIFT_OF_NUMBERS


def _clip_norm(facts: FederationFacts) -> float:
    """Return the clip norm that is chosen if none is given."""
    if isinstance(facts.loss, Squared) and (usual := facts.study and facts.study.usual_label):
        return rounded(_CLIPPED_DEVIATIONS * usual.deviation)
    return _CLIP_NORMS.get(type(facts.loss), min(facts.loss.lipschitz, 1.0))


def check_stable(loss: Loss, step: float, momentum: float, regularization: float) -> None:
    """Raise InvalidInputError if the step is so long that descent with momentum may diverge."""
    steepest = regularization + (loss.smoothness if math.isfinite(loss.smoothness) else 0.0)
    if step * steepest >= 2 * (1 + momentum):
        raise InvalidInputError(
            f"step must be below {2 * (1 + momentum) / steepest:.4g} for this loss, momentum and regularization, not "
            f"{step:g}: descent may diverge"
        )


def noise_of_one_round(facts: FederationFacts, clip_norm: float) -> float:
    """Return the deviation of the noise on a coordinate of the mean gradient, if one round is all that is released."""
    everyone = facts.everyone
    sigmas = gaussian_sigmas(everyone.own_epsilon, everyone.own_delta, 2 * clip_norm)
    return facts.deviation_of_sum(sigmas) / facts.n_total


def _momentum(rounds: int, most_steps: float) -> float:
    """Return 1 - 10 / rounds, or less if a given step would take the model too far."""
    return max(0.0, min(1 - _DAMPING / rounds, 1 - rounds / most_steps))


# ── the horizon of Wu et al.: how many rounds ────────────────────────────────

_TIGHT, _PAPER = 0.6, 0.3
_LONG_STEP, _SHORT_STEP = 32.0, 1.0


def bearable_drift(facts: FederationFacts, calibration: Calibration) -> float:
    """Return how far noise may move a weight; 0 if one round is best for any noise."""
    if isinstance(facts.loss, Squared):
        return drift_of(facts)
    if calibration == "tight":
        return _TIGHT
    return _PAPER if facts.loss.outputs == 1 else 0.0


def rounds_until_settled(steps: FloatArray, facts: FederationFacts, given: Mapping[str, float]) -> int:
    """Return how many of the steps (T,) to take.

    For classes under a given lambda, steps after the model settles add noise.
    """
    if isinstance(facts.loss, Squared) or "regularization" not in given:
        return len(steps)
    return 1 + int(np.searchsorted(np.cumsum(steps)[:-1], SETTLED / given["regularization"]))


def bearable_step(facts: FederationFacts, calibration: Calibration, blur: float, regularization: float) -> float:
    """Choose the first of steps that fall by the root of their number, for classes.

    T of them travel 2 sqrt(T) times as far as the first, and an intercept may need tens. Steps from 1 are short enough
    for any noise and lambda, because the sign of a score does not depend on its scale. ``blur`` is how far noise moves
    a weight by steps from 1.
    """
    most = (bearable_drift(facts, calibration) or _PAPER) / blur
    return rounded(max(_SHORT_STEP, min(_LONG_STEP, most, 1 / regularization if regularization else math.inf)))


# ── what all descents on sums of gradients share ─────────────────────────────


def ask_gradients(facts: FederationFacts, n_rounds: int, clip_norm: float) -> tuple[Question, ...]:
    """Return the questions of ``n_rounds`` rounds, each for the sum of gradients at weights of the model's shape.

    The first is about the weights to start from, if those are the run's public rows (`start_of`).

    Raises:
        InvalidInputError: the clip norm is above 1 and an example has one score; exact sums hold no more.
    """
    if clip_norm > 1 and facts.loss.outputs == 1:
        raise InvalidInputError(f"clip_norm must be at most 1 for a loss of one score, not {clip_norm:g}")
    question = Question("gradient", facts.shape, facts.n_weights)
    return (replace(question, public=_starts(facts)), *(question,) * (n_rounds - 1))


def start_of(facts: FederationFacts, longest: float = math.inf) -> FloatArray:
    """Return the weights that a descent starts from, of weights' shape.

    They are the run's public rows (K or 1, d), if those are weights, and zeros otherwise. The intercept of a regression
    starts at the value that predicts the label's mean, if the study gives that mean, or as near to it as ``longest``,
    the largest weight of the set in which the descent stays, allows.
    """
    if _starts(facts):
        return facts.public_rows.reshape(facts.shape)
    weights = np.zeros(facts.shape)
    if facts.study is not None and (usual := facts.study.usual_label) is not None:
        weights[-1] = min(max(usual.intercept, -longest), longest)
    return weights


def _starts(facts: FederationFacts) -> bool:
    """Whether the run's public rows are weights to start from."""
    return facts.public_shape == facts.rows_of_weights


def mean_gradient(reply: Reply, facts: FederationFacts) -> FloatArray:
    """Divide a round's sum of gradients by the number of examples of those who contributed; of weights' shape."""
    return reply.value.reshape(facts.shape) / facts.examples(reply.contributors)


# ── what an owner answers ────────────────────────────────────────────────────

L1Clip = Annotated[float, Field(ge=1e-9, le=1000, description="Xi: the largest 1-norm of one example's gradient")]

_DRIFT_OF_MINIMISER = 0.6


@algorithm
class NoisyGradients(Algorithm):
    """The owner's half of both algorithms (Theorem 1), and what the learner's halves share.

    ``calibration="paper"``: each coordinate of each answer has Laplace noise of scale 2 Xi T kappa / epsilon_l. Each
    owner adds all of it, so its own epsilon_l holds independently of what others do, under a secure sum too: pure
    epsilon_l over T rounds. ``"tight"``: Gaussian noise for (epsilon_l, delta_l) over the whole transcript; under a
    secure sum in shares, for the strictest budget.

    The paper's kappa, in how many shards one person's record may be, is the run's ``overlap``.
    """

    n_rounds: Rounds = 10
    regularization: Regularization = 0.01
    clip_norm: ClipNorm = 1.0
    l1_clip: L1Clip = 1.0
    calibration: CalibrationChoice = "paper"
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
        """Choose lambda by the rule of `parley.common.algorithms._regularization`, and the rounds by `bearable_drift`.

        The noise of T rounds counts as that of one. With printed steps, for a rho, more rounds do not travel further.
        """
        one, chosen = cls(**dict(given)), {}  # type: ignore[arg-type]
        if "n_rounds" not in given and given.get("rho") is None:
            drift = bearable_drift(facts, one.calibration)
            rounds = max(1, bisect_right(range(1, most_rounds + 1), drift, key=lambda n: one.blur_of(facts, n)))
            rounds = rounds_until_settled(replace(one, n_rounds=rounds).steps(facts), facts, given)
            reason = f"as many as time and owners allow, until noise moves weights by {drift:.2g} or lambda holds them"
            reason = f"{reason}; at least one" if drift else "the noise of more would cost more than they bring"
            one, chosen["n_rounds"] = replace(one, n_rounds=rounds), Choice(rounds, reason)
        return chosen | choose_regularization(
            given, one.noise_of_mean(facts) / math.sqrt(one.n_rounds), _DRIFT_OF_MINIMISER
        )

    @abstractmethod
    def steps(self, facts: FederationFacts) -> FloatArray:
        """Return the step lengths, (T,)."""

    def blur_of(self, facts: FederationFacts, n_rounds: int) -> float:
        """Return how far the noise of ``n_rounds`` rounds moves a weight along directions without curvature."""
        return (run := replace(self, n_rounds=n_rounds)).noise_of_mean(facts) * float(np.linalg.norm(run.steps(facts)))

    def noise_of_mean(self, facts: FederationFacts) -> float:
        """Return the deviation of the noise on a coordinate of a round's mean gradient."""
        if self.calibration == "paper":
            return math.sqrt(2 * float((self.scale(facts.everyone) ** 2).sum())) / facts.n_total
        return facts.deviation_of_sum(self.sigma(facts.everyone)) / facts.n_total

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return `noise_of_mean`, because how far the noise of all rounds moves a model depends on the steps."""
        return self.noise_of_mean(facts)

    @property
    def by_delta(self) -> Mapping[str, Any]:
        """The calibration whose noise grows by the root of the number of rounds; the paper's by the number."""
        return {} if self.calibration == "tight" else {"calibration": "tight"}

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask for T sums of gradients, the agreed horizon: the noise is scaled to it, so no owner answers beyond it."""
        return ask_gradients(facts, self.n_rounds, self.clip_norm)

    def whole_noise(self, round: int) -> bool:
        """Whether each owner adds all of the noise: for the paper's."""
        return self.calibration == "paper"

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the noisy sum of gradients, each of 2-norm up to the clip norm and of 1-norm up to Xi.

        Raises InvalidInputError if the round is beyond the horizon.
        """
        if not 1 <= query.round <= self.n_rounds:
            raise InvalidInputError(f"round {query.round} lies beyond the agreed horizon of {self.n_rounds} rounds")
        total = gradient_sum(facts.loss, prepared, query.message, self.clip_norm, self.l1_clip)
        if self.calibration == "paper":
            return add_laplace(total, self.scale(facts), noise)
        return add_gaussian(total, self.sigma(facts), facts.share, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return 2 Xi (1-norm), or twice the clip norm (2-norm): one gradient leaves the sum, another enters."""
        return self._reach

    def proof(self, query: Query, facts: OwnFacts) -> Proof:
        """Return the proof of a sum plus noise."""
        return Additive()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of one answer."""
        if self.calibration == "paper":
            return LaplaceEvent(self._reach / float(self.scale(facts)))
        return GaussianEvent(self._reach / float(self.sigma(facts)))

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether noise is not the paper's."""
        return self.calibration == "tight"

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the noise of `scale` or `sigma` does not fit on the wire."""
        fitting(self.scale(facts) if self.calibration == "paper" else self.sigma(facts))

    def scale(self, facts: OwnFacts) -> FloatArray:
        """Return the Laplace scale, Theorem 1's b on a sum, (...)."""
        return np.asarray(self._reach * self.n_rounds / facts.epsilon[facts.index])

    def sigma(self, facts: OwnFacts) -> FloatArray:
        """Return the deviation of the Gaussian noise on a sum, (...)."""
        return gaussian_sigmas(facts.own_epsilon, facts.own_delta, self._reach * math.sqrt(self.n_rounds))

    @property
    def _reach(self) -> float:
        """How far an answer moves, in the norm of its noise: one gradient leaves the sum, another enters."""
        return 2 * self.l1_clip if self.calibration == "paper" else 2 * min(self.clip_norm, self.l1_clip)
