"""The registered algorithms, one file for each; adding one is a file and a line here.

A file is loaded when its algorithm is used for the first time. Settings that name algorithms, and commands that print
their help, load none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from parley.common.encoding.texts import did_you_mean, shortened
from parley.common.errors import InvalidInputError
from parley.common.registry import Registry
from parley.common.strict import faults

if TYPE_CHECKING:
    from parley.common.protocol.algorithm import Algorithm, Choice
    from parley.common.protocol.facts import FederationFacts


class AlgorithmRegistry(Registry["type[Algorithm]"]):
    """The algorithms by name. Loading a class that has no method ``proof`` raises InvalidInputError."""

    def __init__(self, **places: str) -> None:
        super().__init__("algorithm", **places)

    def check(self, name: str, entry: type[Algorithm]) -> type[Algorithm]:
        """Return the algorithm. Raises InvalidInputError if it has no method ``proof``."""
        if "proof" in getattr(entry, "__abstractmethods__", {"proof"}):
            raise InvalidInputError(
                f"the algorithm {name!r} declares events and no proof of them: give {entry.__name__} a method 'proof', "
                "as CONTRIBUTING.md says"
            )
        return entry


REGISTRY = AlgorithmRegistry(
    dp_gd="parley.common.algorithms.dp_gd:DpGd",
    psgd="parley.common.algorithms.psgd:Psgd",
    gop="parley.common.algorithms.gop:Gop",
    release="parley.common.algorithms.release:PrivateRelease",
    average="parley.common.algorithms.average:AverageMethod",
    simplex="parley.common.algorithms.simplex:SampledSimplex",
    ftrl="parley.common.algorithms.ftrl:PrivateLeader",
    feature="parley.common.algorithms.feature:FeatureMethod",
    multilevel_feature="parley.common.algorithms.feature:MultilevelFeature",
    matrix_perturbation="parley.common.algorithms.matrix_perturbation:MatrixPerturbation",
    local_average="parley.common.algorithms.average:LocalAverage",
    pooled="parley.common.algorithms.baselines:Pooled",
    local="parley.common.algorithms.baselines:Local",
    batch="parley.common.algorithms.baselines:Pooled",
    individual="parley.common.algorithms.baselines:Local",
    ensemble_vote="parley.common.algorithms.ensemble:EnsembleVote",
    ensemble_soft="parley.common.algorithms.ensemble:EnsembleSoft",
    parameter_average="parley.common.algorithms.parameter_average:ParameterAverage",
    wu_strongly_convex="parley.common.algorithms.wu:WuStronglyConvex",
    evaluate="parley.common.algorithms.evaluate:Evaluate",
    wu_subgradient="parley.common.algorithms.wu:WuSubgradient",
    describe="parley.common.algorithms.describe:Describe",
)


AUTO = "auto"
"""The value of a parameter that `settle` is to choose."""
MOST_ROUNDS = 1_000
"""The largest number of rounds that `settle` chooses, however much time there is."""


def build_algorithm(name: str, parameters: Mapping[str, Any] | None = None) -> Algorithm:
    """Build the algorithm of this name with these parameters and defaults for all others.

    Raises:
        InvalidInputError: the name or a parameter is unknown, or a parameter is out of range; the message names it.
    """
    if name not in REGISTRY:
        near = did_you_mean(name, REGISTRY)
        raise InvalidInputError(f"unknown algorithm {name!r}; there are {', '.join(sorted(REGISTRY))}{near}")
    parameters, declared = dict(parameters or {}), parameters_of(name)
    if unknown := sorted(parameters.keys() - declared):
        near = did_you_mean(unknown[0], declared)
        raise InvalidInputError(
            f"parameters of {name}: unknown: {', '.join(map(shortened, unknown[:5]))}; "
            f"there are {', '.join(declared) or 'none'}{near}"
        )
    try:
        return _adapter(name).validate_json(json.dumps(parameters), strict=True)
    except ValidationError as error:
        raise InvalidInputError(f"parameters of {name}: {faults(error)}") from None


def parameters_of(name: str) -> list[str]:
    """Return the names of an algorithm's parameters, in the order in which it declares them."""
    return list(parameter_schema(name).get("properties", {}))


def fixed_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that have a value, without those that are `AUTO`."""
    return {name: value for name, value in parameters.items() if value != AUTO}


def settle(
    name: str, parameters: Mapping[str, Any], facts: FederationFacts, most_rounds: int = MOST_ROUNDS
) -> tuple[Algorithm, dict[str, Choice]]:
    """Build the algorithm of this name, choosing the parameters that are `AUTO`; return it and the choices, by name.

    Raises:
        InvalidInputError: a parameter is unknown or out of range, or cannot be chosen for these facts.
    """
    fixed = fixed_parameters(parameters)
    algorithm = build_algorithm(name, fixed)  # refuses bad values before anything is computed from them
    algorithm.check_rows(facts)
    visible_facts = facts.curated() if algorithm.curator else facts
    values = {parameter: getattr(algorithm, parameter) for parameter in fixed}
    choices = algorithm.choose(visible_facts, values, min(most_rounds, MOST_ROUNDS))
    if unchosen := sorted(set(parameters) - set(fixed) - set(choices)):
        raise InvalidInputError(f"nothing chooses {', '.join(unchosen)} of {name}: give a value, or leave it out")
    return build_algorithm(name, fixed | {parameter: choice.value for parameter, choice in choices.items()}), choices


def settlements(
    name: str, parameters: Mapping[str, Any], facts: FederationFacts, most_rounds: int = MOST_ROUNDS
) -> Iterator[tuple[Algorithm, dict[str, Choice]]]:
    """Yield what `settle` returns, and then what may be chosen instead, the most accurate first.

    The first raises what `settle` does; others that cannot be are left out.
    """
    preferred, choices = settle(name, parameters, facts, most_rounds)
    yield preferred, choices
    fixed = fixed_parameters(parameters)
    visible_facts = facts.curated() if preferred.curator else facts
    values = {parameter: getattr(preferred, parameter) for parameter in fixed}
    for instead in preferred.alternatives(visible_facts, values):
        try:
            other, rest = settle(
                name, fixed | {parameter: choice.value for parameter, choice in instead.items()}, facts, most_rounds
            )
        except InvalidInputError:
            continue
        if other != preferred:
            yield other, dict(instead) | rest


def parameter_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an algorithm's parameters."""
    return _adapter(name).json_schema()


@cache  # a list of runs builds an algorithm for each
def _adapter(name: str) -> TypeAdapter[Algorithm]:
    return TypeAdapter(REGISTRY[name])
