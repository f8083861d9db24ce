"""A real identity provider in this process: idpyoidc's, which is certified for OpenID Connect, served over HTTP.

It asks for a password, wants PKCE, gives refresh tokens, revokes them, and tells clients of logouts. A test may have it
answer with other ID tokens (`forge`), change its keys, lock people out, or stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptojwt.key_jar import build_keyjar
from fastapi import FastAPI
from idpyoidc.message.oauth2 import ResponseMessage
from idpyoidc.message.oidc import AccessTokenRequest, AuthorizationRequest
from idpyoidc.server import Server
from idpyoidc.server.configure import OPConfiguration
from idpyoidc.server.user_authn.user import UserAuthnMethod, create_signed_jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from parley.learner.api.sign_in.sessions import BrowserSessions
from tests.support.processes import free_port, serving

CLIENT, SECRET, PASSWORD = "parley", "a-secret of the client: 7 + 5 %", "a-password"
KEYS = [{"type": "RSA", "use": ["sig"]}, {"type": "EC", "crv": "P-256", "use": ["sig"]}]
PEOPLE: dict[str, dict[str, Any]] = {
    "ada": {"name": "Ada Lovelace", "preferred_username": "ada", "roles": ["staff", "parley-operators"]},
    "sam": {"name": "Sam Scholar", "preferred_username": "sam", "roles": ["staff"], "email": "sam@hospital.example"},
    "eve": {"name": "Eve", "preferred_username": "eve", "roles": ["visitors"]},
}
_FORM = """<!doctype html><title>Hospital</title><form method="post" action="/verify"><h1>Hospital</h1>
<input type="hidden" name="token" value="{token}"><input name="username" id="username">
<input name="password" id="password" type="password"><button>Log in</button></form>"""


class PasswordForm(UserAuthnMethod):  # type: ignore[misc]  # idpyoidc has no types
    """A form that asks for name and password, as idpyoidc's own does, and takes the password of this module."""

    def __call__(self, **kwargs: object) -> str:
        context = self.upstream_get("context")
        token = create_signed_jwt(context.issuer, self.upstream_get("attribute", "keyjar"), **kwargs)
        return _FORM.format(token=escape(token))


@dataclass
class IdentityProvider:
    """A provider at ``url`` that a test may have misbehave."""

    url: str
    server: Any
    clients: dict[str, Any]
    people: dict[str, dict[str, Any]]
    forge: Callable[[str], str | None] | None = None
    """Makes another ID token of each that is given; None leaves it out."""
    paths: list[str] = field(default_factory=list)
    """What has been asked for."""
    broken: dict[str, Response] = field(default_factory=dict)
    """Answers by path, instead of the provider's own."""

    def rotate(self) -> None:
        """Sign with new keys from now on; the old ones are not published any more."""
        fresh = build_keyjar(KEYS, issuer_id=self.url).export_jwks(private=True, issuer_id=self.url)
        for issuer in ("", self.url):
            self.server.keyjar._issuers.pop(issuer, None)
            self.server.keyjar.import_jwks(fresh, issuer)

    def revoke_all(self) -> None:
        """Lock everybody out: no token that was given counts any more."""
        for grant in self._grants():
            for token in grant.issued_token:
                token.revoke()

    def log_out_everywhere(self) -> None:
        """End every session, and tell its client so, as the provider's own logout does."""
        session = self.server.get_endpoint("session")
        for grant in self._grants():
            for token in [token for token in grant.issued_token if token.token_class == "id_token"][-1:]:
                session.do_verified_logout(sid=token.session_id)

    def _grants(self) -> list[Any]:
        return [node for node in self.server.context.session_manager.db.values() if hasattr(node, "issued_token")]

    def application(self) -> Starlette:
        """Return the provider as a web application."""
        places = {
            "/.well-known/openid-configuration": "provider_config",
            "/authorization": "authorization",
            "/token": "token",
            "/revocation": "token_revocation",
            "/session": "session",
        }

        def place(name: str) -> Callable[[Request], Any]:
            async def answer(request: Request) -> Response:
                self.paths.append(request.url.path)
                return self.broken.get(request.url.path) or await self._answer(name, request)

            return answer

        async def keys(request: Request) -> Response:
            self.paths.append(request.url.path)
            return self.broken.get(request.url.path) or JSONResponse(self.server.keyjar.export_jwks(issuer_id=self.url))

        async def verify(request: Request) -> Response:
            return self._verify({name: values[0] for name, values in parse_qs((await request.body()).decode()).items()})

        routes = [Route(path, place(name), methods=["GET", "POST"]) for path, name in places.items()]
        return Starlette(routes=[*routes, Route("/jwks", keys), Route("/verify", verify, methods=["POST"])])

    async def _answer(self, name: str, request: Request) -> Response:
        endpoint = self.server.get_endpoint(name)
        http = {
            "headers": dict(request.headers),
            "method": request.method,
            "url": str(request.url),
            "cookie": [{"name": key, "value": value} for key, value in request.cookies.items()],
        }
        body = (await request.body()).decode()
        given = (
            body if request.method == "POST" and name in {"token", "token_revocation"} else dict(request.query_params)
        )
        asked = endpoint.parse_request(given, http_info=http)
        if isinstance(asked, ResponseMessage) and "error" in asked:
            return Response(asked.to_json(), 400, media_type="application/json")
        if name in {"token", "token_revocation"}:
            asked["client_id"] = CLIENT  # idpyoidc forgets who has shown its secret in a header
        if name == "token":
            done = endpoint.process_request(AccessTokenRequest(**asked), http_info=http, issue_refresh=True)
        else:
            done = endpoint.process_request(asked, http_info=http)
        if "http_response" in done:
            return HTMLResponse(done["http_response"])
        if "redirect_location" in done:
            return RedirectResponse(done["redirect_location"], 303)
        if name == "token" and self.forge is not None and "id_token" in done.get("response_args", {}):
            forged = self.forge(done["response_args"].pop("id_token"))
            done["response_args"] |= {} if forged is None else {"id_token": forged}
        return self._respond(endpoint, asked, done)

    def _verify(self, form: dict[str, str]) -> Response:
        """Take name and password, and send the browser back with a code."""
        if form.get("username") not in self.people or form.get("password") != PASSWORD:
            return HTMLResponse("no", 403)
        method = self.server.context.authn_broker.db["password"]["method"]
        begun = method.unpack_token(form["token"])
        asked = AuthorizationRequest().from_urlencoded(begun["query"])
        endpoint = self.server.get_endpoint("authorization")
        session = endpoint.create_session(asked, form["username"], begun["authn_class_ref"], begun["iat"], method)
        return self._respond(endpoint, asked, endpoint.authz_part2(request=asked, session_id=session))

    @staticmethod
    def _respond(endpoint: Any, asked: Any, done: Any) -> Response:  # noqa: ANN401 -- idpyoidc has no types
        info = endpoint.do_response(request=asked, **done)
        if (info.get("response_placement") or endpoint.response_placement) == "body":
            status = 400 if "error" in done else 200
            return Response(info["response"], status, media_type="application/json")
        response = RedirectResponse(info["response"], 303)
        for cookie in info.get("cookie", ()):
            response.set_cookie(cookie["name"], cookie["value"])
        return response


