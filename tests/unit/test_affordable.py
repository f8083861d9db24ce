"""What a run leaves open is chosen among what every account pays for, and no account is asked more than it must be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import settlements
from parley.common.client.affordable import Candidate, Charge, Follower, Priced, affordable, ask_nobody
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.losses import Hinge, Logistic, Loss, Softmax
from parley.common.privacy.account import Account, Cost, limit
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.specification import RunSpec
from tests.unit.test_forecast_views import spec_of

COSTS = {0.9: 90, 0.5: 50, 0.4: 40, 0.1: 10}
"""What runs of these steps cost a basic account, in millionths."""


def ways(*steps: float) -> list[Candidate]:
    drafts = (spec_of(parameters={"n_rounds": 5, "step": step}) for step in steps)
    return [Candidate(draft, {"n_rounds": "given", "step": f"it is {draft.parameters['step']}"}) for draft in drafts]


def price(spec: RunSpec) -> dict[str, Charge]:
    step: Any = spec.parameters["step"]
    if step not in COSTS:
        raise InvalidInputError(f"{step} cannot be")
    return dict.fromkeys(spec.names, Cost(COSTS[step], 0))


def account(epsilon: int) -> Account:
    """One that has so many millionths."""
    return limit(epsilon / 10**6, 0.0, composition="basic")


class Room:
    """Parties that say whether their charges are at most what they have left, and note what they were asked."""

    def __init__(self, **remaining: int) -> None:
        self.remaining = {name.replace("_", "-"): units for name, units in remaining.items()}
        self.asked: list[dict[str, int]] = []

    async def __call__(self, _run: RunSpec, charges: Mapping[str, Charge]) -> dict[str, bool]:
        costs = {name: charge.epsilon for name, charge in charges.items() if isinstance(charge, Cost)}
        self.asked.append(costs)
        return {name: costs[name] <= most for name, most in self.remaining.items()}


def chosen(*steps: float, ask: Any = ask_nobody, later: Mapping[str, Charge] | None = None, **of: Account) -> Priced:  # noqa: ANN401
    accounts = {name.replace("_", "-"): one for name, one in of.items()}
    follower = None if later is None else Follower(ways(0.1)[0].spec, later)
    return asyncio.run(affordable(iter(ways(*steps)), price, follower, accounts, ask))


def test_what_all_accounts_pay_for_is_taken_and_each_is_asked_once() -> None:
    room = Room(owner_0=100, owner_1=100)
    taken = chosen(0.9, 0.5, ask=room, owner_0=account(90), owner_1=account(100))
    assert taken.candidate == ways(0.9)[0]
    assert taken.charges == taken.alone == {"owner-0": Cost(90, 0), "owner-1": Cost(90, 0)}
    assert taken.room == {"owner-0": True, "owner-1": True}
    assert room.asked == [{"owner-0": 90, "owner-1": 90}]


def test_the_first_that_no_account_refuses_is_taken_and_says_whose_did() -> None:
    taken = chosen(0.9, 0.5, 0.4, owner_1=account(49)).candidate
    why = "0.9 would be more accurate, but owner-1's account does not pay for it"
    reasons = {"n_rounds": "given", "step": f"{why}; it is 0.4"}
    assert taken == Candidate(ways(0.4)[0].spec, reasons, f"step = 0.4: {why}")
    both = chosen(0.9, 0.1, owner_0=account(20), owner_1=account(20)).candidate
    assert both.instead is not None
    assert both.instead.endswith("but the accounts of owner-0, owner-1 do not pay for it")


def test_a_partys_yes_or_no_counts_before_what_its_account_is_known_to_have() -> None:
    late = Room(owner_0=100, owner_1=100)
    assert chosen(0.9, 0.4, ask=late, owner_1=account(30)).candidate == ways(0.9)[0], "a run has ended meanwhile"
    others = Room(owner_0=45, owner_1=100)
    assert chosen(0.9, 0.4, ask=others, owner_0=account(100)).candidate.spec == ways(0.4)[0].spec, "others have spent"


def test_no_party_is_asked_about_what_is_as_dear_as_what_it_refused_or_what_its_account_cannot_pay() -> None:
    room = Room(owner_0=45, owner_1=100)
    steps = (0.5, 0.9, 0.5, 0.4, 0.1)
    taken = chosen(*steps, ask=room, owner_1=account(60))
    assert taken.candidate.spec.parameters["step"] == 0.4
    assert [costs["owner-0"] for costs in room.asked] == [50, 40]
    tight = Room(owner_0=100)
    taken = chosen(0.9, 0.5, 0.1, ask=tight, owner_1=account(10))
    assert taken.candidate.spec.parameters["step"] == 0.1
    assert [costs["owner-0"] for costs in tight.asked] == [90, 10]


def test_where_accounts_pay_for_none_the_first_is_kept_and_nothing_is_said() -> None:
    taken = chosen(0.9, 0.5, 0.1, owner_0=account(9))
    assert taken.candidate == ways(0.9)[0]


def test_what_follows_the_run_counts() -> None:
    later = {"owner-0": Cost(8, 0), "owner-1": Cost(8, 0)}
    taken = chosen(0.9, 0.5, later=later, owner_0=account(95))
    assert (taken.alone["owner-0"], taken.charges["owner-0"]) == (Cost(90, 0), Cost(98, 0)), (
        "they need not fit together"
    )
    room, dear = Room(owner_0=100, owner_1=60), {"owner-0": Cost(8, 0), "owner-1": Cost(70, 0)}
    assert chosen(0.5, 0.1, ask=room, later=dear).room == {"owner-0": True, "owner-1": False}
    assert [costs["owner-1"] for costs in room.asked] == [70, 50], "it is asked about by itself, once"
    unpaid = chosen(0.9, 0.5, later={"owner-0": BudgetExhaustedError("none")}, owner_0=account(95))
    assert unpaid.candidate == ways(0.9)[0], "no budget allows any"


def test_candidates_that_cannot_be_are_left_out_but_the_first_is_refused() -> None:
    assert chosen(0.9, 0.7, 0.5, owner_0=account(60)).candidate.spec.parameters["step"] == 0.5
    with pytest.raises(InvalidInputError, match=r"0\.7 cannot be"):
        chosen(0.7, 0.5)


# ── what algorithms offer ────────────────────────────────────────────────────


def offered(name: str, loss: Loss, delta: float = 1e-6, **terms: object) -> list[tuple[str, str]]:
    given: dict[str, Any] = {key: terms.pop(key) for key in ("mechanism", "law") if key in terms}
    facts = FederationFacts.uniform(
        np.full(3, 500), epsilon=0.5, delta=delta, n_features=8, loss=loss, public_shape=(30, 9), **terms
    )
    found: list[Any] = [algorithm for algorithm, _ in settlements(name, given, facts)]
    return [(one.mechanism, one.law) for one in found]


@pytest.mark.parametrize("name", ["release", "average", "feature"])
def test_releases_offer_every_mechanism_and_law_that_is_left_open(name: str) -> None:
    assert set(offered(name, Logistic())) == {
        (mechanism, law) for mechanism in ("objective", "output") for law in ("gaussian", "l2_laplace")
    }
    assert offered(name, Logistic())[0][0] == "objective"
    assert set(offered(name, Logistic(), law="l2_laplace")) == {("objective", "l2_laplace"), ("output", "l2_laplace")}
    assert {law for _, law in offered(name, Logistic(), mechanism="output")} == {"gaussian", "l2_laplace"}
    assert {mechanism for mechanism, _ in offered(name, Hinge())} == {"output"}
    assert len(offered(name, Logistic(), mechanism="output", law="gaussian")) == 1, "nothing is left open"


def test_each_is_offered_once_and_of_several_classes_there_are_six() -> None:
    found = offered("release", Softmax(3))
    assert len(found) == len(set(found)) == 6
    assert {mechanism for mechanism, _ in offered("release", Softmax(3, class_weights=(1.0, 0.5, 0.2)))} == {"output"}
    assert {mechanism for mechanism, _ in offered("average", Softmax(3), secure_sum=True)} == {"output"}


@pytest.mark.parametrize("name", ["release", "average", "feature"])
def test_without_a_delta_nothing_that_spends_one_is_offered(name: str) -> None:
    for loss in (Logistic(), Hinge(), *((Softmax(3),) if name != "feature" else ())):
        assert {law for _, law in offered(name, loss, delta=0.0)} == {"l2_laplace"}
