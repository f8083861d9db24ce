"""Strict bases for models that are read from outside, names of things, and one way to describe their faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, HttpUrl, StringConstraints, ValidationError

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""The name of something, such as a value of a category."""
PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""Text on one line, without characters that move a cursor or change the direction of reading."""
OneLine = Annotated[str, StringConstraints(pattern=PLAIN)]
"""Text for people, as `PLAIN` allows it."""
PlainName = Annotated[OneLine, StringConstraints(min_length=1, max_length=200)]
"""The name of a study, a column or a label, in lines that owners read before they approve."""
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""The name of a service or a run."""
TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""The form of a bearer token's hash in settings."""
PublicKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""The form of an Ed25519 public key in settings."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal."""

PlainText = Annotated[OneLine, StringConstraints(max_length=2000), Field(exclude_if=lambda words: words == "")]
"""One line of plain text.

An empty one is left out, so that a study without it has the digest of one from before the field existed.
"""

_NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_MOST_FAULTS, _MOST_SHOWN = 1000, 50
_NUMBERS = frozenset({"int", "float", "bool"})
_LISTS = frozenset({"list", "tuple", "set", "frozenset"})


def _make_strict(schema: object) -> None:
    """Make every number in a core schema strict, and every list end at its first fault, in place.

    Describing the faults of a million items takes seconds, and a gigabyte.
    """
    if isinstance(schema, dict):
        if schema.get("type") in _NUMBERS:
            schema["strict"] = True
        if schema.get("type") in _LISTS:
            schema["fail_fast"] = True
        for key, part in schema.items():
            if key not in {"metadata", "default"}:
                _make_strict(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _make_strict(part)


class Setting(BaseModel):
    """A frozen model that refuses unknown fields and never repeats its input in an error.

    Its numbers may be text, as those of environment variables are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, without cached values: the copy derives its own from its fields."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class Strict(Setting):
    """A model of JSON with strict numbers: neither text nor true is one, and 1.0 is no integer; 1 is real.

    >>> class Price(Strict):
    ...     epsilon: float
    >>> Price.model_validate({"epsilon": 1})
    Price(epsilon=1.0)
    >>> try:
    ...     Price.model_validate({"epsilon": "1"})
    ... except ValidationError as error:
    ...     print(faults(error))
    epsilon: Input should be a valid number
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> Any:  # noqa: ANN401
        """Return pydantic's schema, made strict; pydantic's own strict mode would accept no list for a tuple."""
        schema = handler(source)
        _make_strict(schema)
        return schema


def faults(error: ValidationError) -> str:
    """Describe what is wrong with an input, each fault with its place, the first of many: never the input itself.

    >>> class Point(Strict):
    ...     x: int
    >>> try:
    ...     Point.model_validate({"x": "secret", "y": 1})
    ... except ValidationError as error:
    ...     print(faults(error))
    x: Input should be a valid integer; y: Extra inputs are not permitted
    """
    if error.error_count() > _MOST_FAULTS:  # describing a million takes a gigabyte
        return f"{error.error_count():,} faults: it is something else, or damaged"
    descriptions, all_faults = [], error.errors(include_input=False, include_url=False, include_context=False)
    within = {fault["loc"][:depth] for fault in all_faults for depth in range(1, len(fault["loc"]))}
    for fault in all_faults:
        follows = fault["type"] == "too_short" and fault["loc"] in within  # of a list whose first faulty item ends it
        if follows or fault["type"] == "default_factory_not_called":
            continue
        place, words = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
        descriptions.append(f"{place}: {words}" if place else words)
    more = [f"and {len(descriptions) - _MOST_SHOWN:,} faults more"] if len(descriptions) > _MOST_SHOWN else []
    return "; ".join([*descriptions[:_MOST_SHOWN], *more])


def one_line(words: str) -> str:
    r"""Return another service's words as `PLAIN` allows: ``?`` for characters that are not plain, or half of one.

    >>> one_line("no\n\x1b[31m\ud800")
    'no??[31m?'
    """
    return _NOT_PLAIN.sub("?", words)


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's alone.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(host: str) -> bool:
    """Whether a host is an address, not a name.

    >>> is_address("10.0.0.5"), is_address("[2001:db8::1]"), is_address("learner.example.org")
    (True, True, False)
    """
    try:
        ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def is_protected(url: str) -> bool:
    """Whether what goes to a URL is encrypted, or stays on this machine.

    >>> is_protected("https://login.hospital.example"), is_protected("http://127.0.0.1:9000/x")
    (True, True)
    >>> is_protected("http://login.hospital.example"), is_protected("javascript:1"), is_protected("https://[")
    (False, False, False)
    """
    try:
        parsed = HttpUrl(url)
    except ValidationError:
        return False
    return parsed.scheme == "https" or is_loopback(parsed.host or "")


def spelt_address(host: str, port: int) -> str:
    """Return a host and a port as in a URL.

    >>> spelt_address("127.0.0.1", 8100), spelt_address("::1", 8100)
    ('127.0.0.1:8100', '[::1]:8100')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
