"""Plans what a run will cost and promise, once, before any party is asked to approve it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from parley.common.encoding.texts import so_many
from parley.common.errors import VersionError
from parley.common.privacy.account import MICRO
from parley.common.privacy.guarantee import View
from parley.common.runs.pricing import guarantees, schedule
from parley.common.runs.specification import RunSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """The price of a run and its promise.

    ``epsilon_after`` gives for each party, by name, the epsilon it has spent after each of the run's rounds, (rounds,);
    ``guarantees`` are those of `parley.common.runs.pricing.guarantees`, as JSON.
    """

    rounds: int
    epsilon_after: Mapping[str, tuple[float, ...]]
    guarantees: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, spec: RunSpec, views: Mapping[str, View]) -> Self:
        """Make the plan of a run; ``views`` says for each party, by name, what an adversary sees by its policy.

        This takes seconds for noise without a closed form. Raises BudgetExhaustedError for a run without noise.
        """
        algorithm, facts = spec.build(), spec.facts()
        algorithm.check_noise(facts.everyone)
        spent: dict[tuple[object, ...], tuple[float, ...]] = {}
        epsilon_after = {}
        for index, member in enumerate(spec.parties):
            role = index if algorithm.roles else None
            kind = (member.n_examples, member.budget, role, view := views[member.name])
            if kind not in spent:
                costs = schedule(algorithm, facts.of(index), view)
                spent[kind] = tuple(total / MICRO for total in accumulate(cost.epsilon for cost in costs))
            epsilon_after[member.name] = spent[kind]
        promised = tuple(guarantee.to_json() for guarantee in guarantees(algorithm, facts))
        return cls(len(spec.questions()), epsilon_after, promised)

    def check(self, spec: RunSpec) -> None:
        """Raise VersionError if an earlier version planned the run, whose algorithm asked in other rounds."""
        if (rounds := len(spec.questions())) != self.rounds:
            raise VersionError(
                f"an earlier version of Parley began this run: {spec.algorithm} asked in "
                f"{so_many(self.rounds, 'round')} then, and does in {rounds} now; ask for it again"
            )

    def to_json(self) -> str:
        """Return the plan as JSON. Each schedule is written once, because most parties of a large run share one."""
        places = {after: place for place, after in enumerate(dict.fromkeys(self.epsilon_after.values()))}
        schedule_of = {name: places[after] for name, after in self.epsilon_after.items()}
        written = {"rounds": self.rounds, "schedules": list(places), "schedule_of": schedule_of}
        return json.dumps(written | {"guarantees": self.guarantees})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the plan that `to_json` wrote; the first versions wrote each party's schedule in full."""
        fields = json.loads(text)
        if (in_full := fields.get("epsilon_after")) is not None:
            epsilon_after = {name: tuple(after) for name, after in in_full.items()}
        else:
            schedules = [tuple(after) for after in fields["schedules"]]
            epsilon_after = {name: schedules[place] for name, place in fields["schedule_of"].items()}
        return cls(fields["rounds"], epsilon_after, tuple(fields["guarantees"]))
