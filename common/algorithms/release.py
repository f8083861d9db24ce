"""Each site's own private model, and what the algorithms share in which each site releases one.

Chaudhuri, Monteleoni & Sarwate, JMLR 2011 (output and objective perturbation); Kifer, Smith & Thakurta, COLT 2012
(generalized objective perturbation); Jain & Thakurta, ICML 2014, eqs. 3 and 4. `PrivateRelease` is the *local model* of
the three that Xie's thesis compares: one round, in which each site releases a model that is private towards everyone;
nothing is averaged, and each site's budget, size and mechanism are its own.

`Releases` is what all such algorithms share. A site is a party. The mechanism that makes its release, lambda and whose
noise it is are parameters for all sites, which ``sites`` overrides for single ones; epsilon, delta and size are a
site's own. A site may leave its model without any noise (``mechanism="none"``), which no ledger accepts: for
simulations, and for an owner who keeps the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, ValidationError

from parley.common.algorithms._parameters import Regularization, algorithm, check_take_part
from parley.common.algorithms._regularization import choose_for_output, choose_regularization
from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import bounded_slope
from parley.common.learning.model import Model
from parley.common.privacy.events import Event
from parley.common.privacy.mechanisms.class_means import centroids
from parley.common.privacy.mechanisms.objective import branch_cautions, objective
from parley.common.privacy.mechanisms.one_against_rest import one_against_rest
from parley.common.privacy.mechanisms.output import exact, generalized, output
from parley.common.privacy.mechanisms.site import Law, SiteCalibration, SiteRelease, SiteTerms
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
"""The most classes for which noise inside K minimisations is better than on a softmax's minimiser.

Noise on it needs 2.4 / .7 sqrt(2 / K) times the lambda, by the drifts. The number of classes at which one gives way to
the other was chosen by held-out accuracy on iris, wine, digits and synthetic examples, with pure noise. With Gaussian
noise, whose tilts compose, adults' marital status and relationship, diabetics' readmission and synthetic examples were
looked at: with 10,000 to 60,000 rows accuracy is .015 to .08 higher than with noise on it. No epsilon counts that.
"""
_CENTROIDS_FROM, _CENTROIDS_FROM_PURE = 0.002, 0.004
"""The lambda, as noise on a softmax's minimiser needs it, from which on sums of classes are better than minimisers.

Chosen by held-out accuracy, with 300 to 10,000 rows: of `output` on digits, KDD99, adults' occupation, education,
marital status and relationship, loans' purpose, grade, home and employment, and three made-up sets with Gaussian noise;
of `one_against_rest`, where noise is pure, on iris, wine, loans' home and five made-up sets. HAR, MNIST and six others
made up had been looked at by then. Of `one_against_rest` with Gaussian noise, relationship's and synthetic examples'
sums are better still from .001 or so, the others' not below .003. No epsilon counts that.
"""
_MOST_DOUBLINGS = 60
_MOST_BLUR = 0.1
"""How far noise that hides a solver's error may move scores when lambda is chosen.

It falls with about the 2.5th power of lambda. Chosen by looking at synthetic examples, 200,000 and more: half of it and
twice as much are within .006 of it in accuracy, and without a bound .2 is lost. No epsilon counts that.
"""
_FAR_LESS = 4.0
"""A given lambda gets a warning if it is this many times smaller than the chosen one.

On synthetic examples, 50,000, by which this was chosen, objective perturbation, which spared half of epsilon for its
noise then, lost nothing by lambda = 1e-4, and with a tenth of it .43 of an accuracy of .996.
"""
_LEAST_SOLVABLE = "the least with which a solver surely finds the minimiser, near enough; the noise needs no more"

MechanismChoice = Annotated[Mechanism, Field(description="how a site's model becomes private")]
LawChoice = Annotated[
    Law, Field(description="Gaussian noise, for a delta above 0, or noise of density exp(-beta |b|), which needs none")
]
SiteCalibrationChoice = Annotated[
    SiteCalibration,
    Field(
        description="whose noise: the least that a proof supports (tight), the mechanism's own paper's, Jain & "
        "Thakurta's Gaussian scales, or (generalized) that of the Hessian bound of Xie's thesis; generalized as "
        "published adds its ridge to the site's own, where tight takes the larger that is needed"
    ),
]


class Site(Strict):
    """The parameters of one site that differ from those of all; None for those that do not."""

    party: Identifier
    mechanism: Mechanism | None = None
    regularization: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)] | None = None
    law: Law | None = None
    calibration: SiteCalibration | None = None


Sites = Annotated[tuple[Site, ...], Field(description="what single sites do otherwise, by the party's name")]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What sites release from: one part for all if they share a mechanism, and otherwise one for each (``parts``)."""

    sites: tuple[SiteRelease, ...]
    parts: tuple[Any, ...]

    def answer(self, noise: Noise) -> IntArray:
        """Return the releases, (m,) or (K, m)."""
        if len(self.parts) == 1:
            return self.sites[0].answer(self.sites, self.parts[0], noise)
        alone = enumerate(zip(self.sites, self.parts, strict=True))
        return np.stack([site.answer([site], part, noise.member(index)) for index, (site, part) in alone])


