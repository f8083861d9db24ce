"""The promise a run makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from parley.common.privacy.calibration import Calibration  # which loads scipy, and settings need not

Adjacency = Literal["replace_one", "whole_party"]


Unit = Literal["replace_one", "whole_party", "auxiliary_row"]
"""What a guarantee hides: as an adjacency, or a row of the public rows, which is its owner's and no party's to hide."""
HIDDEN: Mapping[Unit, str] = {
    "replace_one": "one record replaced",
    "whole_party": "all the data of a party replaced",
    "auxiliary_row": "one of the public rows replaced",
}
"""The same in words."""


NEXT_TO_NOTHING = 20
"""Beyond this epsilon (e^20 is half a billion) next to nothing is promised."""

View = Literal["model", "transcript"]


def delta_caution(delta: float, n: int, of: str = "records") -> tuple[str, ...]:
    """That a delta allows to publish some of the ``n`` that it is promised to, where it is above 1/n; else nothing.

    What publishes each with probability delta, and hides nothing else of it, keeps the promise (0, delta), so about
    n delta of them may be seen whole. A caution and no refusal: a mechanism here need not be of that kind.

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
    """What all of several guarantees assume, in the first one's order: so it can be shown once.

    >>> in_common([("a", "b", "c"), ("c", "a")])
    ('a', 'c')
    """
    first, *others = map(tuple, assumptions or [()])
    return tuple(each for each in dict.fromkeys(first) if all(each in other for other in others))


def as_clause(assumption: str) -> str:
    """An assumption so that it can stand by itself.

    >>> as_clause("at most 1 of them collude")
    'at most 1 of the parties collude'
    """
    if assumption == "at most 0 of them collude":
        return "none of the parties collude"
    return assumption.replace(" of them collude", " of the parties collude")


def as_sentence(assumption: str) -> str:
    """An assumption as a sentence of its own.

    >>> as_sentence("how long an answer takes is not hidden")
    'How long an answer takes is not hidden.'
    """
    clause = as_clause(assumption)
    return f"{clause[:1].upper()}{clause[1:]}."


Composition = Literal["filter", "basic"]
"""How the costs of runs count together: see `parley.common.privacy.account`."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised to whom: (epsilon, delta) for this adjacency, view and trust, under the assumptions in words.

    ``view`` is what the adversary sees: ``model`` (the final model alone) or ``transcript`` (all that the learner
    sees). ``trust`` is the number of colluding parties tolerated. ``calibration`` says whose formula set the noise.
    """

    epsilon: float
    delta: float
    view: View
    calibration: Calibration
    adjacency: Unit = "replace_one"
    trust: int = 0
    assumptions: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The guarantee as JSON values; an infinite epsilon is None, which reads "no guarantee"."""
        return asdict(self) | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}

    def assuming(self, *assumptions: str) -> Guarantee:
        """The same guarantee under further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *assumptions))

    def __str__(self) -> str:
        promise = f"({self.epsilon:.3g}, {self.delta:.1g})" if math.isfinite(self.epsilon) else "none"
        colluding = f", against {self.trust} colluding too" if self.trust else ""
        return f"{promise} {self.view} {self.adjacency} [{self.calibration}]{colluding}"
