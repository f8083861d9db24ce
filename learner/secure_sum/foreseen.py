"""What a secure sum would begin with, as all say who would take part in it, before anybody is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.common.errors import ForbiddenError
from parley.common.secure_sum.packing import Layout, too_long

if TYPE_CHECKING:
    from parley.common.runs.consent import Objection
    from parley.common.wire.party_api import PartyFacts, PinnedKeys


@dataclass(frozen=True, slots=True)
class ForeseenSum:
    """The public keys that a secure sum would have, by name, and what parties pin, of those that say so.

    ``bits`` are those of the key holders' smallest Paillier key, None where none is known; ``longest`` is by name the
    longest request that each reads. ``hindrances`` say why key holders would not open sums now.
    """

    learner: str
    key_holders: Mapping[str, str]
    parties: Mapping[str, str]
    pins: Mapping[str, PinnedKeys]
    bits: int | None
    longest: Mapping[str, int]
    hindrances: tuple[str, ...]

    def hindrances_of(self, width: int, parties: int) -> tuple[str, ...]:
        """Why key holders would not open sums of answers of so many numbers."""
        if self.bits is None:
            return self.hindrances
        layout = Layout(width, self.bits)
        reasons = {name: too_long(layout, parties, most) for name, most in self.longest.items()}
        return (*self.hindrances, *(f"{name}: {reason}" for name, reason in reasons.items() if reason))

    def objections(self, facts: PartyFacts) -> Iterator[Objection]:
        """What the party whose facts these are would object to the keys."""
        if (pins := self.pins.get(facts.name)) is None:
            return
        try:
            policy = pins.policy(facts)
        except ForbiddenError as error:
            yield "secure_sum", error.detail
            return
        for reason in policy.wrong_pins(self.learner, self.key_holders, self.parties):
            yield "secure_sum", reason
        for reason in policy.small_keys(self.bits) if self.bits else ():
            yield "minimum_key_bits", reason
