"""What two operators do to the roster at one time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.common.encoding.key_words import words_of
from parley.common.errors import ConflictError, NotFoundError
from parley.learner.api.membership import InvitationRequest, LiveRoster
from parley.learner.storage.roster_store import JoinedMember, RosterStore

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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Clinic", "clinic is in the settings file: say a name that differs by more than capitals"),
        ("clinic", "clinic is in the settings file already"),
        ("NOTARY", "notary is in the settings file"),
        ("Learner", "learner is the learner itself"),
        ("learner", "learner is the learner itself"),
    ],
)
async def test_nobody_is_invited_by_a_name_that_is_taken_but_for_capitals(tmp_path: Path, name: str, told: str) -> None:
    entries = {"parties": [SimpleNamespace(name="clinic")], "key_holders": [SimpleNamespace(name="notary")]}
    settings = cast("Any", SimpleNamespace(name="learner", joining=True, **entries))
    roster = LiveRoster(settings, UNUSED, UNUSED, {}, UNUSED, RosterStore(tmp_path), {}, dict)
    with pytest.raises(ConflictError, match=told):
        await roster.invite(InvitationRequest(name=name, studies=("s",)))
