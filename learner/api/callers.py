"""Who asks, beside users: parties and key holders that connect themselves, and whoever is invited."""

from __future__ import annotations

from common.errors import ForbiddenError
from learner.settings import INVITED, PEER


def is_user(caller: str) -> bool:
    """Whether the caller is neither of them."""
    return not caller.startswith((PEER, INVITED))


def peer_of(user: str) -> str:
    """The name of the party or key holder that asks; raises ForbiddenError for a user."""
    if not user.startswith(PEER):
        raise ForbiddenError(f"{user} is a user; this is for parties and key holders", rule="role")
    return user.removeprefix(PEER)


def invited_of(user: str) -> str:
    """The name that whoever asks is invited by; raises ForbiddenError for others."""
    if not user.startswith(INVITED):
        raise ForbiddenError("this takes an invitation", rule="role")
    return user.removeprefix(INVITED)
