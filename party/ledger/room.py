"""How much room the next answer of a party may need on its disk."""

from __future__ import annotations

from contextlib import suppress

from parley.common.errors import ParleyError
from parley.common.runs.costs import lengths
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Roster
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import Ledger

_Key = tuple[int, int | None]
"""The entries of a ledger that say how long a run's answers are: of its approval, and of its secure sum's roster."""


class AnswerRoom:
    """Bytes that the largest answer takes of all that a ledger's open runs may still ask for; a run is read once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sizes: dict[_Key, int] = {}

    def needed(self) -> int:
        """The bytes, with the one-time noise that is kept beside an answer, which is as long."""
        sizes = self._sizes
        keys = [(book.number, book.joined) for (learner, _), book in self._ledger.books.unended() if learner != OWNER]
        self._sizes = {key: sizes[key] if key in sizes else self._size(*key) for key in keys}
        return 2 * max(self._sizes.values(), default=0)

    def _size(self, approved: int, joined: int | None) -> int:
        """The length of a run's longest answer; 0 of one that cannot be read any more, and so not answered."""
        with suppress(ParleyError, ValueError):
            if joined is not None:
                roster = Roster.parse(Signed.from_bytes(self._ledger.attachment(joined, "invitation")).body)
                return len(roster.key_holders) * roster.layout.blob_bytes
            spec = RunSpec.model_validate_json(self._ledger.attachment(approved, "spec"))
            return lengths(spec.questions())[1]
        return 0
