"""What services hand on of each other's receipts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from parley.common.strict import Strict

MOST_RECEIPTS = 1000
LONGEST_RECEIPT = 2048


class HeldReceipts(Strict):
    """Receipts of services, as they signed them."""

    receipts: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=LONGEST_RECEIPT)], ...],
        Field(max_length=MOST_RECEIPTS, description="each as it stood in a header Parley-Receipt"),
    ]
