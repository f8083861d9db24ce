"""Each site's own private model: the *local model* of the three that Xie's thesis compares.

Chaudhuri, Monteleoni & Sarwate, JMLR 2011 (output and objective perturbation); Kifer, Smith & Thakurta, COLT 2012
(generalized objective perturbation); Jain & Thakurta, ICML 2014, eqs. 3 and 4. One round, in which each site releases a
model that is private whoever sees it; nothing is averaged, and each site's budget, size and mechanism are its own.

What the algorithms share in which each site releases a private model of its own.

A site is a party. Which mechanism makes its release, with which lambda and whose noise, is said for all sites, and by
``sites`` otherwise for some; its epsilon, delta and size are its own. A site may leave its model without any noise
(``mechanism="none"``), which no ledger bears: for simulations, and for an owner who keeps the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, ValidationError

from parley.common.algorithms._parameters import Regularization, algorithm, check_take_part
from parley.common.algorithms._regularization import choose_regularization
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import bounded_slope
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, L2LaplaceEvent
from parley.common.privacy.mechanisms.class_means import centroids
from parley.common.privacy.mechanisms.objective import branch_cautions, objective
from parley.common.privacy.mechanisms.one_against_rest import one_against_rest
from parley.common.privacy.mechanisms.output import exact, generalized, output
from parley.common.privacy.mechanisms.site import FLOATS, Law, SiteCalibration, SiteRelease, SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after
from parley.common.protocol.algorithm import Algorithm, Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question
from parley.common.strict import Identifier, Strict

Mechanism = Literal["output", "objective", "generalized", "one_against_rest", "centroids", "none"]
MECHANISMS: Mapping[Mechanism, Callable[[SiteTerms], SiteRelease]] = {
    "output": output,
    "objective": objective,
    "generalized": generalized,
    "one_against_rest": one_against_rest,
    "centroids": centroids,
    "none": exact,
}
DRIFTS: Mapping[Mechanism, float] = {
    "output": 0.7,
    "objective": 2.4,
    "generalized": 2.4,
    "one_against_rest": 2.4,
    "centroids": 1.8,
    "none": 2.4,
}
_MOST_AGAINST_REST = 5
"""Up to so many classes pure noise inside K minimisations, a K-th of epsilon each, is better than on a softmax's.

Noise on it needs 2.4 / .7 sqrt(2 / K) times the lambda, by the drifts. At how many classes one gives way to the other,
and that Gaussian noise does not, was chosen by held-out accuracy on iris, wine, digits and synthetic examples. No
epsilon counts that.
"""
_CENTROIDS_FROM: Mapping[str, float] = {"output": 0.002, "one_against_rest": 0.004}
"""The lambda that noise on a softmax's minimiser asks for, from which on sums of classes tell more than minimisers.

Chosen by held-out accuracy, with 300 to 10,000 rows: of `output` on digits, KDD99, adults' occupation, education,
marital status and relationship, loans' purpose, grade, home and employment, and three made-up sets with Gaussian noise;
of `one_against_rest`, where noise is pure, on iris, wine, loans' home and five made-up sets. HAR, MNIST and six others
made up had been looked at by then. No epsilon counts that.
"""
_MOST_DOUBLINGS = 60
_MOST_BLUR = 0.1
"""How far noise that hides how well a solver did may move scores, where lambda is chosen.

It falls with about the 2.5th power of lambda. Chosen by looking at synthetic examples, 200,000 and more: half of it and
twice as much are within .006 of it in accuracy, and without a bound .2 is lost. No epsilon counts that.
"""
_FAR_LESS = 4.0
"""A lambda that is given is cautioned against if it is less by this. On synthetic examples, 50,000, by which this was
chosen, objective perturbation, which spared half of epsilon for its noise then, lost nothing by lambda = 1e-4, and with
a tenth of it .43 of an accuracy of .996."""
_LEAST_SOLVABLE = "the least with which a solver surely finds the minimiser, near enough; the noise needs no more"

MechanismChoice = Annotated[Mechanism, Field(description="how a site's model becomes private")]
LawChoice = Annotated[
    Law, Field(description="Gaussian noise, for a delta above 0, or noise of density exp(-beta |b|), which needs none")
]
SiteCalibrationChoice = Annotated[
    SiteCalibration,
    Field(
        description="whose noise: the least that a proof supports (tight), the mechanism's own paper's, Jain & "
        "Thakurta's Gaussian scales, or (generalized) that of the Hessian bound of Xie's thesis"
    ),
]


class Site(Strict):
    """What one site does otherwise: all that is None is as for all."""

    party: Identifier
    mechanism: Mechanism | None = None
    regularization: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)] | None = None
    law: Law | None = None
    calibration: SiteCalibration | None = None


Sites = Annotated[tuple[Site, ...], Field(description="what single sites do otherwise, by the party's name")]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What sites release from: together where all do the same, each by itself (``parts``) where they do not."""

    sites: tuple[SiteRelease, ...]
    parts: tuple[Any, ...]

    def answer(self, noise: Noise) -> IntArray:
        """The releases, (m,) or (K, m)."""
        if len(self.parts) == 1:
            return self.sites[0].answer(self.sites, self.parts[0], noise)
        alone = enumerate(zip(self.sites, self.parts, strict=True))
        return np.stack([site.answer([site], part, noise.member(index)) for index, (site, part) in alone])


