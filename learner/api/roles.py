"""Checks who may do what: each route is declared with its least role, which is checked before the route does anything.

Callers are users, parties and key holders that connect themselves, and owners that are invited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute

from parley.common.errors import ForbiddenError
from parley.common.service.application import caller_of
from parley.common.service.http.connections import CERTIFIED
from parley.common.service.tokens import AnyCaller, InvitedCaller, NamedCaller, PeerCaller, SignedInCaller
from parley.learner.api.routes import ROUTES
from parley.learner.settings import UserEntry, UserRole
from parley.learner.storage.run_store import RunStore


def peer_name(request: Request) -> str:
    """Return the name of the party or key holder that asks; raises ForbiddenError for other callers."""
    match caller_of(request):
        case PeerCaller(name):
            return name
        case other:
            raise ForbiddenError(f"{other} is a user; this is for parties and key holders", rule="role")


def check_certified(request: Request, name: str) -> None:
    """Raise ForbiddenError unless a certificate for this name was shown on the request's connection."""
    certified = request.scope.get("state", {}).get(CERTIFIED)
    if certified is None or name not in certified():
        raise ForbiddenError(f"a certificate for {name} has to be shown", rule="certificate")


def invited_name(request: Request) -> str:
    """Return the name by which the caller is invited; raises ForbiddenError for other callers."""
    match caller_of(request):
        case InvitedCaller(name):
            return name
        case _:
            raise ForbiddenError("this takes an invitation", rule="role")


def user_name(request: Request) -> str:
    """Return the name of the user that asks; raises ForbiddenError for other callers."""
    match caller_of(request):
        case NamedCaller(name) | SignedInCaller(name):
            return name
        case _:
            raise ForbiddenError("a party or a key holder may join and connect, and nothing else", rule="role")


_ROLES: tuple[UserRole, ...] = get_args(UserRole)


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of the users, by name, and the store, which has the user of each run."""

    roles: Mapping[str, UserRole]
    store: RunStore

    @classmethod
    def of(cls, users: Sequence[UserEntry], store: RunStore) -> Roles:
        """Return the roles that the settings give their users."""
        return cls({user.name: user.role for user in users}, store)

    def role(self, caller: AnyCaller) -> UserRole:
        """Return a user's role; a user whose token was added while the service runs is a viewer until a restart."""
        if isinstance(caller, SignedInCaller):
            return cast("UserRole", caller.role)
        return self.roles.get(caller.name, "viewer")

    async def check(self, request: Request) -> None:
        """Raise ForbiddenError if the caller's role is too low for the route, NotFoundError for an unknown run."""
        route = ROUTES[request.method, request.scope["route"].path_format]
        least = route.role
        if least == "peer":
            peer_name(request)
            return
        if least == "invited":
            invited_name(request)
            return
        user = user_name(request)
        role = self.role(caller_of(request))
        if not _reaches(role, least):
            raise ForbiddenError(f"{user} is a {role}; this takes a {least}", rule="role")
        if route.owned:
            await self.check_owner(request)

    async def check_owner(self, request: Request) -> None:
        """Raise ForbiddenError unless the run in the path is the caller's, or the caller is an operator."""
        user, role = user_name(request), self.role(caller_of(request))
        if role == "operator":
            return
        run = await asyncio.to_thread(self.store.run, request.path_params["run"])
        if run.user != user:
            raise ForbiddenError(f"{user} is a {role}; another user's run takes an operator", rule="role")


def check_every_route(app: FastAPI) -> None:
    """Raise LookupError that names routes that are not declared, and so have no least role."""
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith("/v1/")]
    if missing := {(method, route.path_format) for route in routes for method in route.methods or ()} - ROUTES.keys():
        raise LookupError(f"no least role for {sorted(missing)}")


def _reaches(role: UserRole, least: UserRole) -> bool:
    """Say whether a role may do all that the least one may."""
    return _ROLES.index(role) >= _ROLES.index(least)
