"""Who a person is here, from the claims of the person's ID token: a name, a role, and what to show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeGuard, get_args

from parley.common.errors import ForbiddenError
from parley.common.service.tokens import SignedInCaller
from parley.common.strict import PLAIN
from parley.learner.api.sign_in.provider import Claims, refused_token
from parley.learner.settings import SignIn, UserRole

_PREFIX = "oidc:"
"""Before the name of each person: no user of the settings has a colon in its name."""
_LONGEST = 100 - len(_PREFIX)  # what parties take as a user's name
_ROLES: tuple[UserRole, ...] = get_args(UserRole)


def caller_of_claims(claims: Claims, settings: SignIn) -> SignedInCaller:
    """Return the caller that verified claims stand for; raises ForbiddenError that says which claim lets none in."""
    name = _name(claims, settings.name_claim)
    titles: Iterator[object] = (claims.get(claim) for claim in ("name", "preferred_username"))
    title = next((title for title in titles if _is_plain(title)), name)
    return SignedInCaller(_PREFIX + name, _role(claims, settings), title)


def check_ours(claims: Claims, settings: SignIn, nonce: str | None = None) -> None:
    """Raise SignInError unless an ID token answers this request: the nonce is its own, and this client asked.

    PyJWT has verified that this client is among the audience; another may be too, if this one is the authorized party.
    """
    ours = settings.client_id
    if claims.get("azp", ours) != ours or ("azp" not in claims and claims["aud"] not in (ours, [ours])):
        raise refused_token("was asked for by another client")
    if nonce is not None and claims.get("nonce") != nonce:
        raise refused_token("answers another sign-in (its nonce is another)")


def _name(claims: Claims, claim: str) -> str:
    name: object = claims.get(claim)
    if not _is_plain(name) or name != name.strip() or len(name) > _LONGEST:
        raise ForbiddenError(
            f'the claim "{claim}" of your account cannot name a user: the operator has to choose another'
        )
    if claim == "email" and claims.get("email_verified") is not True:
        raise ForbiddenError("the e-mail address of your account is not verified at the identity provider")
    return name


def _role(claims: Claims, settings: SignIn) -> UserRole:
    """Return the highest role that the person's values of the claim give."""
    value: Any = claims
    for part in settings.role_claim:
        value = value.get(part) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    roles = {settings.roles[one] for one in values if isinstance(one, str) and one in settings.roles}
    if not roles:
        path = ".".join(settings.role_claim)
        raise ForbiddenError(
            f'your account has no role here: its claim "{path}" holds none of the values that sign_in.roles lists; ask '
            "the operator",
            rule="role",
        )
    return max(roles, key=_ROLES.index)


def _is_plain(text: object) -> TypeGuard[str]:
    """Whether a claim is a text on one line that can be shown."""
    return isinstance(text, str) and bool(text) and text.isprintable() and re.fullmatch(PLAIN, text) is not None
