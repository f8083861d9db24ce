"""Of computeSlack's two branches the one with less noise is taken where nobody says which, by public numbers alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm, settle
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

N, D, LAMBDA = 1000, 5, 0.01
CLIFF = {"psgd": 0.04939, "gop": 0.04939 / 0.99}
"""2 log(1 + c / (n lambda)); of `gop` the hundredth more that hides how well the solver did."""


def facts(epsilon: float, *, curated: bool = False) -> FederationFacts:
    """Of two owners of 500 rows."""
    sizes = np.full(2, N // 2)
    both = FederationFacts.uniform(sizes, epsilon=epsilon, delta=1e-5, n_features=D, loss=Logistic())
    return both.curated() if curated else both


@pytest.mark.parametrize("name", ["psgd", "gop"])
@pytest.mark.parametrize("beyond", [1.0005, 1.02, 1.5])
def test_an_epsilon_above_the_cliff_has_no_more_noise_than_one_below(name: str, beyond: float) -> None:
    """Just above it the published branch has a hundred times the noise."""
    given = {"regularization": LAMBDA}
    below, above = facts(CLIFF[name] * 0.999), facts(CLIFF[name] * beyond)
    (less, _), (more, choices) = settle(name, given, below), settle(name, given, above)
    assert choices["calibration"].value == "better_branch"
    noises = [noise(each, of.curated() if name == "gop" else of) for each, of in ((less, below), (more, above))]
    assert noises[1] <= noises[0] * (1 + 1e-9)
    published = build_algorithm(name, given)
    assert published == build_algorithm(name, given | {"calibration": "paper"}), "as older specifications mean it"
    of = above.curated() if name == "gop" else above
    assert "computeSlack as published" in " ".join(published.cautions(of))
    assert "computeSlack" not in " ".join(more.cautions(of))
    assert noise(published, of) > noises[1] * (100 if beyond < 1.001 else 1)
    more.check_noise(of.of(0))


def test_an_epsilon_that_the_published_branch_refuses_is_accepted() -> None:
    of = facts(0.0494)
    with pytest.raises(InvalidInputError, match="noise"):
        build_algorithm("psgd", {"regularization": LAMBDA}).check_noise(of.of(0))
    settle("psgd", {"regularization": LAMBDA}, of)[0].check_noise(of.of(0))


@pytest.mark.parametrize("name", ["psgd", "gop"])
def test_away_from_the_cliff_both_branches_are_as_published(name: str) -> None:
    given = {"regularization": LAMBDA}
    for epsilon in (CLIFF[name] * 0.9, CLIFF[name] * 2.01, 1.0):
        of = facts(epsilon, curated=name == "gop")
        chosen, published = settle(name, given, of)[0], build_algorithm(name, given)
        assert noise(chosen, of) == noise(published, of)
        assert "computeSlack" not in " ".join(published.cautions(of))


def test_a_release_as_published_is_cautioned_near_its_cliff() -> None:
    """And each once, of however many owners; the least noise that is proven has no cliff."""
    given = {"mechanism": "objective", "law": "gaussian", "regularization": 2 * LAMBDA}
    near = facts(CLIFF["gop"] * 1.1)
    (words,) = (
        caution
        for caution in settle("average", given | {"calibration": "paper"}, near)[0].cautions(near)
        if "computeSlack" in caution
    )
    assert words.endswith("take calibration = tight")
    assert "computeSlack" not in " ".join(settle("average", given, near)[0].cautions(near))
    some = {"sites": [{"party": near.parties[0], "calibration": "paper", "regularization": 2 * LAMBDA}]}
    (words,) = (
        caution for caution in settle("average", given | some, near)[0].cautions(near) if "computeSlack" in caution
    )
    assert words.startswith(f"{near.parties[0]}'s computeSlack")


def test_the_choice_sees_no_data() -> None:
    """On any examples of the same count the same algorithm answers; all that it is chosen from is public facts."""
    of = facts(CLIFF["psgd"] * 1.02)
    rng = np.random.default_rng(3)
    algorithms = []
    for scale in (0.0, 1.0):
        X = scale * rng.uniform(-1, 1, (2, N // 2, D))
        shards = Shard(X, np.where(rng.random((2, N // 2)) < 0.5, -1.0, 1.0))
        algorithm, choices = settle("psgd", {"regularization": LAMBDA, "n_rounds": 3}, of)
        assert np.isfinite(simulate(algorithm, shards, of, SeededNoise(1)).weights).all()
        algorithms.append((algorithm, choices))
    assert all(one == other for one, other in pairwise(algorithms))


def noise(algorithm: object, of: FederationFacts) -> float:
    """The deviation of the tilt."""
    if hasattr(algorithm, "mechanism"):
        return float(algorithm.mechanism(of.of(0)).tilt)
    return float(algorithm.scales(of)[0])  # type: ignore[attr-defined]
