"""Routes of services, each defined once: servers, clients and commands take method and path from here.

The routes of a learner that parties and key holders ask are here; all others are in `parley.learner.api.routes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

from parley.common.errors import InvalidInputError

_Method = Literal["GET", "POST", "PUT", "DELETE"]
LeastRole = Literal["viewer", "submitter", "operator", "peer", "invited"]
_PART = re.compile(r"\{(\w+)(:path)?\}")


@dataclass(frozen=True, slots=True)
class Route:
    """Method, path and the least role that may ask; ``{name}`` stands for a part, ``{name:path}`` for one with slashes.

    A ``peer`` is a party or a key holder, and no user; an ``invited`` caller is neither yet. If ``owned``, a submitter
    may ask about its own runs only, and an operator about all.
    """

    method: _Method
    path: str
    role: LeastRole
    owned: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Method and path as OpenAPI writes them; no two routes share both."""
        return self.method, _PART.sub(r"{\1}", self.path)

    def at(self, query: Mapping[str, object] | None = None, **parts: str) -> str:
        """Return the path with its parts and a query; raises InvalidInputError for a part that is no text.

        >>> Route("GET", "/v1/runs/{run}/model", "viewer").at(run="a/b")
        '/v1/runs/a%2Fb/model'
        """
        for name, value in parts.items():
            if not isinstance(value, str):
                raise InvalidInputError(
                    f"name a {name} by its name or identifier, such as run.id, not by a {type(value).__name__}"
                )
        filled = _PART.sub(lambda part: quote(parts[part[1]], safe="/" if part[2] else ""), self.path)
        return f"{filled}?{urlencode(query)}" if query else filled

    def to(self, query: Mapping[str, object] | None = None, **parts: str) -> tuple[_Method, str]:
        """Return the method, and the path that `at` returns."""
        return self.method, self.at(query, **parts)


CONNECT = Route("GET", "/v1/connections", "peer")
JOIN = Route("POST", "/v1/roster", "invited")
SHOW_KEYS = Route("GET", "/v1/roster/keys", "peer")
RENEW_CERTIFICATE = Route("POST", "/v1/roster/certificate", "peer")
