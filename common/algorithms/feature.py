"""The feature method: a second level of learning in the span of sites' private models.

Xie's thesis, Algorithm 5, on what Chaudhuri et al. 2011 and Kifer et al. 2012 release
(`parley.common.algorithms._releases`) in round 1. Then, by ``second``:

- ``public``: the learner weighs the models by labelled rows that are no secret. Nobody pays any more.
- ``full``: one party, the ``aggregator``, weighs them by its own rows, and releases the weights under its own budget,
  which it has not touched in round 1.
- ``all``: every site again, by noisy gradients on which the learner descends within the span (`dp_gd`), so that the
  noise of d dimensions is met in N. ``first_part`` of each budget goes to the release.
- ``own``: the owner of the ``aggregator``, as learner (``parley-party learn``), weighs them by its own rows, without
  noise, for its own eyes. Any other learner gets the models, over a number.

Under a secure sum sites add up a stack in which each has a row: the sum shows every release and nothing else. The
thesis's scenario 2, in which the aggregator alone adds noise, is ``mechanism="none"``: it hides nothing of the sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import Regularization, Rounds, Step, algorithm
from parley.common.algorithms._releases import MechanismChoice, Releases, own_indices, those
from parley.common.algorithms._second_level import SECOND, Levels, Public, Second
from parley.common.algorithms._span import Selection, ask_models, collected, labelled, placed, selected, spanned
from parley.common.algorithms.dp_gd import Momentum
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.learning.losses import check_single_score
from parley.common.privacy.events import Event, NoEvent, NonPrivateEvent
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof, applied_after, read_after
from parley.common.protocol.algorithm import Choice, Program, PublicRowsNeeded
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question
from parley.common.strict import Identifier

_SHOWS_THROUGH = "the sites' models are released as they are: their raw minimisers show through, whatever comes after"


@algorithm
class FeatureMethod(Releases):
    """Sites' private models, weighed by a second level."""

    second: Annotated[Second, Field(description="whose rows weigh the sites' models")] = "public"
    second_regularization: Regularization = 0.01
    second_mechanism: MechanismChoice = "objective"
    aggregator: Annotated[Identifier | None, Field(description="the party that weighs (full, own)")] = None
    first_part: Annotated[float, Field(gt=0, lt=1, description="of each budget, for the release (all)")] = 0.5
    select: Selection = "all"
    n_selected: Annotated[int, Field(ge=1, le=100_000, description="how many sites the best are (select = best)")] = 5
    n_rounds: Rounds = 10
    step: Step = 1.0
    momentum: Momentum = 0.0

    @classmethod
    def choose(cls, facts: FederationFacts, given: Mapping[str, Any], most_rounds: int) -> dict[str, Choice]:
        """As for releases, and what the second level chooses."""
        check_single_score(facts.loss)
        chosen = cls.choose_release(cls(**given).level.first_facts(facts), given)
        level = cls(**dict(given) | {name: choice.value for name, choice in chosen.items()}).level
        return chosen | level.choose(facts, given, most_rounds)

    @classmethod
    def for_owner(cls, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """An owner who learns weighs the models by its own rows, unless it says otherwise."""
        return {"second": "own", "aggregator": name} | dict(given)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """The releases; then what the second level asks."""
        check_single_score(facts.loss)
        self.check_sites(facts)
        return ask_models("release", (0,), facts), *self.level.questions(facts)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the models, and have them weighed."""
        rows = labelled(facts.public_rows) if self.public_rows == "labelled" else None
        reveal = ask_models("release", (0,), facts).reveal
        models = collected((yield Query(1, "release", np.zeros(0), reveal)), facts)
        basis = spanned(selected(models, self.select, rows, self.n_selected))
        return (yield from self.level.program(basis, facts, rows))

    def prepare(self, shard: Shard, facts: OwnFacts) -> Levels:
        """What comes before the noise of the release, and the rows for a second level."""
        return Levels(Releases.prepare(self, shard, self.level.first_facts(facts)), shard)

    def local(self, query: Query, prepared: Levels, facts: OwnFacts, noise: Noise) -> IntArray:
        """The release, in its row of the stack where sums alone are seen; or what the second level asks."""
        if query.step != "release":
            return self.level.local(query, prepared.shard, facts, noise)
        return self._in_place(self.release(prepared.first, facts, noise), facts)

    def _in_place(self, released: IntArray, facts: OwnFacts) -> IntArray:
        """Releases (..., d) of those who make one, in their rows where sums alone are seen; zeros of others."""
        part = those(facts, lambda index: self.level.releases(facts, index))
        return placed(released * part[..., None], facts)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """That of a release, 0 of who has none; or the second level's."""
        if query.step != "release":
            return self.level.sensitivity(query, facts)
        part = those(facts, lambda index: self.level.releases(facts, index))
        return np.where(part, self.moved(self.level.first_facts(facts)), 0.0)

    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Of the release, put in its place; or the second level's."""
        if query.step != "release":
            return applied_after(lambda prepared: prepared.shard, self.level.proof(query, facts))
        first = self.level.first_facts(facts)
        proof = applied_after(lambda prepared: prepared.first, self.proof_of_release(first))
        return read_after(
            proof,
            lambda prepared, noise: self.release(prepared.first, facts, noise),
            lambda released: self._in_place(released, facts),
            places_only=True,
        )

    def event(self, round: int, facts: OwnFacts) -> Event:
        """The release's, or the second level's."""
        if round > 1:
            return self.level.event(round, facts)
        releases = self.level.releases(facts, own_indices(facts)[0])
        return self.cost(self.level.first_facts(facts)) if releases else NoEvent()

    def check_noise(self, facts: OwnFacts) -> None:
        """Of each release, and of the second level."""
        Releases.check_noise(self, self.level.first_facts(facts))
        self.level.check_noise(facts)

    def whole_noise(self, round: int) -> bool:
        """But for sums of gradients."""
        return round == 1 or self.second != "all"

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """What is drawn in floating point, and what raw models show."""
        first = self.level.first_facts(facts)
        raw = any(isinstance(site.event, NonPrivateEvent) for site in self.own_sites(first))
        return (*Releases.assumptions(self, first), *((_SHOWS_THROUGH,) if raw else ()))

    @property
    def level(self) -> Public:
        """The second level."""
        return SECOND[self.second](self)

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """Labelled ones, to weigh or to rank by."""
        return "labelled" if self.second == "public" or self.select == "best" else "none"

    @property
    def roles(self) -> bool:
        """An aggregator's is another part than a site's."""
        return bool(self.sites) or self.second in {"full", "own"}
