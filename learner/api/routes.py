"""Declares the learner's routes, each in one line: method, path and least role.

The service, the client and the commands take methods and paths from here. A new endpoint begins with a line here; an
extension declares its own in the same way. CONTRIBUTING.md says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from parley.common.errors import InvalidInputError
from parley.common.registry import Registry
from parley.common.routes import CONNECT, JOIN, RENEW_CERTIFICATE, SHOW_KEYS, Route

_declared: dict[tuple[str, str], Route] = {}
ROUTES: Mapping[tuple[str, str], Route] = MappingProxyType(_declared)
"""All declared routes, by method and path."""


ENDPOINTS = Registry[Callable[..., None]]("set of endpoints")
"""Functions that add endpoints to those of the learner itself, from the application and its `LearnerService`."""


def declare(route: Route) -> Route:
    """Add a route; raises InvalidInputError if another route has this method and path."""
    if _declared.setdefault(route.place, route) != route:
        raise InvalidInputError(f"there is a route {' '.join(route.place)} already")
    return route


for route in (CONNECT, JOIN, SHOW_KEYS, RENEW_CERTIFICATE):
    declare(route)

SHOW_ROSTER = declare(Route("GET", "/v1/roster", "viewer"))
INVITE = declare(Route("POST", "/v1/invitations", "operator"))
CONFIRM_MEMBER = declare(Route("POST", "/v1/roster/{name}/confirmation", "operator"))
REMOVE_MEMBER = declare(Route("DELETE", "/v1/roster/{name}", "operator"))

SHOW_USER = declare(Route("GET", "/v1/user", "viewer"))
LIST_PARTIES = declare(Route("GET", "/v1/parties", "viewer"))
SHOW_RECEIPT = declare(Route("GET", "/v1/parties/{name}/receipt", "submitter"))
LIST_ALGORITHMS = declare(Route("GET", "/v1/algorithms", "viewer"))
LIST_STUDIES = declare(Route("GET", "/v1/studies", "viewer"))
SHOW_STUDY = declare(Route("GET", "/v1/studies/{study:path}", "viewer"))
LIST_PUBLIC_ROWS = declare(Route("GET", "/v1/public", "viewer"))
UPLOAD_PUBLIC_ROWS = declare(Route("PUT", "/v1/public", "submitter"))
FORECAST = declare(Route("POST", "/v1/forecasts", "viewer"))

SUBMIT = declare(Route("POST", "/v1/runs", "submitter"))
LIST_RUNS = declare(Route("GET", "/v1/runs", "viewer"))
WATCH_ALL = declare(Route("GET", "/v1/events", "viewer"))
SHOW_RUN = declare(Route("GET", "/v1/runs/{run}", "viewer"))
LIST_OPENED = declare(Route("GET", "/v1/runs/{run}/receipts", "viewer"))
WATCH_RUN = declare(Route("GET", "/v1/runs/{run}/events", "viewer"))
CANCEL = declare(Route("POST", "/v1/runs/{run}/cancel", "submitter", owned=True))
RESUME = declare(Route("POST", "/v1/runs/{run}/resume", "submitter", owned=True))
DELETE_RUN = declare(Route("DELETE", "/v1/runs/{run}", "operator"))

SHOW_MODEL = declare(Route("GET", "/v1/runs/{run}/model", "viewer"))
SHOW_CARD = declare(Route("GET", "/v1/runs/{run}/card", "viewer"))
EXPORT_MODEL = declare(Route("GET", "/v1/runs/{run}/export", "viewer"))
SHOW_DESCRIPTION = declare(Route("GET", "/v1/runs/{run}/description", "viewer"))
PREDICT = declare(Route("POST", "/v1/runs/{run}/predictions", "viewer"))
FORECAST_EVALUATION = declare(Route("GET", "/v1/runs/{run}/evaluation", "viewer"))
SET_THRESHOLD = declare(Route("PUT", "/v1/runs/{run}/threshold", "submitter", owned=True))
EVALUATE_RUN = declare(Route("POST", "/v1/runs/{run}/evaluation", "submitter"))
