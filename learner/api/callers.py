"""Who asks, beside users: parties and key holders that connect themselves, and whoever is invited."""

from __future__ import annotations

from fastapi import Request

from parley.common.errors import ForbiddenError
from parley.common.service.http.connections import CERTIFIED
from parley.learner.settings import INVITED, PEER


def is_user(caller: str) -> bool:
    """Whether the caller is neither of them."""
    return not caller.startswith((PEER, INVITED))


def peer_of(user: str) -> str:
    """The name of the party or key holder that asks; raises ForbiddenError for a user."""
    if not user.startswith(PEER):
        raise ForbiddenError(f"{user} is a user; this is for parties and key holders", rule="role")
    return user.removeprefix(PEER)


def check_certified(request: Request, name: str) -> None:
    """Raise ForbiddenError unless a certificate for this name was shown on the request's connection."""
    shown = request.scope.get("state", {}).get(CERTIFIED)
    if shown is None or name not in shown():
        raise ForbiddenError(f"a certificate for {name} has to be shown", rule="certificate")


def invited_of(user: str) -> str:
    """The name that whoever asks is invited by; raises ForbiddenError for others."""
    if not user.startswith(INVITED):
        raise ForbiddenError("this takes an invitation", rule="role")
    return user.removeprefix(INVITED)
