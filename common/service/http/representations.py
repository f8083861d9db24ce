"""How an answer is represented (RFC 9110): its media type, whether the caller has it already, and its compression.

**Media types.** Accept says what a caller takes. If it excludes all that a route gives, the answer is 406, before the
route does anything.

**Caches.** The answers of a route that is marked `revalidated` have an entity tag: if the caller shows it, the answer
is 304 without a body. They are ``private, no-cache``: a cache of the caller's own may store them, and asks before each
use. It asks also about what never changes, because a token may have been withdrawn, a run deleted, or a newer version
may write more. All other answers are ``no-store`` (`parley.common.service.application`). Tags are weak, since the same
answer may be sent compressed.

**Compression.** The length of a compressed answer depends on its content, and anyone on the network sees the length. So
only routes that are marked `compressible` compress, and none may be marked whose answers have:

- a secret, beside text that others write: the attack BREACH guesses a secret by lengths. Answers with invitations and
  certificates are sent as they are, and no answer repeats its caller's token.
- anything that a party or key holder says of its owner's rows. All that the learner knows of rows is what parties
  released with noise. A function of that, such as a length, is post-processing, and covered by the same promise.
- events, which a compressor would hold back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.common.errors import NotAcceptableError

_F = TypeVar("_F", bound=Callable[..., Any])
_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)
_NO_BODY = frozenset({"content-length", "content-type"})
_LONG_BYTES, _LEVEL = 2**10, 4
"""Shorter answers are not compressed. A higher level takes twice as long for weights, and saves a twentieth of them."""


def revalidated(endpoint: _F) -> _F:
    """Mark a route's function: its answers have an entity tag, of the bytes unless it sets one itself."""
    endpoint.is_revalidated = True  # type: ignore[attr-defined]
    return endpoint


def compressible(endpoint: _F) -> _F:
    """Mark a route's function: long answers are compressed for callers that accept it. See above which ones may be."""
    endpoint.is_compressible = True  # type: ignore[attr-defined]
    return endpoint


def choose(accepted: str, offered: Sequence[str]) -> str | None:
    """Return what a header such as Accept prefers of the ``offered``, None if it excludes all.

    Of equals it is the one that the header names most precisely, then the first. An empty header takes any.

    >>> choose("text/html, application/*;q=0.5", ["application/x-npy", "application/json"])
    'application/x-npy'
    >>> choose("application/json, */*", ["application/x-npy", "application/json"])
    'application/json'
    >>> choose("text/html, application/json;q=0", ["application/json"])
    """
    if accepted.strip() in {"", "*/*"}:
        return offered[0]
    qualities = dict(map(_quality, accepted.lower().split(",")))
    best = max(offered, key=lambda name: _worth(qualities, name))  # the first of equals
    return best if _worth(qualities, best)[0] > 0 else None


def _quality(part: str) -> tuple[str, float]:
    """Return a part of a header such as Accept: a name, and its quality from 0 to 1; other parameters do not count."""
    name, *parameters = part.split(";")
    return name.strip(), next((float(match[1]) for text in parameters if (match := _QUALITY.fullmatch(text))), 1.0)


def _worth(qualities: dict[str, float], name: str) -> tuple[float, int]:
    """Return the quality of a name, by the most precise part of the header that covers it, and how precise that is."""
    covers = name, f"{name.partition('/')[0]}/*", "*/*", "*"
    return next(((qualities[cover], len(covers) - i) for i, cover in enumerate(covers) if cover in qualities), (0.0, 0))


def accepted_by(request: Request, offered: Sequence[str]) -> str:
    """Return the media type that a request prefers of the ``offered``; raises NotAcceptableError for none of them."""
    chosen = choose(",".join(request.headers.getlist("accept")), offered)
    if chosen is None:
        raise NotAcceptableError(f"Accept excludes all that is given here: {', '.join(offered)}", offered=offered)
    return chosen


def tag_of(content: bytes) -> str:
    """Return the entity tag of some content."""
    return f'W/"{sha256(content).hexdigest()[:32]}"'


def tagged(request: Request, response: Response) -> Response:
    """Return a response with its tag, by default that of its body; 304 without a body if the caller shows the tag."""
    response.headers.setdefault("Cache-Control", "private, no-cache")
    if "etag" not in response.headers:
        response.headers["ETag"] = tag_of(bytes(response.body))
    held_tags = {
        tag.strip().removeprefix("W/") for tag in ",".join(request.headers.getlist("if-none-match")).split(",")
    }
    if held_tags.isdisjoint({"*", response.headers["etag"].removeprefix("W/")}):
        return response
    headers = {name: value for name, value in response.headers.items() if name not in _NO_BODY}
    return Response(status_code=304, headers=headers)


@dataclass(frozen=True, slots=True)
class Compressed:
    """A route that compresses long answers for callers that prefer gzip to none: Starlette's ignores qualities."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        accepted = ",".join(Headers(scope=scope).getlist("accept-encoding"))
        is_wanted = bool(accepted) and choose(accepted, ("gzip", "identity")) == "gzip"
        responder = partial(GZipResponder, compresslevel=_LEVEL) if is_wanted else IdentityResponder
        await responder(self.app, _LONG_BYTES)(scope, receive, send)
