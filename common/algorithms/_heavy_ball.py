"""Descent with momentum by noisy gradients, without tuning: its parameters from public facts alone.

*The rule.* Let s be the deviation of the noise on a coordinate of the mean gradient, if there were one round. Of T
rounds it is s sqrt(T), so along directions without curvature noise moves the model by S s, where S = T step /
(1 - momentum) is the way that it travels along a constant gradient of norm 1, *whatever T is*: rounds cost time, and no
privacy. S is the one choice, and

    S = drift / s

lets noise move the scores of rows of norm 1 by a constant, the *drift*, whatever n, d, epsilon and delta are: by 1.8
where the sign or the largest of scores is what counts; where it is the score, by the label's deviation, or by .2 where
the study does not tell that, the label's bounds being -1 and +1. With steps of 1 / c, c the loss's curvature and a
lambda that is given, and a momentum of 1 - 10 / T (the heavy ball of Polyak 1964) it takes T = sqrt(10 S c) rounds;
without momentum S c, which are fewer below 10. Where there is curvature, noise averages out in the mean of the last
quarter of the iterates (Polyak & Juditsky 1992). Where noise allows at most 7.5 steps, one is taken: more would go in
nearly the same direction, with what the first has already learnt taken off and its noise kept. That is of classes,
whose scores' signs one step tells; a number wants all the way that there is. Clipping below the loss's largest slope
trades bias for noise: at 1/2 the logistic loss stays convex, and an example on the wrong side counts as much as an
undecided one. A number's clip norm is .8 of its deviation, or .25.

*Lambda*, where nobody gives it, only keeps the weights within P's ball. One that is given has the model settle: all but
exp(-lambda S) of the way to the minimiser is behind it then, so S is at most 3 / lambda. More would add noise alone.

*What was chosen by looking at data*: the drifts, the 7.5, the quarter and the clip norms, by test accuracy and R^2 on
public sets: on those that ``scripts/benchmarks/utility.py`` reports on, where drifts of classes from .8 to 2.4 are
within .01 of each other, and on seven sets of R's packages with bounds as a stranger would type them, often far too
wide, where 1.8 is better than 1.2 by .006 in the mean, and by up to .04; and the 3, of 2 to 10, by the fitness on four
sets of scikit-learn. No epsilon counts that.

*Stability.* w <- w + b (w - last) - a h w shrinks where 0 < a h < 2 (1 + b) (Polyak 1964), h any curvature of the
fitness: from lambda to c + lambda.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from parley.common.algorithms._parameters import LEAST_STEP, rounded
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Loss, Softmax, Squared, curvature_of
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.protocol.algorithm import Choice
from parley.common.protocol.facts import FederationFacts

_DRIFT, _DRIFT_OF_NUMBERS = 1.8, 0.2
SETTLED = 3.0
"""How many times 1 / lambda a model travels at most, for a lambda that is given."""
_FEW_STEPS = 7.5
_CLIPPED_DEVIATIONS = 0.8
_DAMPING = 10.0
_REGULARIZATION = 1e-6
_ROOM, _MOST_MOMENTUM = 1.05, 0.95  # for steps that were given: 1 / c is far from diverging
_CLIP_NORMS: Mapping[type, float] = {Logistic: 0.5, Softmax: 0.7, Squared: 0.25}


def choose_descent(facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:
    """What was not ``given`` of rounds, step, momentum, averaging, regularisation and clip norm, by the rule.

    Raises InvalidInputError for budgets that no Gaussian noise keeps.
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
    """By how much noise may move the score of a row of norm 1."""
    if not isinstance(facts.loss, Squared):
        return _DRIFT
    usual = facts.study and facts.study.usual_label
    return usual.deviation if usual else _DRIFT_OF_NUMBERS


def _clip_norm(facts: FederationFacts) -> float:
    """How long a gradient may be where nobody says."""
    if isinstance(facts.loss, Squared) and (usual := facts.study and facts.study.usual_label):
        return rounded(_CLIPPED_DEVIATIONS * usual.deviation)
    return _CLIP_NORMS.get(type(facts.loss), min(facts.loss.lipschitz, 1.0))


def check_stable(loss: Loss, step: float, momentum: float, regularization: float) -> None:
    """Raise InvalidInputError for a step by which descent with momentum may diverge."""
    steepest = regularization + (loss.smoothness if math.isfinite(loss.smoothness) else 0.0)
    if step * steepest >= 2 * (1 + momentum):
        raise InvalidInputError(
            f"step must be below {2 * (1 + momentum) / steepest:.4g} for this loss, momentum and regularization, not "
            f"{step:g}: descent may diverge"
        )


def noise_of_one_round(facts: FederationFacts, clip_norm: float) -> float:
    """The deviation of the noise on a coordinate of the mean gradient, where one round is all that is released."""
    everyone = facts.everyone
    sigmas = gaussian_sigmas(everyone.own_epsilon, everyone.own_delta, 2 * clip_norm)
    return facts.deviation_of_sum(sigmas) / facts.n_total


def _momentum(rounds: int, most_steps: float) -> float:
    """1 - 10 / rounds; less where a given step would take the model beyond its way."""
    return max(0.0, min(1 - _DAMPING / rounds, 1 - rounds / most_steps))
