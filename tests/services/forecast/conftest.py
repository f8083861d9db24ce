"""A learner among five parties of different budgets, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.privacy.account import Cost, limit
from parley.party.settings import PartySettings
from tests.support.alone import learner_alone
from tests.support.cluster import Cluster, made_up
from tests.support.intercepted import Intercepted, intercepted_parties, learner_of

BUDGETS = {"party-1": 10.0, "party-2": 5.0, "party-3": 2.0, "party-4": 1.0, "party-5": 0.3}
DELTA = 1e-5
"""Of each budget."""
ALGORITHMS = "dp_gd", "psgd", "wu_strongly_convex", "wu_subgradient"


def left_after(*costs: Cost) -> dict[str, float]:
    """The epsilon that each budget has left after these charges."""
    return {
        name: limit(epsilon, DELTA).charge(sum(costs, Cost(0, 0))).epsilon_left for name, epsilon in BUDGETS.items()
    }


class Owners(Cluster):
    """Five parties, each with a budget of its own."""

    fears: ClassVar[dict[str, Any]] = {}

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """Return a party's settings, with its own budget."""
        budget = {"epsilon": BUDGETS[name], "delta": DELTA, "max_delta_per_run": DELTA}
        self.policy = budget | {"max_epsilon_per_run": 10.0, "max_rounds": 50} | self.fears
        return super().party_settings(name, **changes)


class ModelViewers(Owners):
    """Five parties that fear for the final model alone, and have room for the slack of a claim."""

    fears: ClassVar[dict[str, Any]] = {"view": "model", "delta": 0.1}


class CrowdSeekers(Owners):
    """Five parties that want two more in each sum, and to be asked about no public rows."""

    fears: ClassVar[dict[str, Any]] = {"minimum_contributors": 3, "public_rows": ()}


class Hasty(Owners):
    """Five parties that answer two rounds of a run."""

    fears: ClassVar[dict[str, Any]] = {"max_rounds": 2}


class OfRareClass(Owners):
    """Five parties with a study that says that one row in twenty is positive."""

    def __post_init__(self) -> None:
        study = made_up(1)
        label = study.label.model_copy(update={"shares": (0.95, 0.05)})
        columns = {"x0": np.linspace(-1, 1, 40), "y": np.repeat(["no", "yes"], [38, 2])}
        self.given = study.model_copy(update={"label": label}), [columns] * len(BUDGETS)
        super().__post_init__()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A user of a learner that must ask no party."""
    with learner_alone(Owners(tmp_path_factory.mktemp("alone"), algorithms=ALGORITHMS)) as client:
        yield client


@pytest.fixture
def owners(tmp_path: Path, request: pytest.FixtureRequest) -> Owners:
    kind: type[Owners] = getattr(request, "param", Owners)
    return kind(tmp_path, algorithms=ALGORITHMS)


@pytest.fixture
async def parties(owners: Owners) -> AsyncIterator[dict[str, Intercepted]]:
    async with intercepted_parties(owners) as parties:
        yield parties


@pytest.fixture
async def client(owners: Owners, parties: dict[str, Intercepted]) -> AsyncIterator[httpx.AsyncClient]:
    """A user of the learner."""
    async with learner_of(owners, parties) as client:
        yield client


@pytest.fixture
def fraud() -> dict[str, Any]:
    """Two large owners and a small, conservative one: none of the roster."""
    return {
        "study": "made-up",
        "algorithm": "wu_strongly_convex",
        "parameters": {"n_rounds": 20, "regularization": 0.1},
        "epsilon": 10.0,
        "delta": 1e-5,
        "budgets": {"shop": {"epsilon": 0.1, "delta": 1e-6}},
        "owners": {"bank-a": 2900, "bank-b": 2900, "shop": 200},
    }
