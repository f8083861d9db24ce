"""The promise that a run makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from parley.common.privacy.calibration import Calibration  # which loads scipy, and settings need not

Adjacency = Literal["replace_one", "person", "whole_party"]
"""What two neighbouring data sets differ in: one record, all rows of one person with one owner, or all of an owner's.

`hides` says which of them hides which.
"""
Unit = Adjacency | Literal["auxiliary_row"]
"""What a guarantee hides: an adjacency, or one of the public rows, which is its owner's and no party's to hide."""
HIDDEN: Mapping[Unit, str] = {
    "replace_one": "one record replaced",
    "person": "all rows of one person, with one owner, replaced",
    "whole_party": "all the data of a party replaced",
    "auxiliary_row": "one of the public rows replaced",
}
"""What each unit hides, in words."""
UNIT_NAMES: Mapping[Unit, str] = {
    "replace_one": "record",
    "person": "person",
    "whole_party": "party",
    "auxiliary_row": "public row",
}
"""The one word for each unit, on pages and cards, in refusals and certificates."""
EXAMPLE_NAMES: Mapping[Unit, str] = {"replace_one": "rows", "person": "persons"}
"""What a run's examples are that hides so much, as words about sizes call them."""

_OF_EXAMPLES: Mapping[Unit, str] = {"replace_one": "one record", "person": "all rows of one person"}


def hidden_at(unit: Unit, overlap: int) -> str:
    """Return what a promise hides of those who are with up to so many of a run's owners, in words.

    >>> hidden_at("person", 1), hidden_at("person", 3)
    ('all rows of one person, with one owner, replaced', 'all rows of one person, with up to 3 owners, replaced')
    """
    if overlap == 1 or unit not in _OF_EXAMPLES:
        return HIDDEN[unit]
    return f"{_OF_EXAMPLES[unit]}, with up to {overlap} owners, replaced"


def hides(stronger: Adjacency, weaker: Adjacency, overlap: int = 1) -> bool:
    """Return whether what hides the one also hides the other, of the same epsilon and delta.

    All rows of a person hide each of them. All that an owner holds hides each record, and a person only if nobody has
    rows with two owners: with ``overlap`` s, a person is s owners' data.

    >>> hides("person", "replace_one"), hides("replace_one", "person"), hides("whole_party", "person", overlap=2)
    (True, False, False)
    """
    if weaker in {stronger, "replace_one"}:
        return True
    return stronger == "whole_party" and overlap == 1


def weakest(adjacencies: Iterable[Adjacency]) -> Adjacency:
    """Return what all of these hide, with one owner, which is the least of them; ``whole_party`` of none.

    >>> weakest(["whole_party", "person"]), weakest(["person", "replace_one"]), weakest([])
    ('person', 'replace_one', 'whole_party')
    """
    least: Adjacency = "whole_party"
    for adjacency in adjacencies:
        least = adjacency if hides(least, adjacency) else least
    return least


NEXT_TO_NOTHING = 20
"""An epsilon beyond which almost nothing is promised: e^20 is half a billion."""

View = Literal["model", "transcript"]


def no_less(figure: float, digits: int = 3) -> str:
    """Return a bound in few digits, rounded up: what is printed promises no more than what is proven.

    A billionth is let go, so that what arithmetic left of 0.3 reads 0.3.

    >>> no_less(1.4e-5, 1), no_less(2.001), no_less(0.1 + 0.2), no_less(0.0), no_less(math.inf)
    ('2e-05', '2.01', '0.3', '0', 'inf')
    """
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(upwards.create_decimal_from_float(figure * (1 - 1e-9))):.{digits}g}"


def odds_factor(epsilon: float) -> str:
    """Return in words by how much an answer may change the odds of any conclusion.

    >>> odds_factor(1.0), odds_factor(40.0)
    ('a factor of 2.72 (e to the 1)', 'a factor of e to the 40')
    """
    power = f"e to the {no_less(epsilon)}"
    if epsilon > NEXT_TO_NOTHING:
        return f"a factor of {power}"
    return f"a factor of {no_less(math.exp(epsilon))} ({power})"


def delta_caution(delta: float, n: int, of: str = "records") -> tuple[str, ...]:
    """Return a warning if a delta is above 1/n, which allows publishing some of the ``n`` that it is promised to.

    A mechanism that publishes each with probability delta, and reveals nothing else, keeps the promise (0, delta), so
    about n delta of them may be seen in full. It is a warning and no refusal, as a mechanism here need not be of that
    kind.

    >>> delta_caution(1e-5, 1000)
    ()
    >>> delta_caution(0.5, 1000)[0].partition(": ")[0]
    'a delta of 0.5 is above 1/1,000, and the promise is to 1,000 records'
    """
    if delta * n <= 1:
        return ()
    words = (
        f"a delta of {delta:g} is above 1/{n:,}, and the promise is to {n:,} {of}: it allows that about "
        f"{min(delta, 1) * n:,.0f} of them are published whole; take one far below {1 / n:.2g}"
    )
    return (words,)


def in_common(assumptions: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assumptions that all of several guarantees share, in the first one's order, to show them once.

    >>> in_common([("a", "b", "c"), ("c", "a")])
    ('a', 'c')
    """
    first, *others = map(tuple, assumptions or [()])
    return tuple(assumption for assumption in dict.fromkeys(first) if all(assumption in other for other in others))


def as_clause(assumption: str) -> str:
    """Return an assumption as a clause that can stand by itself.

    >>> as_clause("at most 1 of them collude")
    'at most 1 of the parties collude'
    """
    if assumption == "at most 0 of them collude":
        return "none of the parties collude"
    return assumption.replace(" of them collude", " of the parties collude")


def as_sentence(assumption: str) -> str:
    """Return an assumption as a sentence.

    >>> as_sentence("how long an answer takes is not hidden")
    'How long an answer takes is not hidden.'
    """
    clause = as_clause(assumption)
    return f"{clause[:1].upper()}{clause[1:]}."


Composition = Literal["filter", "basic"]
"""How the costs of runs count together: see `parley.common.privacy.account`."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A promise: (epsilon, delta) for an adjacency, view and trust, under assumptions in words.

    ``view`` is what the adversary sees: ``model`` (the final model alone) or ``transcript`` (all that the learner
    sees). ``trust`` is the number of colluding parties tolerated. ``calibration`` says whose formula set the noise.
    ``owners`` is with how many of them the same person, or record, may be: the promise is about all their answers.
    """

    epsilon: float
    delta: float
    view: View
    calibration: Calibration
    adjacency: Unit = "replace_one"
    trust: int = 0
    assumptions: tuple[str, ...] = ()
    owners: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as JSON values, without one owner alone; an infinite epsilon is None: "no guarantee"."""
        fields = asdict(self) | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}
        return fields if self.owners > 1 else {name: value for name, value in fields.items() if name != "owners"}

    def assuming(self, *assumptions: str) -> Guarantee:
        """Return the same guarantee under further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *assumptions))

    def __str__(self) -> str:
        promise = f"({no_less(self.epsilon)}, {no_less(self.delta, 2)})" if math.isfinite(self.epsilon) else "none"
        colluding = f", against {self.trust} colluding too" if self.trust else ""
        return f"{promise} {self.view} {self.adjacency} [{self.calibration}]{colluding}"
