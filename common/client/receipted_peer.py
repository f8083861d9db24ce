"""Services that keep a chain, as the learner talks to them: each request shows a receipt, each response has a newer."""

from __future__ import annotations

from collections.abc import Sequence

from parley.common.client.peer import Line, Peer
from parley.common.client.receipts import ReceiptKeeper
from parley.common.client.transport import LONGEST_ANSWER
from parley.common.encoding.canonical_json import JSON
from parley.common.errors import LedgerError, RefusedError
from parley.common.protocol.receipts import RECEIPT_HEADER, Binding, Receipt
from parley.common.service.witnessing.messages import HeldReceipts

_RECEIPT = RECEIPT_HEADER.lower().encode()


class ReceiptedPeer(Peer):
    """A service, over the line to it.

    ``receipt`` is the newest that is known of it; ``key`` is its public key, or the one of its first receipt. All
    methods raise UnavailableError or ``refusal``.
    """

    def __init__(self, name: str, line: Line, receipt: Receipt | None = None, key: str | None = None) -> None:
        super().__init__(name, line)
        self.receipts = ReceiptKeeper(name, key, receipt)

    @property
    def receipt(self) -> Receipt | None:
        """The newest receipt that is known."""
        return self.receipts.newest

    async def held(self) -> Sequence[str]:
        """The receipts that it holds of others."""
        return self._parse(HeldReceipts, await self._ask("GET", "/v1/receipts")).receipts

    async def hold(self, texts: Sequence[str]) -> None:
        """Have it hold receipts of others: of each that it has the key of, the newest."""
        await self._ask("PUT", "/v1/receipts", HeldReceipts(receipts=tuple(texts)).model_dump_json().encode())

    async def _ask(  # noqa: PLR0913, PLR0917 -- a request, and what of its response
        self,
        method: str,
        path: str,
        body: bytes = b"",
        media: str = JSON,
        asked: Binding | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> bytes:
        """One request that shows the newest receipt; the body of a response whose receipt goes on from it."""
        return (await self._ask_signed(method, path, body, media, asked, longest))[0]

    async def _ask_signed(  # noqa: PLR0913, PLR0917 -- as above
        self, method: str, path: str, body: bytes, media: str, asked: Binding | None, longest: int = LONGEST_ANSWER
    ) -> tuple[bytes, Receipt]:
        """The same, with the receipt that came with the response."""
        for learnt in tuple(self.receipts.unsettled.values()):
            await self._account_for(learnt)
        shown = self.receipt
        headers = [(RECEIPT_HEADER, shown.text)] if shown else []
        response = await self._request(method, path, body, media, *headers, longest=longest)
        try:
            bound = Binding.of(asked.run, asked.round, asked.query, response.content) if asked else None
            receipt = self.receipts.take(response.header(_RECEIPT), shown, bound)
        except LedgerError as error:
            raise self._distrust(error) from None
        return response.content, receipt

    async def _account_for(self, receipt: Receipt) -> None:
        """Have it say that its ledger holds, or has replaced, what one of its receipts says.

        If that is not so, it refuses from then on, whoever asks.
        """
        response = await self._request("GET", "/v1/receipts", b"", JSON, (RECEIPT_HEADER, receipt.text))
        try:
            self.receipts.settle(response.header(_RECEIPT), receipt)
        except LedgerError as error:
            raise self._distrust(error) from None

    def _distrust(self, error: LedgerError) -> RefusedError:
        """What a receipt that cannot be is, as this peer's refusal."""
        return self.refuse(LedgerError.kind, error.detail)
