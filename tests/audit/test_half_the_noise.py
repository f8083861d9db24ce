"""Half of the noise is caught, for every private algorithm, on answers of the real party from data files.

*What is played.* Two owners hold the worst neighbouring files: one record, and its opposite. The learner asks where
both slopes are as steep as can be: at w = 0, where Huber's slope is 1, or for softmax where all other classes are ruled
out. What the two answer without noise lies Delta apart. Answers with noise come through `Party`: approved, prepared,
charged, written down, put on the wire. Under a secure sum those of m_min - t parties are added up, which is all that
has noise when t collude; of noise that each adds whole, one party's.

*The statistic.* An event that says mu (or epsilon) is honest if the noise is at least Delta / mu (Delta / epsilon)
wide, no matter what the code says of its own sensitivity. Noise divided by that width is summed up over all draws:

- Gaussian, n numbers: their squares, chi-squared with n degrees of freedom.
- Laplace, n numbers: their absolute values; density exp(-beta |b|), n numbers in all: the lengths. Both are Gamma of
  shape n.
- Objective perturbation: the tilt is read off the model that it led to, -(Lambda w + gradients at w), and is Gaussian.
  Of one against the rest with several classes, `tests.contracts.test_proofs` reads the tilts of classes so too.

Among scales this is the most powerful test: the likelihood ratio rises with the statistic. A run is suspect where it is
below the ALARM quantile of its law, so honest noise, which is no narrower, is suspect at most once in 10^6 audits. Half
the noise is 1 / (2 r) as wide, r = Delta / sensitivity, and is caught with a probability that the same law gives, which
each audit computes and wants to be at least POWER.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms import REGISTRY, parameter_schema
from parley.common.algorithms.gop import Gop
from parley.common.algorithms.release import Releases
from parley.common.arrays import FloatArray
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.study import HuberLoss, Person, Study
from parley.common.encoding.fixed_point import UNIT, to_reals
from parley.common.encoding.npy import pack_array, unpack_array
from parley.common.learning.erm import gradient_left
from parley.common.privacy.calibration import gaussian_sigma, sigma_star, slack
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NonPrivateEvent,
)
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.noise import SeededNoise
from parley.common.privacy.proofs import Additive
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import OwnFacts
from parley.common.protocol.messages import Query
from parley.common.runs.pricing import events
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party
from parley.party.ledger.ledger import Ask
from tests.contracts.algorithms import variants
from tests.contracts.test_federations import sums
from tests.support.noises import ScaledNoise
from tests.support.rounds import completed, run_spec
from tests.support.secure_cluster import SecureCluster

ALARM, POWER = 1e-6, 0.99
D = 16
"""Features of 1 each make a row of norm 1, and the grid holds all of its numbers."""
DRAWS = 10
PARTIES, COLLUDERS = 3, 1
SHORT: Mapping[str, Any] = {"n_rounds": DRAWS, "l1_clip": 4.0, "regularization": 10.0, "step": 0.1}
"""Ten rounds; a 1-norm that a row of D equal numbers just has; minimisers where the slope is steepest; steps for it."""


_OF_PERSONS: Mapping[str, dict[str, Any]] = {
    "dp_gd": {"n_rounds": DRAWS},
    "psgd": {"n_rounds": DRAWS},
    "wu_subgradient": {"n_rounds": DRAWS, "l1_clip": 4.0, "step": 0.1},
    "release": {"mechanism": "objective", "regularization": 10.0},
    "average": {"mechanism": "output", "regularization": 10.0},
    "describe": {},
    "evaluate": {},
}
"""What is audited for a person of many rows."""


@dataclass(frozen=True)
class Audit:
    """An algorithm with parameters, for two classes or three, plain or summed.

    ``least`` is how much of the sensitivity its worst neighbours use, at least; the less, the more draws it takes.
    """

    name: str
    parameters: dict[str, Any]
    summed: bool = False
    classes: int = 2
    draws: int = DRAWS
    least: float = 0.9
    real: bool = False
    rows: int = 1
    """How many rows the record is, all of one person if they are several."""

    def __str__(self) -> str:
        chosen = [str(value) for key, value in self.parameters.items() if key not in SHORT]
        label = "real label" if self.real else f"{self.classes} classes"
        label += f"-person of {self.rows} rows" * (self.rows > 1)
        return "-".join([self.name, *chosen, "sum" if self.summed else "each", label])

    @property
    def held_out(self) -> bool:
        """Whether it is about rows held out."""
        return REGISTRY[self.name].rows == "held_out"


def audits() -> Iterator[Audit]:
    """Every algorithm of the registry, by its variants; those of whose noise nothing is known fail in their audit.

    Those that hide all that a party holds have another worst pair: `tests.audit.test_whole_party` is about them. Those
    of several levels take several parties, and each of their steps is one that is audited here, as
    `tests.unit.test_feature` holds bit for bit. Draws of an index have no scale to halve: `tests.unit.test_simplex` and
    `tests.unit.test_online` hold their chances to what they say, exactly.
    """
    for name, kind in REGISTRY.items():
        if not kind.__module__.startswith("parley.") or kind.adjacency == "whole_party" or name in {"simplex", "ftrl"}:
            continue
        taken = parameter_schema(name)["properties"]
        short = {key: value for key, value in SHORT.items() if key in taken}
        for chosen in variants(name):
            if name == "multilevel_feature" or chosen.get("second", "public") != "public":
                continue
            for summed in (False, True) if sums(name) else (False,):
                draws = 2 * DRAWS if name == "evaluate" else DRAWS  # its numbers are few
                yield Audit(name, chosen | short, summed, draws=draws)
    for summed in (False, True):
        yield Audit("dp_gd", {"n_rounds": DRAWS, "clip_norm": 2**0.5}, summed, classes=3)
        yield Audit("evaluate", {}, summed, classes=3)
        yield Audit("evaluate", {}, summed, real=True, draws=50, least=0.8)
    yield Audit("local_average", {"regularization": 1000.0}, classes=3, draws=60, least=0.57)
    for name, parameters in _OF_PERSONS.items():
        for summed in (False, True) if sums(name) else (False,):
            yield Audit(name, parameters, summed, draws=2 * DRAWS if name == "evaluate" else DRAWS, rows=40)


class Heard(ScaledNoise):
    """Seeded noise ``factor`` as wide as it should be; none that is drawn once a run, on which no event leans.

    Nor any of the laws that are ``silent``.
    """

    def __init__(self, seed: list[int], factor: float, silent: str = "") -> None:
        super().__init__(SeededNoise(seed), factor)
        self.silent = silent
        self.one_time: dict[str, Any] = {}

    def draw(self, law: str, scale: Any, shape: Any, *parts: float) -> Any:  # noqa: ANN401 -- as `Noise` has them
        drawn = super().draw(law, scale, shape, *parts) if self.factor and law != self.silent else np.zeros(shape)
        return drawn if law in {"l2_laplace", "gaussian"} else np.asarray(drawn, dtype=np.int64)

    def once(self, name: str, draw: Any) -> Any:  # noqa: ANN401 -- any draw
        return np.zeros_like(draw())


@dataclass
class Owners:
    """Parties of one record each: ``sign`` says which of the two neighbouring files they hold.

    Where a run is about rows held out, another comes before it that is not, the same in both files.
    """

    audit: Audit
    root: Path
    sign: int
    factor: float
    silent: str = ""

    def __post_init__(self) -> None:
        features = tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(D))
        values = ("no", "yes", "maybe")[: self.audit.classes]
        label: Label | RealLabel = Label(name="y", values=values)
        terms: dict[str, Any] = {"intercept": False, "row_norm": "largest"}
        if self.audit.real:
            label = RealLabel(name="y", lower=-1, upper=1)
        elif self.audit.classes == 2:
            terms["loss"] = HuberLoss(h=0.5)
        self.n_rows, rows = 1, self.audit.rows
        if self.audit.held_out:
            self.n_rows, terms = 2, terms | {"hold_out": 0.5}
        if rows > 1:
            terms["person"] = Person(column="patient", most_rows=rows)
        study = Study(name="audit", features=features, label=label, **terms)
        k = PARTIES if self.audit.summed else 1
        columns = {f"x{i}": np.array([1.0] * (self.n_rows - 1) + [self._feature(i)]) for i in range(D)}
        columns |= {"y": np.array([self._label()] * self.n_rows), "patient": np.arange(self.n_rows)}
        tables = [{name: np.repeat(values, rows) for name, values in columns.items()}] * k
        self.cluster = SecureCluster(
            self.root, epsilon=1000.0, algorithms=tuple(REGISTRY), given=(study, tables), n_examples=self.n_rows
        )

    def _label(self) -> str | float:
        """A real label is as far off as can be in one file, and right in the other."""
        if self.audit.real:
            return float(self.sign)
        return "yes" if self.audit.classes > 2 or self.sign > 0 else "no"

    def _feature(self, index: int) -> float:
        """Of three classes the first number tells the classes apart, where weights are asked, and stays.

        Where numbers are described, or scores of rows held out, all of them change, and the label too.
        """
        if self.audit.held_out and not self.audit.real:
            return float(self.sign)
        if self.audit.classes == 2 and self.audit.name != "describe":
            return 1.0
        return 1 / 64 if index == 0 and self.audit.name == "dp_gd" else float(self.sign)

    def spec(self) -> RunSpec:
        """The run."""
        terms: dict[str, Any] = {"minimum_contributors": PARTIES, "colluders": COLLUDERS, "secure_sum": "paillier"}
        spec = run_spec(
            self.cluster, algorithm=self.audit.name, parameters=self.audit.parameters,
            **(terms if self.audit.summed else {}),
        )  # fmt: skip
        members = tuple(member.model_copy(update={"n_examples": self.n_rows}) for member in spec.parties)
        spec = spec.model_copy(update={"parties": members})
        return completed(spec, self.model()) if REGISTRY[self.audit.name].rows == "held_out" else completed(spec)

    def model(self) -> FloatArray:
        """The weights that are evaluated: they tell the two files' records apart."""
        if self.audit.classes > 2:
            return np.outer([1.0, -1.0, 0.0], np.ones(D))
        return np.ones((1, D))

    def heard(self, parts: int, asked: Sequence[int] = ()) -> FloatArray:
        """What so many parties answer together in the rounds ``asked``, or all, (draws, m), in enough runs."""
        spec = self.spec()
        rounds = range(1, len(spec.questions()) + 1)
        asked = asked or rounds
        with ExitStack() as stack:
            parties = [
                stack.enter_context(
                    Party(self.cluster.party_settings(name), _factory(Heard([7, index], self.factor, self.silent)))
                )
                for index, name in enumerate(self.cluster.names[:parts])
            ]
            answers = [
                (round, sum(self._answer(party, f"run-{run}", spec, round) for party in parties))
                for run in range(-(-self.audit.draws // len(asked)))
                for round in rounds
            ]
            return np.array([answer for round, answer in answers if round in asked])

    def _answer(self, party: Party, run: str, spec: RunSpec, round: int) -> FloatArray:
        """One party's answer as it leaves, in reals."""
        party.approve("learner", RunProposal(run=run, spec=spec))
        query = self.query(spec, round)
        agreed = party.agreed("learner", run)
        released = party.release(agreed, Ask("learner", run, round, query.digest), query, pack_array)
        return to_reals(unpack_array(released.body, "<i8"))

    def query(self, spec: RunSpec, round: int) -> Query:
        """A round's question, at weights where the slope is steepest."""
        question = spec.questions()[round - 1]
        message = np.zeros(question.message)
        if question.public:
            message[: len(self.model())] = self.model()  # and edges of 0, which tell the two scores apart
        if not question.public and self.audit.classes > 2 and message.size:
            message[:, 0] = [40_000.0, 0.0, -40_000.0]
        return Query(round, question.step, message, question.reveal)


def _factory(noise: Heard) -> Any:  # noqa: ANN401 -- a party's factory of noise
    return lambda _kept: noise


def statistic(event: Event, noise: FloatArray, apart: FloatArray) -> float:
    """The statistic of noise (draws, m), for exact answers that lie so far apart, (m,)."""
    match event:
        case GaussianEvent(mu=mu):
            return float(((noise * mu / np.linalg.norm(apart)) ** 2).sum())
        case LaplaceEvent(epsilon=epsilon):
            return float(np.abs(noise * epsilon / np.abs(apart).sum()).sum())
        case L2LaplaceEvent(epsilon=epsilon):
            return float(np.linalg.norm(noise * epsilon / np.linalg.norm(apart), axis=-1).sum())
    raise AssertionError(f"no audit of the noise of {event}: add one")


def law(event: Event, n: int) -> Any:  # noqa: ANN401 -- a distribution of SciPy's
    """The statistic's, for n numbers of honest noise."""
    return stats.chi2(n) if isinstance(event, GaussianEvent) else stats.gamma(n)


def judge(audit: Audit, event: Event, noises: Sequence[FloatArray], apart: FloatArray, used: float) -> None:
    """Clear the noise as declared, the first, and convict half of it, the second; ``used`` is r."""
    own, half = (statistic(event, noise, apart) for noise in noises)
    honest = law(event, noises[0].size)
    suspect = float(honest.ppf(ALARM))
    wider = 2 * used
    power = float(honest.cdf(suspect * (wider**2 if isinstance(event, GaussianEvent) else wider)))
    print(
        f"{audit}: {noises[0].size} numbers, {used:.3f} of the sensitivity; suspect below {suspect:.0f}: {own:.0f} as "
        f"declared, {half:.0f} halved; power {power:.6f} at a false alarm of {ALARM:g}"
    )
    assert power >= POWER
    assert own >= suspect, "less noise than the event says"
    assert half < suspect


def tilted(algorithm: Algorithm, facts: OwnFacts) -> tuple[ObjectivePerturbation, Event]:
    """A party's objective perturbation, and what its tilt is due to be for gradients that lie 2 L apart.

    Of gop that is a deviation by Procedure 3, or 2 L / mu; of others what `tests.unit.test_mechanisms` holds to tables.
    """
    if isinstance(algorithm, Gop):
        _, epsilon = slack(1.0, algorithm.regularization, 1, facts.loss.smoothness, algorithm.calibration)
        paper = algorithm.calibration != "tight"
        sigma = sigma_star(D, epsilon, 1e-5) if paper else gaussian_sigma(epsilon, 1e-5, 2.0)
        return algorithm.mechanism(facts), GaussianEvent(2 / sigma)
    assert isinstance(algorithm, Releases)
    (site,) = algorithm.own_sites(facts)
    assert isinstance(site, ObjectivePerturbation)
    return site, GaussianEvent(2 / site.tilt) if site.terms.law == "gaussian" else L2LaplaceEvent(2 * site.tilt, D)


def judge_tilts(audit: Audit, owners: Sequence[Owners]) -> None:
    """Judge the tilts of objective perturbation, read off its models; the noise on the answers is far below them."""
    spec = owners[0].spec()
    facts = spec.facts().of(0)
    mechanism, event = tilted(spec.build(), facts)
    x, y = np.full(D, 0.25), np.ones(audit.draws)
    found = []
    for owner in owners:
        models = owner.heard(1)
        gradients = facts.loss.slope(models @ x, y)[:, None] * x
        found.append(-(mechanism.strength * models + gradients))
    judge(audit, event, found, np.array([2.0]), 1.0)


@pytest.mark.parametrize("audit", list(audits()), ids=str)
def test_half_of_the_noise_is_caught_in_answers_of_the_real_party(audit: Audit, tmp_path: Path) -> None:
    def files(sign: int, factor: float) -> Owners:
        return Owners(audit, tmp_path / f"{sign} {factor}", sign, factor)

    neighbours, owners = (files(1, 0.0), files(-1, 0.0)), (files(1, 1.0), files(1, 0.5))
    spec = neighbours[0].spec()
    algorithm, facts = spec.build(), spec.facts().of(0)
    kinds: dict[Event, list[int]] = {}
    for round, event in enumerate(events(algorithm, facts), start=1):
        kinds.setdefault(event, []).append(round)
    for event, rounds in kinds.items():
        if isinstance(event, NonPrivateEvent):
            pytest.skip("declares that it is not private, and no ledger allows it")
        query = neighbours[0].query(spec, rounds[0])
        proof = algorithm.proof(query, facts)
        drawn = proof.law or event if isinstance(proof, Additive) else event
        if isinstance(drawn, ApproximateEvent):
            judge_tilts(audit, owners)
            continue
        whole = algorithm.whole_noise(rounds[0]) or not audit.summed
        parts = 1 if whole else PARTIES - COLLUDERS
        one, other = (each.heard(parts, rounds) for each in neighbours)
        apart = (one - other)[0] / parts  # one party's record is another, and the rest hold what they held
        norm = np.abs(apart).sum() if isinstance(drawn, LaplaceEvent) else np.linalg.norm(apart)
        used = float(norm / np.max(algorithm.sensitivity(query, facts)))
        assert audit.least <= used <= 1 + 1e-9
        judge(audit, drawn, [each.heard(parts, rounds) - one for each in owners], apart, used)


@pytest.mark.parametrize("calibration", ["paper", "tight"])
def test_half_of_the_noise_that_hides_the_solver_is_caught_too(calibration: str, tmp_path: Path) -> None:
    """Objective perturbation without its tilt answers the minimiser and the noise of a hundredth of the budget."""
    audit = Audit("gop", {"calibration": calibration, "regularization": 10.0})
    exact, *owners = (Owners(audit, tmp_path / str(factor), 1, factor, "gaussian") for factor in (0.0, 1.0, 0.5))
    spec = exact.spec()
    facts, gop = spec.facts().of(0), spec.build()
    assert isinstance(gop, Gop)
    mechanism = gop.mechanism(facts)
    longest = mechanism.tilt * (D**0.5 + 9)
    left = float(gradient_left(facts.loss, np.array(1), D, np.array(mechanism.strength), longest))
    apart = 2 * left / mechanism.strength + D**0.5 / UNIT  # and the rounding of both answers
    event = GaussianEvent(1 / gaussian_sigma(0.01, 1e-7, 1.0))
    found = [owner.heard(1) - exact.heard(1) for owner in owners]
    judge(audit, event, found, np.array([apart]), 1.0)
