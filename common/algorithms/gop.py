"""GOP: Rajkumar & Agarwal 2012's baseline, global objective perturbation by a trusted curator who holds all shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from parley.common.algorithms._parameters import Regularization, SlackChoice, algorithm
from parley.common.algorithms._regularization import BETTER_BRANCH, Curated, ask_minimiser, choose_regularization
from parley.common.algorithms.release import solvable_choice, too_little
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import bounded_slope, check_single_score
from parley.common.privacy.calibration import Calibration, check_epsilon_delta
from parley.common.privacy.events import ApproximateEvent, Event
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.mechanisms.objective import ASSUMED, ObjectivePerturbation, branch_cautions, objective
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after
from parley.common.protocol.algorithm import Choice
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_DRIFT = 2.4
_ASSUMPTIONS = ("all owners trust the curator with their raw data", *ASSUMED)


@algorithm
class Gop(Curated):
    """The minimiser of the pooled risk, tilted by Gaussian noise (Section 4.1)."""

    regularization: Regularization = 0.01
    calibration: SlackChoice = "paper"
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, float], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose lambda by the rule of `_regularization`, or the least with which a solver surely succeeds.

        Of the paper's two branches it chooses the one with less noise.
        """
        check_single_score(facts.loss)
        chosen = {} if "calibration" in given else {"calibration": BETTER_BRANCH}
        terms: dict[str, Any] = dict(given) | {name: choice.value for name, choice in chosen.items()}
        tilt = cls(**terms | {"regularization": 1.0}).mechanism(facts.of(0)).tilt
        if not (lambdas := choose_regularization(given, tilt / facts.n_total, _DRIFT)):
            return chosen
        site = cls(**terms | {"regularization": lambdas["regularization"].value}).terms(facts.of(0))
        return chosen | {"regularization": solvable_choice(lambdas["regularization"], [("objective", site)])}

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn if lambda is far less than would be chosen (`too_little`), or near a cliff."""
        fixed: dict[str, Any] = {"calibration": self.calibration}
        warnings = too_little(
            self.regularization,
            lambda: self.choose(facts, fixed, 1)["regularization"],
            lambda: self.mechanism(facts.of(0)).deviation / _DRIFT,
        )
        return (*warnings, *branch_cautions(self.terms(facts.of(0)), "better_branch"))

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question. Raises InvalidInputError for a loss of more than one score, as the proof is for one."""
        check_single_score(facts.loss)
        bounded_slope(facts.loss)
        return (ask_minimiser(facts)[0],)

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the private minimiser on all data. Raises InvalidInputError if the shards are not one curator's."""
        stack = prepared.y.shape[:-1]
        if stack not in ((), (1,)):
            raise InvalidInputError("gop needs one trusted curator who holds all shards")
        return ObjectivePerturbation.answer([self.mechanism(facts)], prepared.pooled(), noise).reshape(*stack, -1)

    def mechanism(self, facts: OwnFacts) -> ObjectivePerturbation:
        """Return the mechanism for the strictest budget. Raises InvalidInputError if there is none."""
        return objective(self.terms(facts))

    def terms(self, facts: OwnFacts) -> SiteTerms:
        """Return the curator's terms: those of a site that holds all data."""
        budget, size = facts.strictest, (facts.n_total, facts.n_features)
        check_epsilon_delta(*budget)
        return SiteTerms(
            facts.loss, *size, self.regularization, *budget, "gaussian", self.calibration, facts.row_entries,
            facts.most_rows,
        )  # fmt: skip

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if the tilt's or the answer's noise does not fit on the wire."""
        self.mechanism(facts).check_noise()

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return infinity: the noise is inside the minimisation, not added to an answer."""
        return float("inf")

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the mechanism's proof, on the pooled data."""
        return applied_after(lambda prepared: prepared.pooled(), ObjectivePerturbation.proof([self.mechanism(facts)]))

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the mechanism's event, of a curator: the model is all that is seen, so it is the transcript's.

        If no solver surely finds the minimiser, nothing can be asked, and forecasts say what would be claimed.
        """
        try:
            return replace(self.mechanism(facts).event, assumptions=_ASSUMPTIONS)
        except InvalidInputError:
            return ApproximateEvent(*facts.strictest, _ASSUMPTIONS)

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """Return the guarantee of objective perturbation on the pooled data."""
        by: Calibration = "tight" if self.calibration == "tight" else "paper"
        return (Guarantee(*facts.strictest, "model", by, assumptions=_ASSUMPTIONS),)
