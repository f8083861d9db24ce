"""A chain whose keeper signs its head into receipts, and knows an old copy of it by those that it is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.common.errors import LedgerError
from parley.common.protocol.receipts import Binding, Receipt, read_receipt, verify_receipt, write_receipt
from parley.common.storage.chain import Apply, Chain
from parley.common.storage.sqlite import Schema

if TYPE_CHECKING:
    from parley.common.secure_sum.session import Identity

Replaced = Callable[[Receipt], bool]
"""Whether what a receipt of another chain of the same keeper says is accounted for in this one."""


class SignedChain(Chain):
    """A chain that ``identity`` keeps; ``way_out`` says in words what to do about an old copy."""

    def __init__(self, stem: Path, schema: Schema, apply: Apply, identity: Identity, way_out: str) -> None:
        """Read the chain, as `Chain` does."""
        self._identity = identity
        self._way_out = way_out
        self._written: Receipt | None = None
        super().__init__(stem, schema, apply)

    def receipt(
        self, to: str, shown: Receipt | None, answer: Binding | None = None, totals: dict[str, Any] | None = None
    ) -> str:
        """A receipt of the chain as it stands, for whom it is ``shown`` to; see `Receipt`."""
        written = write_receipt(
            self._identity.signing_key,
            signer=self._identity.name,
            ledger=self.origin,
            head=self.head,
            to=to,
            shown=None if shown is None else shown.head,
            answer=answer,
            totals=totals,
        )
        self._written = written  # what it is shown next, most likely
        return written.text

    def check_receipt(self, text: str, replaced: Replaced) -> Receipt:
        """A receipt whose history this chain contains, or has replaced.

        Raises InvalidReceiptError for a text that is no receipt, or that the keeper did not sign. Raises LedgerError
        for any other receipt of the keeper: the chain is an old copy, and refuses everybody from now on.
        """
        newest = self._written
        if newest and newest.text == text:  # as in most requests: it needs no second look at its signature
            return newest
        receipt = read_receipt(text)
        is_replaced = replaced(receipt)  # then it may be by an earlier key
        verify_receipt(text, self._identity.name, receipt.key if is_replaced else self._identity.key)
        if is_replaced or self._contains(receipt):
            return receipt
        self.look()
        if self._contains(receipt):  # as another process has written it
            return receipt
        self.forbid(receipt.head)
        raise LedgerError(
            f"a receipt shows that this {self.name} had {receipt.head.count} entries, and it does not hold them: it is "
            f"an old copy. {self._way_out}"
        )

    def _contains(self, receipt: Receipt) -> bool:
        return receipt.ledger == self.origin and self.holds(receipt.head)
