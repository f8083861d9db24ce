"""What Xie's figures measure: error rates on test rows, and how far private models lie from the best one.

A run deals rows to the sites and the aggregator again, and draws all noise again; run i has the same rows and the same
seed under every setting, so that settings are compared run by run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from parley.common.algorithms.average import AverageMethod
from parley.common.algorithms.feature import FeatureMethod
from parley.common.algorithms.release import Mechanism, PrivateRelease, Releases, set_site
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.losses import Huber, Logistic, Loss, largest_minimiser
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.mechanisms.output import OutputPerturbation
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from scripts.figures.xie_data import Rows, rows_of

DELTA = 1e-5
"""Of tight noise, which is Gaussian; the thesis's is pure."""
LOSSES: Mapping[str, Loss] = {"logistic": Logistic(), "huber": Huber()}
NOISE: Mapping[str, dict[str, Any]] = {
    "paper": {"law": "l2_laplace", "calibration": "paper"},
    "thesis": {"law": "l2_laplace", "calibration": "thesis"},
    "tight": {"law": "gaussian", "calibration": "tight"},
}
_AGGREGATOR = "aggregator"


@dataclass(frozen=True, slots=True)
class Setting:
    """Who learns how: so many sites of so many rows and budget each, and an aggregator, whose budget is the same.

    ``own`` are the last site's rows and epsilon where they differ. ``mechanism`` is the sites', ``second`` the
    aggregator's; "none" adds no noise.
    """

    data: str = "mnist"
    method: str = "average"
    loss: str = "huber"
    noise: str = "paper"
    mechanism: str = "objective"
    second: str = "objective"
    regularization: float = 0.01
    sites: int = 10
    rows: int = 789
    epsilon: float = 0.1
    aggregator: int = 789
    own: tuple[int, float] | None = None

    @property
    def sizes(self) -> list[int]:
        """The numbers of rows of the sites."""
        return [self.rows] * (self.sites - 1) + [self.own[0] if self.own else self.rows]

    @property
    def epsilons(self) -> list[float]:
        """The budgets epsilon of the sites."""
        return [self.epsilon] * (self.sites - 1) + [self.own[1] if self.own else self.epsilon]

    @property
    def noisy(self) -> dict[str, Any]:
        """The parameters that say how a site's model becomes private."""
        return {"mechanism": self.mechanism, "regularization": self.regularization, **NOISE[self.noise]}

    @property
    def weighed(self) -> dict[str, Any]:
        """Those of the second level as well."""
        return self.noisy | {"second_mechanism": self.second, "second_regularization": self.regularization}


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """A run's rows: the sites' (a list), and the aggregator's."""

    setting: Setting
    rows: Rows
    number: int

    @property
    def parts(self) -> list[Shard]:
        """The sites' rows, and at last the aggregator's; raises ValueError where there are not so many."""
        sizes, private = [*self.setting.sizes, self.setting.aggregator], self.rows.private
        order = np.random.default_rng([self.number, 1]).permutation(len(private.y))
        if sum(sizes) > len(order):
            raise ValueError(f"there are {len(order)} rows, not {sum(sizes)}")
        ends = np.cumsum([self.setting.aggregator, *self.setting.sizes])
        last, *parts = np.split(order[: ends[-1]], ends[:-1])
        return [Shard(private.X[part], private.y[part]) for part in (*parts, last)]

    def run(self, algorithm: Releases, parts: list[Shard], epsilons: list[float], **terms: Any) -> Model:  # noqa: ANN401
        """An algorithm's model among parties of these rows and budgets."""
        facts = self.facts([len(part.y) for part in parts], epsilons, **terms)
        return simulate(algorithm, Shard.stack(parts), facts, SeededNoise([self.number, 2]))

    def alone(self, rows: Shard) -> Model:
        """One site's model, by its mechanism itself: parameters do not let Lambda be as small as Figure 3.5's."""
        setting, (n, d) = self.setting, rows.X.shape
        terms = SiteTerms(
            LOSSES[setting.loss], n, d, setting.regularization, setting.epsilon, DELTA, **NOISE[setting.noise]
        )
        site = set_site(cast("Mechanism", setting.mechanism), terms, "site-1")
        released = site.answer([site], site.prepare([site], rows), SeededNoise([self.number, 2]))
        return Model(to_reals(released))

    def facts(self, sizes: list[int], epsilons: list[float], **terms: Any) -> FederationFacts:  # noqa: ANN401
        """Return the facts that parties of these sizes and budgets agree on."""
        k = len(sizes)
        spec_terms: dict[str, Any] = {
            "parties": tuple(f"site-{i + 1}" for i in range(k)),
            "minimum_contributors": k,
        } | terms
        return FederationFacts(
            n_examples=np.array(sizes), epsilon=np.array(epsilons), delta=np.full(k, DELTA),
            n_features=self.rows.private.n_features, loss=LOSSES[self.setting.loss], **spec_terms,
        )  # fmt: skip

    @property
    def model(self) -> Model:
        """Return the model that the setting's method learns."""
        setting, (*sites, aggregator) = self.setting, self.parts
        match setting.method:
            case "global":
                return self.alone(Shard.stack(sites).pooled())
            case "local":
                return self.run(PrivateRelease(**setting.noisy), sites, setting.epsilons)
            case "average":
                return self.run(AverageMethod(noise="sites", **setting.noisy), sites, setting.epsilons)
            case "once":
                once = AverageMethod(noise="once", **setting.noisy | {"mechanism": "output"})
                return self.run(once, sites, setting.epsilons, secure_sum=True)
            case "public":
                some = self.rows.public.view(slice(setting.aggregator))
                public = np.concatenate([some.X, some.y[:, None]], axis=1)
                return self.run(FeatureMethod(second="public", **setting.weighed), sites, setting.epsilons,
                                public=public, public_shape=public.shape)  # fmt: skip
            case "full":
                names = (*(f"site-{i + 1}" for i in range(setting.sites)), _AGGREGATOR)
                full = FeatureMethod(second="full", aggregator=_AGGREGATOR, **setting.weighed)
                return self.run(full, [*sites, aggregator], [*setting.epsilons, setting.epsilon], parties=names)
        raise ValueError(f"there is no method {setting.method!r}")