def _configuration(url: str, people: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the provider's settings: code with PKCE, refresh tokens that change, revocation, logout."""
    where = "idpyoidc.server."
    clients = {"client_authn_method": ["client_secret_basic", "client_secret_post", "none"]}
    minting = ["access_token", "refresh_token", "id_token"]
    rules = {
        "authorization_code": {"supports_minting": minting, "max_usage": 1, "expires_in": 120},
        "access_token": {"expires_in": 600},
        "refresh_token": {"supports_minting": minting, "expires_in": 3600},
    }
    endpoints = {
        "provider_config": (".well-known/openid-configuration", "oidc.provider_config.ProviderConfiguration", {}),
        "authorization": ("authorization", "oidc.authorization.Authorization", {"response_types_supported": ["code"]}),
        "token": ("token", "oidc.token.Token", clients | {"revoke_refresh_on_issue": True}),
        "token_revocation": ("revocation", "oauth2.token_revocation.TokenRevocation", clients),
        "session": (
            "session",
            "oidc.session.Session",
            {"logout_verify_url": f"{url}/verify_logout", "signing_alg": "ES256"},
        ),
    }
    secrets = {"password": "a-password-of-the-provider", "salt": "its-salt"}
    claims = dict.fromkeys(("name", "preferred_username", "roles", "email"))
    jwts = {"class": f"{where}token.jwt_token.JWTToken", "kwargs": {"lifetime": 600}}
    return {
        "issuer": url,
        "httpc_params": {"timeout": 5},
        "key_conf": {"key_defs": KEYS, "uri_path": "jwks"},
        "endpoint": {
            name: {"path": path, "class": where + place, "kwargs": kwargs}
            for name, (path, place, kwargs) in endpoints.items()
        },
        "authz": {
            "class": f"{where}authz.AuthzHandling",
            "kwargs": {"grant_config": {"usage_rules": rules, "expires_in": 36000}},
        },
        "authentication": {
            "password": {"acr": "password", "class": PasswordForm, "kwargs": {}},
        },
        "userinfo": {"class": f"{where}user_info.UserInfo", "kwargs": {"db": people}},
        "add_on": {
            "pkce": {
                "function": f"{where}oauth2.add_on.pkce.add_support",
                "kwargs": {"essential": True, "code_challenge_method": "S256"},
            }
        },
        "token_handler_args": {
            "code": {"kwargs": {"lifetime": 600, "crypt_conf": {"kwargs": secrets}}},
            "token": jwts,
            "refresh": jwts,
            "id_token": {"class": f"{where}token.id_token.IDToken", "kwargs": {"base_claims": claims}},
        },
        "session_params": {"encrypter": {"kwargs": secrets}},
    }


@contextmanager
def identity_provider(learner: str) -> Iterator[IdentityProvider]:
    """A provider that serves the page of a learner, in a thread of this process."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = Server(OPConfiguration(_configuration(url, deepcopy(PEOPLE))), cwd=str(Path(__file__).parent))
    server.context.cdb[CLIENT] = {
        "client_id": CLIENT,
        "client_secret": SECRET,
        "redirect_uris": [(f"{learner}/sign-in/callback", {})],
        "post_logout_redirect_uri": (f"{learner}/", ""),
        "backchannel_logout_uri": f"{learner}/sign-in/ended",
        "response_types_supported": ["code"],
        "allowed_scopes": ["openid", "profile"],
        "token_endpoint_auth_method": "client_secret_basic",
        "add_claims": {"always": {"id_token": ["name", "preferred_username", "roles", "email"]}},
    }
    provider = IdentityProvider(url, server, server.context.cdb, server.context.userinfo.db)
    with serving(provider.application(), port):
        yield provider


def sessions_of(app: FastAPI) -> BrowserSessions:
    """The sessions of a learner to which people sign in."""
    sessions: BrowserSessions = app.state.tokens.sessions.__self__
    return sessions
