"""The algorithms, one file each; adding one is a file and a line here.

A file is loaded when its algorithm is first asked for: settings that name algorithms, and commands that ask for help,
load none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from common.errors import InvalidInputError
from common.strict import faults

if TYPE_CHECKING:
    from common.protocol.algorithm import Algorithm, Choice
    from common.protocol.facts import FederationFacts


class Registry(Mapping[str, "type[Algorithm]"]):
    """Algorithms by name, each as the ``module:Class`` that it is loaded from.

    One that has no proof of its events is refused when it is loaded, with InvalidInputError.
    """

    def __init__(self, **places: str) -> None:
        self._places = places

    def add(self, name: str, place: str) -> None:
        """Add an algorithm from elsewhere; raises InvalidInputError for a name that is taken by another."""
        if self._places.setdefault(name, place) != place:
            raise InvalidInputError(f"there is an algorithm {name!r} already")

    def __getitem__(self, name: str) -> type[Algorithm]:
        module, _, attribute = self._places[name].partition(":")
        kind = getattr(import_module(module), attribute)
        if "proof" in getattr(kind, "__abstractmethods__", {"proof"}):
            raise InvalidInputError(
                f"the algorithm {name!r} declares events and no proof of them: give {attribute} a method 'proof', as "
                "CONTRIBUTING.md says"
            )
        return cast("type[Algorithm]", kind)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


REGISTRY = Registry(
    dp_gd="common.algorithms.dp_gd:DpGd",
    psgd="common.algorithms.psgd:Psgd",
    gop="common.algorithms.gop:Gop",
    release="common.algorithms.release:PrivateRelease",
    average="common.algorithms.average:AverageMethod",
    simplex="common.algorithms.simplex:SampledSimplex",
    ftrl="common.algorithms.ftrl:PrivateLeader",
    feature="common.algorithms.feature:FeatureMethod",
    multilevel_feature="common.algorithms.multilevel_feature:MultilevelFeature",
    matrix_perturbation="common.algorithms.matrix_perturbation:MatrixPerturbation",
    local_average="common.algorithms.local_average:LocalAverage",
    pooled="common.algorithms.pooled:Pooled",
    local="common.algorithms.local:Local",
    batch="common.algorithms.pooled:Pooled",
    individual="common.algorithms.local:Local",
    ensemble_vote="common.algorithms.ensemble_vote:EnsembleVote",
    ensemble_soft="common.algorithms.ensemble_soft:EnsembleSoft",
    parameter_average="common.algorithms.parameter_average:ParameterAverage",
    wu_strongly_convex="common.algorithms.wu_strongly_convex:WuStronglyConvex",
    evaluate="common.algorithms.evaluate:Evaluate",
    wu_subgradient="common.algorithms.wu_subgradient:WuSubgradient",
    describe="common.algorithms.describe:Describe",
)


AUTO = "auto"
"""What a parameter that is left open may be said to be."""
MOST_ROUNDS = 1_000
"""The most rounds that are chosen for any run, however much time there is."""


def build_algorithm(name: str, parameters: Mapping[str, Any] | None = None) -> Algorithm:
    """The algorithm of this name with these parameters, defaults for the rest.

    Raises InvalidInputError that names an unknown algorithm, or the parameter that is unknown or out of range.
    """
    if name not in REGISTRY:
        raise InvalidInputError(f"unknown algorithm {name!r}; there are {', '.join(sorted(REGISTRY))}")
    try:
        return _adapter(name).validate_json(json.dumps(dict(parameters or {})), strict=True)
    except ValidationError as error:
        raise InvalidInputError(f"parameters of {name}: {faults(error)}") from None


def given_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are not left open."""
    return {name: value for name, value in parameters.items() if value != AUTO}


def settle(
    name: str, parameters: Mapping[str, Any], facts: FederationFacts, most_rounds: int = MOST_ROUNDS
) -> tuple[Algorithm, dict[str, Choice]]:
    """The algorithm of this name, with what ``parameters`` leave open chosen; and the choices, by name.

    Raises InvalidInputError for parameters that are unknown or out of range, or that cannot be chosen for such facts.
    """
    given = given_of(parameters)
    algorithm = build_algorithm(name, given)  # refuses before anything is made of them
    algorithm.check_rows(facts)
    told = facts.curated() if algorithm.curator else facts
    known = {parameter: getattr(algorithm, parameter) for parameter in given}
    choices = algorithm.choose(told, known, min(most_rounds, MOST_ROUNDS))
    if unchosen := sorted(set(parameters) - set(given) - set(choices)):
        raise InvalidInputError(f"nothing chooses {', '.join(unchosen)} of {name}: give a value, or leave it out")
    return build_algorithm(name, given | {each: choice.value for each, choice in choices.items()}), choices


def parameter_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an algorithm's parameters."""
    return _adapter(name).json_schema()


@cache
def _adapter(name: str) -> TypeAdapter[Algorithm]:
    """What checks an algorithm's parameters, made once: a list of runs builds an algorithm for each."""
    return TypeAdapter(REGISTRY[name])
