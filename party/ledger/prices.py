"""A price list as it is attached to what it prices."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from parley.common.errors import LedgerError
from parley.common.privacy.account import Price


def packed_price(price: Price) -> bytes:
    """A price list as an attachment."""
    return json.dumps({column.name: getattr(price, column.name) for column in fields(price)}).encode()


def read_price(content: bytes) -> Price:
    """The price list that `packed_price` packed; raises LedgerError."""
    try:
        columns: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(content).items()
        }
        return Price(**columns)
    except (ValueError, TypeError, AttributeError):
        raise LedgerError("a price list that cannot be read") from None