@algorithm
class Releases(Algorithm):
    """Sites' parameters, and what each site releases."""

    mechanism: MechanismChoice = "objective"
    law: LawChoice = "gaussian"
    calibration: SiteCalibrationChoice = "tight"
    regularization: Regularization = 0.01
    sites: Sites = ()
    left_open: ClassVar[frozenset[str]] = frozenset({"mechanism", "law"})

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:  # noqa: ARG003
        """Choose parameters by `choose_release`."""
        return cls.choose_release(facts, given)

    @classmethod
    def choose_release(cls, facts: FederationFacts, given: Mapping[str, Any]) -> dict[str, Choice]:
        """Choose the mechanism that suits the loss, the law that moves weights less, and lambda for the noise."""
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
    def alternatives(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Iterator[Mapping[str, Choice]]:
        """Yield choices by `other_releases`."""
        return cls.other_releases(facts, given)

    @classmethod
    def other_releases(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Iterator[Mapping[str, Choice]]:
        """Yield each mechanism and law that can be had of those left open, that with the least noise first."""
        ways: dict[str, tuple[str, ...]] = {
            "mechanism": cls.mechanisms_for(facts),
            "law": ("gaussian", "l2_laplace") if facts.delta.all() else ("l2_laplace",),
        }
        names = [name for name in ways if name in cls.left_open - given.keys()]
        if not names:
            return
        moved: dict[tuple[str, ...], tuple[float, float]] = {}
        for values in product(*(ways[name] for name in names)):
            one = cls(**dict(given) | dict(zip(names, values, strict=True)) | {"regularization": 1.0})
            with suppress(InvalidInputError):  # it cannot be set
                noise = one.at(1.0).noise_of_model(facts)
                moved[values] = noise / DRIFTS[one.mechanism], noise
        for values, (_, noise) in sorted(moved.items(), key=lambda entry: entry[1]):
            why = f"its noise moves weights by {noise:.2g} at lambda = 1"
            yield {name: Choice(value, why) for name, value in zip(names, values, strict=True)}

    @classmethod
    def mechanism_for(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Choice:
        """Choose the mechanism by `suited_mechanism`."""
        return suited_mechanism(cls, facts, given)

    @classmethod
    def mechanisms_for(cls, facts: FederationFacts) -> tuple[Mechanism, ...]:
        """Return the mechanisms that `mechanism_for` chooses among."""
        return usable_mechanisms(facts)

    def law_for(self, facts: FederationFacts) -> Choice:
        """Choose the law of the noise that moves weights less, among those that delta allows."""
        if not facts.delta.all():
            return Choice("l2_laplace", "no delta is spent")
        one = self.at(1.0)
        gaussian, pure = (replace(one, law=law).noise_of_model(facts) for law in ("gaussian", "l2_laplace"))
        words = f"moves weights by {{:.2g}} where {{}} does by {{:.2g}}, in {facts.n_weights} dimensions"
        if gaussian <= pure:
            return Choice("gaussian", words.format(gaussian, "l2_laplace", pure))
        return Choice("l2_laplace", words.format(pure, "gaussian", gaussian))

    def at(self, regularization: float) -> Self:
        """Return a copy with this lambda at every site, so that their noise can be compared.

        A lambda that one site sets for itself chooses nothing for others.
        """
        sites = tuple(site.model_copy(update={"regularization": None}) for site in self.sites)
        return replace(self, regularization=regularization, sites=sites)

    def strength_for(self, facts: FederationFacts) -> Choice:
        """Choose lambda for the noise, or the least with which all sites' mechanisms can be set, if that is more."""
        choice = self.strength_for_noise(facts)
        one = replace(self, regularization=cast("float", choice.value))
        overridden = {site.party for site in self.sites if site.regularization is not None}
        others = (index for index, party in enumerate(facts.parties) if party not in overridden)
        return solvable_choice(choice, (one.terms(facts, index) for index in others))

    def strength_for_noise(self, facts: FederationFacts) -> Choice:
        """Choose lambda for the noise alone."""
        return strength_by_drift(self.mechanism, lambda strength: self.at(strength).noise_of_model(facts))

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn if lambda, of all sites or of one, is far less than would be chosen (`too_little`), or near a cliff."""
        general = too_little(
            self.regularization,
            partial(self.strength_for, facts),
            lambda: self.at(self.regularization).noise_of_model(facts) / DRIFTS[self.mechanism],
        )
        overrides = (site for site in self.sites if site.regularization is not None)
        of_sites = (f"{site.party}'s {words}" for site in overrides for words in self._cautions_of(site, facts))
        return (*general, *of_sites, *self._cliffs(facts))

    def _cliffs(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn if a site's objective perturbation is as published, near its cliff.

        Sites with a lambda of their own are left out; `_cautions_of` warns about them.
        """
        if "paper" not in self.at_sites("calibration"):
            return ()
        overridden = {site.party for site in self.sites if site.regularization is not None}
        others = (index for index, party in enumerate(facts.parties) if party not in overridden)
        all_terms = dict.fromkeys(self.terms(facts, index) for index in others)
        inside = (terms for mechanism, terms in all_terms if mechanism == "objective")
        return tuple(dict.fromkeys(words for terms in inside for words in branch_cautions(terms, "tight")))

    def _cautions_of(self, site: Site, facts: FederationFacts) -> tuple[str, ...]:
        """Return the cautions about a site's own lambda.

        They are those of a run in which all sites have its size, budget and parameters.
        """
        index = facts.parties.index(site.party)
        facts_by_party = {name: getattr(facts, name) for name in ("n_examples", "epsilon", "delta")}
        repeated = {name: np.full_like(values, values[index]) for name, values in facts_by_party.items()}
        overrides = site.model_dump(exclude_none=True, exclude={"party"})
        return replace(self, sites=(), **overrides).cautions(replace(facts, **repeated))

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return about how far noise moves each weight of a released model: the median over sites."""
        return float(np.median([site.deviation for site in self.own_sites(facts.everyone)]))

    def check_sites(self, facts: FederationFacts) -> None:
        """Raise InvalidInputError if ``sites`` names a party twice, or one without a part, or a parameter is unfit."""
        names = [site.party for site in self.sites]
        check_take_part("sites", names, facts.parties)
        if len(set(names)) < len(names):
            raise InvalidInputError("sites names a party twice")
        for index, name in enumerate(facts.parties):
            mechanism, terms = self.terms(facts, index)
            if mechanism == "output":  # whether the others can be set depends on the noise
                set_site(mechanism, terms, name)

    def terms(self, facts: FederationFacts, index: int) -> tuple[Mechanism, SiteTerms]:
        """Return a site's mechanism and its terms."""
        site = next((site for site in self.sites if site.party == facts.parties[index]), None)
        overrides = site.model_dump(exclude_none=True, exclude={"party"}) if site else {}
        terms = SiteTerms(
            facts.loss,
            int(facts.n_examples[index]),
            facts.n_features,
            overrides.get("regularization", self.regularization),
            *facts.of(index).strictest,
            overrides.get("law", self.law),
            overrides.get("calibration", self.calibration),
            facts.row_entries,
            facts.most_rows,
        )
        return overrides.get("mechanism", self.mechanism), terms

    def own_sites(self, facts: OwnFacts) -> tuple[SiteRelease, ...]:
        """Return the mechanisms of the parties that the facts are about; raises as `set_site` does."""
        return tuple(set_site(*self.terms(facts, index), facts.parties[index]) for index in own_indices(facts))

    def whole_noise(self, round: int) -> bool:
        """Whether each site adds all of its noise: always, because a release is private towards everyone."""
        return True

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether each site puts Gaussian noise on its minimiser."""
        return self.at_sites("mechanism") == {"output"} and self.at_sites("law") == {"gaussian"}

    def at_sites(self, name: str) -> set[Any]:
        """Return the values that a parameter has: the common one, and those that sites set for themselves."""
        common = getattr(self, name)
        return {common, *(getattr(site, name) or common for site in self.sites)}

    @property
    def roles(self) -> bool:
        """Whether any site overrides the common parameters."""
        return bool(self.sites)

    def prepare(self, shard: Shard, facts: OwnFacts) -> Any:  # noqa: ANN401 -- as `Algorithm.prepare`
        """Return `Prepared`, with what comes before the noise: a minimiser, or the shard."""
        sites = self.own_sites(facts)
        if len({site.kind for site in sites}) == 1:
            return Prepared(sites, (sites[0].prepare(sites, shard),))
        return Prepared(sites, tuple(site.prepare([site], shard.party(i)) for i, site in enumerate(sites)))

    def release(self, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the private models, (m,) or (K, m)."""
        return prepared.answer(noise)

    def output_sensitivity(self, facts: OwnFacts) -> FloatArray:
        """Return the sensitivity of each site's output before noise, (...).

        It is infinite if the noise is inside the minimisation.
        """
        return np.array([site.output_sensitivity for site in self.own_sites(facts)]).reshape(facts.own_epsilon.shape)

    def proof_of_release(self, facts: OwnFacts) -> Proof | None:
        """Return the proof of the one mechanism of the parties that the facts are about."""
        sites = self.own_sites(facts)
        return applied_after(lambda prepared: prepared.parts[0], type(sites[0]).proof(sites))

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return the mechanism's proof."""
        return self.proof_of_release(facts)

    def cost(self, facts: OwnFacts) -> Event:
        """Return the event of a site's release."""
        return self.own_sites(facts)[0].event

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError if a site's noise does not fit on the wire."""
        for site in self.own_sites(facts):
            site.check_noise()


def strength_by_drift(mechanism: Mechanism, noise: Callable[[float], float], part: float = 1.0) -> Choice:
    """Choose lambda for a mechanism whose noise moves weights by ``noise`` of lambda: by a part of its drift."""
    drift = part * DRIFTS[mechanism]
    if mechanism == "output":
        return choose_for_output(noise, drift)
    return choose_regularization({}, noise(1.0), drift)["regularization"]


def usable_mechanisms(facts: FederationFacts) -> tuple[Mechanism, ...]:
    """Return the mechanisms that `suited_mechanism` chooses among."""
    if facts.loss.outputs == 1:
        return ("objective", "output") if np.isfinite(facts.loss.smoothness) else ("output",)
    return ("output",) if facts.loss.class_weights else ("output", "one_against_rest", "centroids")


def suited_mechanism(kind: type[Releases], facts: FederationFacts, given: Mapping[str, Any]) -> Choice:
    """Choose the mechanism that suits the loss and, for several classes, the noise."""
    if facts.loss.outputs == 1:
        if np.isfinite(facts.loss.smoothness):
            return Choice("objective", "noise inside the minimisation moves the model less than noise on it")
        return Choice("output", "noise on the minimiser: of such a loss, no proof covers noise inside it")
    if facts.loss.class_weights:
        return Choice("output", "noise on the minimiser: the other mechanisms for several classes take no weights")
    pure = given.get("law") == "l2_laplace" or not facts.delta.all()
    few = facts.loss.outputs <= _MOST_AGAINST_REST
    one = kind(**dict(given) | {"mechanism": "output"})
    if "law" not in given:
        one = replace(one, law=cast("Law", one.law_for(facts).value))
    threshold = _CENTROIDS_FROM_PURE if few and pure else _CENTROIDS_FROM
    if cast("float", one.strength_for_noise(facts).value) >= threshold:
        return Choice("centroids", "so much noise leaves more of the sums of classes than of a minimiser")
    if few:
        return Choice("one_against_rest", "of few classes, noise inside a minimisation each costs least")
    return Choice("output", "noise on the minimiser: of a softmax, no proof covers noise inside it")


def too_little(regularization: float, chosen: Callable[[], Choice], drifts: Callable[[], float]) -> tuple[str, ...]:
    """Return a warning if noise is likely to decide the model because lambda is far less than would be chosen.

    Noise inside a minimisation does not, if its proof needs a stronger ridge than lambda: ``drifts`` returns how far
    noise moves scores at the ridges in use, in units of the accepted drift.
    """
    try:
        enough = float(chosen().value)
    except (InvalidInputError, ValidationError):  # no valid lambda is enough
        return ()
    if regularization * _FAR_LESS >= enough or _tolerates(drifts):
        return ()
    words = f"regularization = {regularization:g} is far less than the noise needs"
    return (f"{words}, which is likely to decide what the model says: {enough:.3g} would be chosen",)


def _tolerates(drifts: Callable[[], float]) -> bool:
    """Whether noise moves scores by less than far too much."""
    try:
        return drifts() <= _FAR_LESS
    except InvalidInputError:  # no mechanism can be set
        return False


def parties_where(facts: OwnFacts, holds: Callable[[int], bool]) -> BoolArray:
    """Return whether a condition on the index holds, for each of the parties that the facts are about; (...)."""
    return np.array([holds(index) for index in own_indices(facts)]).reshape(facts.own_epsilon.shape)


def own_indices(facts: OwnFacts) -> list[int]:
    """Return the indices of the parties that the facts are about."""
    return [int(index) for index in np.atleast_1d(np.arange(len(facts.parties))[facts.index])]


def solvable_choice(choice: Choice, sites: Iterable[tuple[Mechanism, SiteTerms]]) -> Choice:
    """Return the choice of lambda, or the least with which all mechanisms can be set and blur little, if it is more."""
    least_by_site = (_least_near(*site) for site in dict.fromkeys(sites) if not _can_set(*site, _MOST_BLUR))
    least = max(filter(None, least_by_site), default=None)
    return choice if least is None else Choice(least, _LEAST_SOLVABLE)


def set_site(mechanism: Mechanism, terms: SiteTerms, name: str) -> SiteRelease:
    """Set a mechanism for a site.

    Raises InvalidInputError that names the site and the least lambda with which it would succeed.
    """
    try:
        return MECHANISMS[mechanism](terms)
    except InvalidInputError as error:
        least = _least_regularization(mechanism, terms)
        hint = f"; with regularization = {least:.3g} it would do" if least else ""
        raise InvalidInputError(f"{name}: {error}{hint}") from None


def _can_set(mechanism: Mechanism, terms: SiteTerms, most_blur: float = math.inf) -> bool:
    """Whether a mechanism can be set for a site, and blurs its answer by at most ``most_blur``."""
    try:
        return MECHANISMS[mechanism](terms).blur_deviation <= most_blur
    except InvalidInputError:
        return False


def _least_near(mechanism: Mechanism, terms: SiteTerms) -> float | None:
    """Return the least lambda that blurs little; or, if epsilon is too small for any, the least that can be set."""
    least = _least_regularization(mechanism, terms, _MOST_BLUR)
    return least if least or _can_set(mechanism, terms) else _least_regularization(mechanism, terms)


def _least_regularization(mechanism: Mechanism, terms: SiteTerms, most_blur: float = math.inf) -> float | None:
    """Return about the least lambda, in three digits, with which a mechanism can be set; None if no lambda helps."""

    def does(regularization: float) -> bool:
        return _can_set(mechanism, replace(terms, regularization=regularization), most_blur)

    ladder = (terms.regularization * 2.0**step for step in range(1, _MOST_DOUBLINGS))
    high = next((strength for strength in ladder if strength <= 1e9 and does(strength)), None)  # noqa: PLR2004 -- lambda's largest
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
    """Each site's private minimiser, one model for each site."""

    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @property
    def makes_one_model(self) -> bool:
        """Each party gets a model of its own."""
        return False

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask each site one question, for its release."""
        self.check_sites(facts)
        return (Question("release", (0,), facts.n_weights, "each"),)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the releases."""
        reply = yield _QUERY
        return Model(reply.value.reshape(-1, *facts.shape), "members")

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the private model."""
        return self.release(prepared, facts, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """Return `output_sensitivity`."""
        return self.output_sensitivity(facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the site's release."""
        return self.cost(facts)