def errors_on(repeat: int, first: int = 0, **setting: Any) -> list[float]:  # noqa: ANN401
    """The error rate on test rows of each run, (repeat,); of sites' own models, their mean."""
    return list(errors_of(Setting(**setting), rows_of(setting["data"]), range(first, first + repeat)))


def errors_of(setting: Setting, rows: Rows, numbers: range) -> Iterator[float]:
    """Return the error rate on test rows of each run."""
    for number in numbers:
        yield 1 - accuracy(Dealt(setting, rows, number).model, rows.test)


def distances_on(repeat: int, **setting: Any) -> tuple[list[float], float]:  # noqa: ANN401
    """Return `distances_of` on data by its name."""
    return distances_of(Setting(**setting), rows_of(setting["data"]), repeat)


def distances_of(setting: Setting, rows: Rows, repeat: int) -> tuple[list[float], float]:
    """The squared distance of each run's model to the minimiser of all sites' rows, and a bound on its expectation.

    Of the method *global* or *average*. The bound is derived here; the thesis's text was not at hand. With Lambda on
    the sum scale and |b| of a Gamma law, E|b| = d / beta and E|b|^2 = d (d + 1) / beta^2:

    - output: d (d + 1) / beta^2, which is the expectation.
    - objective: the risk is strongly convex, so a tilt b and a ridge of Lambda' > Lambda move its minimiser by at most
      (|b| + (Lambda' - Lambda) R) / Lambda', R the largest norm of a minimiser; and the blur adds its own.
    - average, of output: 1/K^2 times the sites' noise; and by convexity minimisers on m and on n rows, dealt alike, lie
      on the average within L / (lambda sqrt m) and L / (lambda sqrt n) of the pool's.
    """
    squares = []
    for number in range(repeat):
        dealt = Dealt(setting, rows, number)
        best = replace(setting, method="global", mechanism="none")
        apart = dealt.model.weights - Dealt(best, rows, number).model.weights
        squares.append(float((apart**2).sum()))
    return squares, _bound(setting, dealt)


def _bound(setting: Setting, dealt: Dealt) -> float:
    """On the mean squared distance to the minimiser of all sites' rows."""
    sizes = [sum(setting.sizes)] if setting.method == "global" else setting.sizes
    facts = dealt.facts(sizes, setting.epsilons[: len(sizes)])
    sites = PrivateRelease(**setting.noisy).own_sites(facts.everyone)
    k, d, loss = len(sites), facts.n_features, facts.loss
    squares = 0.0
    for site in sites:
        if isinstance(site, OutputPerturbation):
            squares += d * (d + 1) / site.scale**2
        elif isinstance(site, ObjectivePerturbation):
            pulled = (site.strength - site.terms.strength) * largest_minimiser(loss, setting.regularization)
            tilt = d * (d + 1) / site.tilt**2 + 2 * pulled * d / site.tilt + pulled**2
            squares += tilt / site.strength**2 + d * (d + 1) / site.blur**2
    if k == 1:
        return squares
    apart = loss.lipschitz / setting.regularization * (1 / math.sqrt(min(sizes)) + 1 / math.sqrt(sum(sizes)))
    return squares / k**2 + apart**2
