"""Which parties hold a study: by what they say of themselves now, and of those that are away by what they said last.

A party that is away, and never said what it holds, may hold any study that it was not invited without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parley.common.client.approval import facts_about
from parley.common.client.party import PartyClient
from parley.common.client.peer import ask_all
from parley.common.data.study import Study
from parley.common.encoding.texts import first_names
from parley.common.errors import InvalidInputError, ParleyError
from parley.common.runs.specification import CHANGED_STUDY
from parley.common.wire.party_api import PartyFacts, StudyFacts
from parley.learner.storage.known_parties import KnownParties

ANSWER_SECONDS = 1.0
"""How long parties may take to answer before a run is asked for: those that do not are away."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What parties say, by name: ``facts`` of those that answer ``now``, and what others said ``earlier``.

    ``silent`` has the errors of those that do not answer; ``joined`` the studies that members have joined for.
    """

    now: Mapping[str, PartyFacts]
    silent: Mapping[str, ParleyError]
    earlier: Mapping[str, PartyFacts]
    joined: Mapping[str, Collection[str]]

    def holds(self, name: str, study: Study) -> bool | None:
        """Say whether a party holds a study; None if that is not known, or if it says it by another name."""
        if (said := self.now.get(name) or self.earlier.get(name)) is not None:
            return said.about(study.digest) is not None if said.name == name else None
        return study.name in self.joined[name] if name in self.joined else None

    def holders(self, names: Iterable[str], study: Study) -> tuple[str, ...]:
        """Return those of the parties that hold a study, and those that are away and may hold it.

        Raises InvalidInputError, which says who could be invited, if there is none.
        """
        names = tuple(names)
        self._check_unchanged(names, study)
        holders = tuple(name for name in names if self.holds(name, study) is not False)
        if names and not holders:
            raise InvalidInputError(
                f"no party holds {study.name} yet: invite owners of such rows, new ones or of those that hold other "
                f"studies here ({first_names(names)}): parley-learner invite NAME --study {study.name}"
            )
        return holders

    def check_held(self, names: Iterable[str], study: Study, roster: Iterable[str]) -> None:
        """Raise InvalidInputError for named parties that do not hold a study; it names those of the roster that do."""
        if not (wrong := [name for name in names if self.holds(name, study) is False]):
            return
        self._check_unchanged(wrong, study)
        holders = [name for name in roster if self.holds(name, study)]
        held = f"it is held by {first_names(holders)}" if holders else "nobody holds it yet"
        raise InvalidInputError(
            f"parties: {first_names(wrong)} {'does' if len(wrong) == 1 else 'do'} not hold {study.name}; {held}; to "
            f"have an owner hold it: parley-learner invite {wrong[0]} --study {study.name}",
            parties=wrong,
            holders=holders,
        )

    def _check_unchanged(self, names: Iterable[str], study: Study) -> None:
        """Raise InvalidInputError if all of the parties that know a study by its name hold another one by that name."""
        said = {name: self.now.get(name) or self.earlier.get(name) for name in names}
        known = [name for name, facts in said.items() if facts and any(h.study == study.name for h in facts.studies)]
        if known and not any(self.holds(name, study) for name in known):
            raise InvalidInputError(CHANGED_STUDY.format(f"the study {study.name!r} of {first_names(known)}"))

    def about(self, name: str, study: Study) -> StudyFacts | ParleyError:
        """Return what a party says, or said last, about a study; or why it does not."""
        if (said := self.now.get(name) or self.earlier.get(name)) is None:
            return self.silent[name]
        try:
            return facts_about(study, name, said)
        except ParleyError as error:
            return error


def remembered(known: KnownParties, joined: Mapping[str, Collection[str]]) -> Heard:
    """Return what is known of parties that were not asked."""
    return Heard({}, {}, known.facts, joined)


async def hear(
    parties: Sequence[PartyClient], known: KnownParties, joined: Mapping[str, Collection[str]], seconds: float
) -> Heard:
    """Ask parties, once and for at most so many seconds, what they say of themselves; what they say is kept."""
    outcomes = await ask_all(parties, PartyClient.facts, seconds, once=True)
    now: dict[str, PartyFacts] = {}
    silent: dict[str, ParleyError] = {}
    for party, outcome in zip(parties, outcomes, strict=True):
        if isinstance(outcome, ParleyError):
            silent[party.name] = outcome
        else:
            now[party.name] = outcome
    earlier = known.facts
    await asyncio.to_thread(known.note, now)
    return Heard(now, silent, earlier, joined)
