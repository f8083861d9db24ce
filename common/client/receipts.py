"""What the learner holds against a party whose ledger was set back: the newest receipt that the party signed.

A receipt names how many entries the party's ledger had. The party alone can check its signature; the learner keeps it,
and presents it with the next proposal. A restored old ledger does not contain that entry, and the party refuses.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

HEADER = "Parley-Receipt"
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Receipt:
    """A party's receipt as it was sent (``text``), with the number of ledger entries that it vouches for."""

    party: str
    count: int
    text: str


def read_receipt(party: str, text: str | None) -> Receipt | None:
    """The receipt of a response's header; None where there is none that can be read.

    >>> read_receipt("hospital-a", base64.b64encode(b'{"count": 7}').decode()).count
    7
    >>> read_receipt("hospital-a", "not a receipt") is None
    True
    """
    if text is None or len(text) > _LONGEST:
        return None
    try:
        fields = json.loads(base64.b64decode(text, validate=True))
    except ValueError:
        return None
    count = fields.get("count") if isinstance(fields, dict) else None
    return Receipt(party, count, text) if isinstance(count, int) else None
