"""Asks key holders to sign rosters and to open sums."""

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
    """Asks one key holder over a line; its ``public_key`` is pinned by the settings or was compared when it joined.

    All methods raise UnavailableError if it cannot be reached, KeyHolderRefusedError if it refuses or answers wrongly.
    """

    role: ClassVar[str] = "key_holder"
    refusal: ClassVar[type[RefusedError]] = KeyHolderRefusedError

    def __init__(self, name: str, line: Line, public_key: str, receipt: Receipt | None = None) -> None:
        super().__init__(name, line, receipt, public_key)
        self.public_key = public_key

    async def facts(self) -> KeyHolderFacts:
        """Ask for its facts; raises KeyHolderRefusedError if it does not have the expected name and key."""
        response = await self._send("GET", "/v1/keyholder")  # its receipt is not checked, so that a wrong key is named
        facts = self._parse(KeyHolderFacts, response.content)
        if facts.name != self.name:
            raise self.refuse("wrong-name", f"it calls itself {facts.name}")
        if facts.public_key != self.public_key:
            raise self.refuse("wrong_pin", "its public key is not the one pinned in the settings")
        return facts

    async def begin(self, session: str) -> int:
        """Have it make a session's Paillier key, and return the modulus; a repeated request gets the same one."""
        facts = await self.facts()
        body = NewSession(session=session, key_bits=facts.key_bits).model_dump_json().encode()
        content, _ = await self._request("POST", "/v1/sessions", body)
        made = self._parse(SessionKey, content)
        if not _HEX.fullmatch(made.modulus) or int(made.modulus, 16).bit_length() != facts.key_bits:
            raise self.refuse("wrong_key_size", f"its key is not one of {facts.key_bits} bits")
        return int(made.modulus, 16)

    async def sign(self, session: str, proposal: Signed) -> bytes:
        """Have it sign a session's roster, and return the signature."""
        return await self._sign(f"/v1/sessions/{session}/roster", proposal, self.public_key)

    async def open(self, session: str, round: int, request: Signed) -> Signed:
        """Have it open the sum of a ``request``. Returns its signed answer; the same request gets the same bytes."""
        opened = await self._exchange(f"/v1/sessions/{session}/rounds/{round}", request)
        try:
            opened.verify(Opened.TAG, self.public_key)
        except SignatureError as error:
            raise self.refuse(error.reason, f"its answer cannot be used: {error.detail}") from None
        return opened

    async def end(self, session: str) -> None:
        """Have it destroy the session's key."""
        await self._request("DELETE", f"/v1/sessions/{session}")
