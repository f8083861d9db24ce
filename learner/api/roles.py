"""Who may do what: each route's least role, in one table, checked before any route does anything.

Who asks, beside users: parties and key holders that connect themselves, and whoever is invited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute

from parley.common.errors import ForbiddenError
from parley.common.service.application import caller
from parley.common.service.http.connections import CERTIFIED
from parley.learner.settings import INVITED, PEER, UserEntry, UserRole
from parley.learner.storage.run_store import RunStore


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


_ROLES: tuple[UserRole, ...] = get_args(UserRole)

LEAST_ROLES: Mapping[tuple[str, str], UserRole | Literal["peer", "invited"]] = {
    ("GET", "/v1/connections"): "peer",
    ("GET", "/v1/roster"): "viewer",
    ("POST", "/v1/roster"): "invited",
    ("DELETE", "/v1/roster/{name}"): "operator",
    ("POST", "/v1/roster/{name}/confirmation"): "operator",
    ("GET", "/v1/roster/keys"): "peer",
    ("POST", "/v1/roster/certificate"): "peer",
    ("POST", "/v1/invitations"): "operator",
    ("GET", "/v1/user"): "viewer",
    ("GET", "/v1/parties"): "viewer",
    ("GET", "/v1/parties/{name}/receipt"): "submitter",
    ("GET", "/v1/algorithms"): "viewer",
    ("GET", "/v1/studies"): "viewer",
    ("GET", "/v1/studies/{study}"): "viewer",
    ("GET", "/v1/public"): "viewer",
    ("PUT", "/v1/public"): "submitter",
    ("POST", "/v1/forecasts"): "viewer",
    ("POST", "/v1/runs"): "submitter",
    ("GET", "/v1/events"): "viewer",
    ("GET", "/v1/runs"): "viewer",
    ("GET", "/v1/runs/{run}"): "viewer",
    ("GET", "/v1/runs/{run}/receipts"): "viewer",
    ("GET", "/v1/runs/{run}/events"): "viewer",
    ("GET", "/v1/runs/{run}/model"): "viewer",
    ("GET", "/v1/runs/{run}/card"): "viewer",
    ("GET", "/v1/runs/{run}/description"): "viewer",
    ("POST", "/v1/runs/{run}/predictions"): "viewer",
    ("GET", "/v1/runs/{run}/evaluation"): "viewer",
    ("POST", "/v1/runs/{run}/evaluation"): "submitter",
    ("POST", "/v1/runs/{run}/cancel"): "submitter",
    ("POST", "/v1/runs/{run}/resume"): "submitter",
}
"""The least role that may use a route, by its method and path. Of a run that is another user's, see `CHANGES`.

A ``peer`` is a party or a key holder, and no user; who is ``invited`` is neither yet.
"""

CHANGES = frozenset({("POST", "/v1/runs/{run}/cancel"), ("POST", "/v1/runs/{run}/resume")})
"""The routes that change a run: a submitter may use them on its own runs, an operator on all."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of the users, by name, and the store that knows whose each run is."""

    roles: Mapping[str, UserRole]
    store: RunStore

    @classmethod
    def of(cls, users: Sequence[UserEntry], store: RunStore) -> Roles:
        """The roles that the settings give."""
        return cls({user.name: user.role for user in users}, store)

    def role(self, user: str) -> UserRole:
        """What a user may do; until a restart, one whose token was added while the service runs may look."""
        return self.roles.get(user, "viewer")

    async def check(self, request: Request) -> None:
        """Raise ForbiddenError where the user's role is too low for the route; NotFoundError for an unknown run."""
        place = (request.method, request.scope["route"].path_format)
        user, least = caller(request), LEAST_ROLES[place]
        if least == "peer":
            peer_of(user)
            return
        if least == "invited":
            invited_of(user)
            return
        if not is_user(user):
            raise ForbiddenError("a party or a key holder may join and connect, and nothing else", rule="role")
        role = self.role(user)
        if not _reaches(role, least):
            raise ForbiddenError(f"{user} is a {role}; this takes a {least}", rule="role")
        if place not in CHANGES or role == "operator":
            return
        run = await asyncio.to_thread(self.store.run, request.path_params["run"])
        if run.user != user:
            raise ForbiddenError(f"{user} is a {role}; another user's run takes an operator", rule="role")


def check_every_route(app: FastAPI) -> None:
    """Raise LookupError that names the routes without a least role, before anybody asks for one."""
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith("/v1/")]
    if (
        missing := {(method, route.path_format) for route in routes for method in route.methods or ()}
        - LEAST_ROLES.keys()
    ):
        raise LookupError(f"no least role for {sorted(missing)}")


def _reaches(role: UserRole, least: UserRole) -> bool:
    """Whether a role may do all that the least one may."""
    return _ROLES.index(role) >= _ROLES.index(least)
