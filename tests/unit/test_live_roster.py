"""What two operators do to the roster at one time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from common.encoding.key_words import words_of
from common.errors import NotFoundError
from learner.api.membership import LiveRoster
from learner.storage.roster_store import JoinedMember, RosterStore

KEY = "0b" * 32
UNUSED = cast("Any", None)


async def test_a_member_that_is_removed_while_it_is_confirmed_stays_away(tmp_path: Path) -> None:
    store, now = RosterStore(tmp_path), datetime.now(UTC)
    token = f"sha256:{'0' * 64}"
    store.keep(
        JoinedMember(
            name="clinic", role="party", public_key=KEY, connects_with=token, token="t" * 43, joined=now,
            confirmed=False, studies=("s",), secret_hash=token, expires=now,
        )
    )  # fmt: skip
    roster = LiveRoster(UNUSED, UNUSED, UNUSED, {}, UNUSED, store, {}, dict)
    async with roster.lock:  # as the removal holds it
        confirming = asyncio.create_task(roster.confirm("clinic", " ".join(words_of(KEY))))
        await asyncio.sleep(0)
        store.remove("clinic")
    with pytest.raises(NotFoundError, match="nobody has joined as clinic"):
        await confirming
    assert RosterStore(tmp_path).members == store.members == {}