@algorithm
class Releases(Algorithm):
    """Sites' parameters, and what each of them releases."""

    mechanism: MechanismChoice = "objective"
    law: LawChoice = "gaussian"
    calibration: SiteCalibrationChoice = "tight"
    regularization: Regularization = 0.01
    sites: Sites = ()
    left_open: ClassVar[frozenset[str]] = frozenset({"mechanism", "law"})

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """As `choose_release`."""
        return cls.choose_release(facts, given)

    @classmethod
    def choose_release(cls, facts: FederationFacts, given: Mapping[str, Any]) -> dict[str, Choice]:
        """The mechanism that the loss allows, the law that moves weights less, and lambda for the noise of both."""
        bounded_slope(facts.loss)
        chosen: dict[str, Choice] = {}
        if "mechanism" in cls.left_open - given.keys():
            chosen["mechanism"] = cls.mechanism_for(facts, given)
        one = cls(**dict(given) | {name: choice.value for name, choice in chosen.items()} | {"regularization": 1.0})
        if "law" in cls.left_open - given.keys():
            chosen["law"] = one.law_for(facts)
            one = replace(one, law=cast("Law", chosen["law"].value))
        if "regularization" not in given:
            chosen["regularization"] = one.strength_for(facts)
        return chosen

    @classmethod
    def mechanism_for(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Choice:
        """`suited_mechanism`."""
        return suited_mechanism(cls, facts, given)

    def law_for(self, facts: FederationFacts) -> Choice:
        """The law of the noise that moves weights less, of those that delta allows."""
        if not facts.delta.all():
            return Choice("l2_laplace", "no delta is spent")
        one = self.at(1.0)
        gaussian, pure = (replace(one, law=law).noise_of_model(facts) for law in ("gaussian", "l2_laplace"))
        words = f"moves weights by {{:.2g}} where {{}} does by {{:.2g}}, in {facts.n_weights} dimensions"
        if gaussian <= pure:
            return Choice("gaussian", words.format(gaussian, "l2_laplace", pure))
        return Choice("l2_laplace", words.format(pure, "gaussian", gaussian))

    def at(self, regularization: float) -> Self:
        """The same with this lambda at every site, where noise is compared: what one says chooses for no other."""
        sites = tuple(site.model_copy(update={"regularization": None}) for site in self.sites)
        return replace(self, regularization=regularization, sites=sites)

    def strength_for(self, facts: FederationFacts) -> Choice:
        """Lambda as the noise needs it; the least with which all sites' mechanisms can be set, where that is more."""
        noise, drift = self.at(1.0).noise_of_model(facts), DRIFTS[self.mechanism]
        choice = choose_regularization({}, noise, drift)["regularization"]
        one = replace(self, regularization=cast("float", choice.value))
        own = {site.party for site in self.sites if site.regularization is not None}
        others = (index for index, party in enumerate(facts.parties) if party not in own)
        return solvable_choice(choice, (one.terms(facts, index) for index in others))

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Of a lambda far less than would be chosen, of all sites or of one, as `too_little`; and near a cliff."""
        told = too_little(
            self.regularization,
            partial(self.strength_for, facts),
            lambda: self.at(self.regularization).noise_of_model(facts) / DRIFTS[self.mechanism],
        )
        owns = (site for site in self.sites if site.regularization is not None)
        own = (f"{site.party}'s {words}" for site in owns for words in self._cautions_of(site, facts))
        return (*told, *own, *self._cliffs(facts))

    def _cliffs(self, facts: FederationFacts) -> tuple[str, ...]:
        """Of sites whose objective perturbation is as published, near its cliff; but for those of an own lambda."""
        if "paper" not in {self.calibration, *(site.calibration for site in self.sites)}:
            return ()
        own = {site.party for site in self.sites if site.regularization is not None}
        others = (index for index, party in enumerate(facts.parties) if party not in own)
        each = dict.fromkeys(self.terms(facts, index) for index in others)
        inside = (terms for mechanism, terms in each if mechanism == "objective")
        return tuple(dict.fromkeys(words for terms in inside for words in branch_cautions(terms, "tight")))

    def _cautions_of(self, site: Site, facts: FederationFacts) -> tuple[str, ...]:
        """Of a site's own lambda: what is said of a run in which all are of its size and budget, and do as it does."""
        index = facts.parties.index(site.party)
        each = {name: getattr(facts, name) for name in ("n_examples", "epsilon", "delta")}
        alike = {name: np.full_like(values, values[index]) for name, values in each.items()}
        own = site.model_dump(exclude_none=True, exclude={"party"})
        return replace(self, sites=(), **own).cautions(replace(facts, **alike))

    def noise_of_model(self, facts: FederationFacts) -> float:
        """About how far noise moves each weight of a model that somebody gets: of the site in the middle."""
        return float(np.median([site.deviation for site in self.own_sites(facts.everyone)]))

    def check_sites(self, facts: FederationFacts) -> None:
        """Raise InvalidInputError for the name of a site that takes no part or is told twice, or unfit parameters."""
        names = [site.party for site in self.sites]
        check_take_part("sites", names, facts.parties)
        if len(set(names)) < len(names):
            raise InvalidInputError("sites names a party twice")
        for index, name in enumerate(facts.parties):
            mechanism, terms = self.terms(facts, index)
            if mechanism == "output":  # of the others, whether they can be set hangs on the noise
                set_site(mechanism, terms, name)

    def terms(self, facts: FederationFacts, index: int) -> tuple[Mechanism, SiteTerms]:
        """A site's mechanism, and its terms."""
        own = next((site for site in self.sites if site.party == facts.parties[index]), None)
        said = own.model_dump(exclude_none=True, exclude={"party"}) if own else {}
        terms = SiteTerms(
            facts.loss,
            int(facts.n_examples[index]),
            facts.n_features,
            said.get("regularization", self.regularization),
            *facts.of(index).strictest,
            said.get("law", self.law),
            said.get("calibration", self.calibration),
            facts.row_entries,
        )
        return said.get("mechanism", self.mechanism), terms

    def own_sites(self, facts: OwnFacts) -> tuple[SiteRelease, ...]:
        """The mechanisms of those whose view the facts are; raises InvalidInputError as `set_site` does."""
        return tuple(set_site(*self.terms(facts, index), facts.parties[index]) for index in own_indices(facts))

    def whole_noise(self, round: int) -> bool:
        """A release is private whoever sees it."""
        return True

    @property
    def roles(self) -> bool:
        """Where some do otherwise."""
        return bool(self.sites)

    def prepare(self, shard: Shard, facts: OwnFacts) -> Any:  # noqa: ANN401 -- as `Algorithm.prepare`
        """`Prepared`, for what comes before the noise: a minimiser, or the shard."""
        sites = self.own_sites(facts)
        if len({site.kind for site in sites}) == 1:
            return Prepared(sites, (sites[0].prepare(sites, shard),))
        return Prepared(sites, tuple(site.prepare([site], shard.party(i)) for i, site in enumerate(sites)))

    def release(self, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """The private models."""
        return prepared.answer(noise)

    def moved(self, facts: OwnFacts) -> FloatArray:
        """How far a neighbour's release differs before its noise, (...); infinite where the noise is inside."""
        return np.array([site.moved for site in self.own_sites(facts)]).reshape(facts.own_epsilon.shape)

    def proof_of_release(self, facts: OwnFacts) -> Proof | None:
        """That of the mechanism of those whose view the facts are, and who do the same."""
        sites = self.own_sites(facts)
        return applied_after(lambda prepared: prepared.parts[0], type(sites[0]).proof(sites))

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """The mechanism's."""
        return self.proof_of_release(facts)

    def cost(self, facts: OwnFacts) -> Event:
        """What a site's release costs it."""
        return self.own_sites(facts)[0].event

    def check_noise(self, facts: OwnFacts) -> None:
        """Of each site."""
        for site in self.own_sites(facts):
            site.check_noise()

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """What is drawn in floating point."""
        return (FLOATS,) if any(isinstance(site.event, L2LaplaceEvent) for site in self.own_sites(facts)) else ()


def suited_mechanism(kind: type[Releases], facts: FederationFacts, given: Mapping[str, Any]) -> Choice:
    """The mechanism that suits the loss, and of several classes the noise."""
    if facts.loss.outputs == 1:
        if np.isfinite(facts.loss.smoothness):
            return Choice("objective", "noise inside the minimisation moves the model less than noise on it")
        return Choice("output", "noise on the minimiser: of such a loss, no proof covers noise inside it")
    few = facts.loss.outputs <= _MOST_AGAINST_REST and not facts.delta.any()
    best = "one_against_rest" if few else "output"
    one = kind(**dict(given) | {"mechanism": "output"})
    if "law" not in given:
        one = replace(one, law=cast("Law", one.law_for(facts).value))
    if one.at(1.0).noise_of_model(facts) >= _CENTROIDS_FROM[best] * DRIFTS["output"]:
        return Choice("centroids", "so much noise leaves more of the sums of classes than of a minimiser")
    if few:
        return Choice(best, "of few classes, pure noise inside a minimisation each costs least")
    return Choice(best, "noise on the minimiser: of a softmax, no proof covers noise inside it")


def too_little(regularization: float, chosen: Callable[[], Choice], drifts: Callable[[], float]) -> tuple[str, ...]:
    """Of a lambda far less than would be chosen, which noise makes a model of nothing in particular; else nothing.

    Noise inside a minimisation is not so where its proof asks for more of a ridge than lambda is: ``drifts`` says how
    far noise moves scores at the ridges that there are, in parts of what is far enough.
    """
    try:
        enough = float(chosen().value)
    except (InvalidInputError, ValidationError):  # no lambda that may be given is enough
        return ()
    if regularization * _FAR_LESS >= enough or _bears(drifts):
        return ()
    words = f"regularization = {regularization:g} is far less than the noise needs"
    return (f"{words}, which is likely to decide what the model says: {enough:.3g} would be chosen",)


def _bears(drifts: Callable[[], float]) -> bool:
    """Whether noise moves scores by no more than is far too much."""
    try:
        return drifts() <= _FAR_LESS
    except InvalidInputError:  # no mechanism can be set
        return False


def those(facts: OwnFacts, holds: Callable[[int], bool]) -> BoolArray:
    """For which of the parties whose view the facts are something holds, by their index; (...)."""
    return np.array([holds(index) for index in own_indices(facts)]).reshape(facts.own_epsilon.shape)


def own_indices(facts: OwnFacts) -> list[int]:
    """Which of the parties those are whose view the facts are."""
    return [int(index) for index in np.atleast_1d(np.arange(len(facts.parties))[facts.index])]


def solvable_choice(choice: Choice, sites: Iterable[tuple[Mechanism, SiteTerms]]) -> Choice:
    """A choice of lambda, or the least with which all sites' mechanisms can be set and blur little, if it is more."""
    needed = (_least_near(*site) for site in dict.fromkeys(sites) if not _can_set(*site, _MOST_BLUR))
    least = max(filter(None, needed), default=None)
    return choice if least is None else Choice(least, _LEAST_SOLVABLE)


def set_site(mechanism: Mechanism, terms: SiteTerms, name: str) -> SiteRelease:
    """A mechanism for a site; raises InvalidInputError, which names the site and the least lambda that would do."""
    try:
        return MECHANISMS[mechanism](terms)
    except InvalidInputError as error:
        least = _least_regularization(mechanism, terms)
        hint = f"; with regularization = {least:.3g} it would do" if least else ""
        raise InvalidInputError(f"{name}: {error}{hint}") from None


def _can_set(mechanism: Mechanism, terms: SiteTerms, most_blur: float = math.inf) -> bool:
    """Whether a mechanism can be set for a site, and blurs its answer by no more than that."""
    try:
        return MECHANISMS[mechanism](terms).blur_deviation <= most_blur
    except InvalidInputError:
        return False


def _least_near(mechanism: Mechanism, terms: SiteTerms) -> float | None:
    """The least lambda that blurs little; where none does, for epsilon is so small, the least that can be set."""
    least = _least_regularization(mechanism, terms, _MOST_BLUR)
    return least if least or _can_set(mechanism, terms) else _least_regularization(mechanism, terms)


def _least_regularization(mechanism: Mechanism, terms: SiteTerms, most_blur: float = math.inf) -> float | None:
    """About the least lambda, in three digits, with which a mechanism can be set; None where lambda is not why not."""

    def does(regularization: float) -> bool:
        return _can_set(mechanism, replace(terms, regularization=regularization), most_blur)

    ladder = (terms.regularization * 2.0**step for step in range(1, _MOST_DOUBLINGS))
    high = next((each for each in ladder if each <= 1e9 and does(each)), None)  # noqa: PLR2004 -- lambda's largest
    if high is None:
        return None
    low = high / 2
    while high / low > 1.004:  # noqa: PLR2004 -- three digits
        middle = (low * high) ** 0.5
        low, high = (low, middle) if does(middle) else (middle, high)
    return float(f"{high * 1.005:.3g}")


_QUERY = Query(1, "release", np.zeros(0), "each")


@algorithm
class PrivateRelease(Releases):
    """Each site's private minimiser, one model a site."""

    sparse: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One, of each site."""
        self.check_sites(facts)
        return (Question("release", (0,), facts.n_weights, "each"),)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the releases."""
        reply = yield _QUERY
        return Model(reply.value.reshape(-1, *facts.shape), "members")

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """The private model."""
        return self.release(prepared, facts, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """`moved`."""
        return self.moved(facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """The release's."""
        return self.cost(facts)
