"""The terms of a run as its roster and its queries spell them: learner and party each derive them from the RunSpec.

The learner drafts a roster with `draft_roster`; a party drafts it again from the specification that it approved and
joins only if nothing differs (`check_roster`). So everyone who signs a roster signs the noise, the quorum and the
parties that their own code derives from the run, and no claim of the learner about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass

from parley.common.encoding.canonical_json import canonical
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import sha256_hex
from parley.common.secure_sum.errors import Reason, RosterError, RoundError
from parley.common.secure_sum.messages import MAX_TEXT, SESSION_BYTES, Roster, RosterKeyHolder, RosterParty, SumQuery


def session_of(run: str, spec: RunSpec) -> str:
    """Return the session of a run, in hexadecimal: 16 bytes of SHA-256 over the run's name and specification."""
    return sha256_hex(canonical([run, spec.digest]))[: 2 * SESSION_BYTES]


def noise_text(algorithm: Algorithm, facts: OwnFacts, round: int) -> str:
    """Return the event of one party's answer in a round, as text; ``facts`` are that party's.

    Numbers have nine digits, so that two machines whose last bits differ spell the same.

    >>> from parley.common.privacy.events import GaussianEvent
    >>> _spell(GaussianEvent(mu=1 / 3))
    'GaussianEvent(mu=0.333333333)'
    """
    hidden = algorithm.adjacency_of(facts.unit)
    text = _spell(algorithm.event(round, facts)) + ("" if hidden == "replace_one" else f" {hidden}")
    return text if len(text) <= MAX_TEXT else sha256_hex(text.encode())


def _spell(part: object) -> str:
    """Spell an event, with all its parts, as text."""
    if isinstance(part, int | float) and not isinstance(part, bool):
        return f"{part:.9g}"
    if isinstance(part, tuple):
        return f"[{', '.join(map(_spell, part))}]"
    if not is_dataclass(part):
        return str(part)
    spelt = ", ".join(f"{item.name}={_spell(getattr(part, item.name))}" for item in fields(part))
    return f"{type(part).__name__}({spelt})"


def answer_width(algorithm: Algorithm, facts: FederationFacts) -> int:
    """Return how many integers an answer of a secure sum has: those of the widest round; zeros fill up the others."""
    return max(question.answer for question in algorithm.questions(facts))


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """The terms of a round in a query, beside the question: clip norm, and noise of the first party's answer."""

    clip: float
    noise: str

    def check(self, query: SumQuery) -> None:
        """Raise RoundError(wrong_terms) unless the query has the same terms."""
        for name, term in asdict(self).items():
            if getattr(query, name) != term:
                raise RoundError(f"the query's {name} is not the run's", reason=Reason.WRONG_TERMS)


def round_terms(algorithm: Algorithm, facts: FederationFacts, round: int) -> RoundTerms:
    """Return the terms of a round; a query has room for one noise, and every party can derive the first one's."""
    return RoundTerms(algorithm.clip_norm, noise_text(algorithm, facts.of(0), round))


def draft_roster(  # noqa: PLR0913 -- values that are not in a specification, by name
    run: str,
    spec: RunSpec,
    *,
    key_bits: int,
    learner: str,
    party_keys: Mapping[str, str],
    key_holders: Sequence[RosterKeyHolder],
) -> Roster:
    """Draft the roster of a run. ``learner`` and ``party_keys``, by name, are Ed25519 public keys in hexadecimal.

    Raises MessageError if the specification has more parties than a sum holds, or a key is invalid.
    """
    algorithm, facts = spec.build(), spec.facts()
    return Roster(
        session=session_of(run, spec),
        d=answer_width(algorithm, facts),
        key_bits=key_bits,
        minimum_contributors=spec.minimum_contributors,
        colluders=spec.colluders,
        learner=learner,
        parties=tuple(
            RosterParty(name, party_keys[name], noise_text(algorithm, facts.of(index), round=1))
            for index, name in enumerate(spec.names)
        ),
        key_holders=tuple(key_holders),
    )


def check_roster(roster: Roster, run: str, spec: RunSpec) -> None:
    """Raise RosterError(wrong_terms), naming what differs, unless the roster is the one of this run."""
    if tuple(party.name for party in roster.parties) != spec.names:
        raise RosterError("the roster's parties are not the approved run's", reason=Reason.WRONG_TERMS)
    expected = draft_roster(
        run,
        spec,
        key_bits=roster.key_bits,
        learner=roster.learner,
        party_keys={party.name: party.key for party in roster.parties},
        key_holders=roster.key_holders,
    )
    for item in fields(Roster):
        if getattr(roster, item.name) != getattr(expected, item.name):
            raise RosterError(f"the roster's {item.name} is not the approved run's", reason=Reason.WRONG_TERMS)
