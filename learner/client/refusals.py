"""A problem document of the API as the exception that the service raised."""

from __future__ import annotations

import json
from typing import Any

from parley.common import errors as known
from parley.common.errors import ParleyError, SecureSumError

_PREFIX = "urn:parley:problem:"
_TOLD = frozenset({"type", "title", "status", "detail", "self"})  # the last is no name for a fact
_BY_KIND = {
    each.kind: each for each in vars(known).values() if isinstance(each, type) and issubclass(each, ParleyError)
}
"""The exception of each problem type; of one that is not here, `ParleyError`."""


def refusal_of(status: int, content: bytes) -> ParleyError:
    """The exception of an answer that says no success: that of its problem document, if it holds one."""
    document = _document(content)
    return ParleyError(f"HTTP status {status}", problem=None) if document is None else refusal_by(document)


def refusal_by(document: dict[str, Any]) -> ParleyError:
    """The exception of a problem document, with its fields as ``facts``, and itself as ``facts["problem"]``."""
    kind = str(document["type"]).removeprefix(_PREFIX)
    error = _BY_KIND.get(kind, ParleyError)
    facts: dict[str, Any] = {name: fact for name, fact in document.items() if name not in _TOLD}
    if issubclass(error, SecureSumError):
        facts["reason"] = str(facts.get("reason", ""))
    return error(_words(document), **facts | {"problem": document})


def _document(content: bytes) -> dict[str, Any] | None:
    """A problem document; None for what is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not {"type", "detail"} <= found.keys():
        return None
    return found


def _words(document: dict[str, Any]) -> str:
    """What was wrong, and with what of the request."""
    errors = document.get("errors")
    faults = [
        f"{'.'.join(map(str, fault['loc']))} {fault['reason']}"
        for fault in (errors if isinstance(errors, list) else ())
        if isinstance(fault, dict) and isinstance(fault.get("loc"), list) and "reason" in fault
    ]
    return "; ".join([str(document["detail"]), *faults])
