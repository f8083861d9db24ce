"""The key holders of the settings, as the learner talks to them: they sign rosters and open sums."""

from __future__ import annotations

import re
from typing import ClassVar

from parley.common.client.peer import Line, Peer
from parley.common.errors import KeyHolderRefusedError, RefusedError
from parley.common.protocol.receipts import Receipt
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import SignatureError
from parley.common.secure_sum.messages import Opened
from parley.common.wire.key_holder_api import KeyHolderFacts, NewSession, SessionKey

_HEX = re.compile(r"[0-9a-f]{1,4096}")


class KeyHolderClient(Peer):
    """One key holder, over the line to it; ``public_key`` is pinned by the settings.

    All methods raise UnavailableError or KeyHolderRefusedError.
    """

    role: ClassVar[str] = "key_holder"
    refusal: ClassVar[type[RefusedError]] = KeyHolderRefusedError

    def __init__(self, name: str, line: Line, public_key: str, receipt: Receipt | None = None) -> None:
        super().__init__(name, line, receipt, public_key)
        self.public_key = public_key

    async def facts(self) -> KeyHolderFacts:
        """Who it says that it is; refused where it is not the one of the settings."""
        response = await self._send("GET", "/v1/keyholder")  # whose receipt is not checked: to say which key is wrong
        facts = self._parse(KeyHolderFacts, response.content)
        if facts.name != self.name:
            raise self.refuse("wrong-name", f"it calls itself {facts.name}")
        if facts.public_key != self.public_key:
            raise self.refuse("wrong_pin", "its public key is not the one pinned in the settings")
        return facts

    async def begin(self, session: str) -> int:
        """The modulus of a session's Paillier key, of the size that this key holder makes; asked again, the same."""
        facts = await self.facts()
        body = NewSession(session=session, key_bits=facts.key_bits).model_dump_json().encode()
        content, _ = await self._request("POST", "/v1/sessions", body)
        made = self._parse(SessionKey, content)
        if not _HEX.fullmatch(made.modulus) or int(made.modulus, 16).bit_length() != facts.key_bits:
            raise self.refuse("wrong_key_size", f"its key is not one of {facts.key_bits} bits")
        return int(made.modulus, 16)

    async def sign(self, session: str, proposal: Signed) -> bytes:
        """Its signature of a session's roster."""
        return await self._sign(f"/v1/sessions/{session}/roster", proposal, self.public_key)

    async def open(self, session: str, round: int, request: Signed) -> Signed:
        """The sum that a request asks for, as this key holder signed it; the same request gets the same bytes."""
        opened = await self._exchange(f"/v1/sessions/{session}/rounds/{round}", request)
        try:
            opened.verify(Opened.TAG, self.public_key)
        except SignatureError as error:
            raise self.refuse(error.reason, f"its answer cannot be used: {error.detail}") from None
        return opened

    async def end(self, session: str) -> None:
        """Have it destroy a session's key."""
        await self._request("DELETE", f"/v1/sessions/{session}")
