"""What is read from outside: strict bases for its models, names for things, and one way to tell its faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints, ValidationError

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""What something is called, such as a value of a category."""
PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""Text on one line: nothing that moves a cursor or turns the order of what is read."""
OneLine = Annotated[str, StringConstraints(pattern=PLAIN)]
"""Text for people, as `PLAIN` has it."""
PlainName = Annotated[OneLine, StringConstraints(min_length=1, max_length=200)]
"""What a study calls a column, a label or itself, in lines that owners read before they approve."""
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""What services and runs are called."""
TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""How settings write a bearer token's hash."""
PublicKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""How settings write an Ed25519 public key."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal."""

PlainText = Annotated[OneLine, StringConstraints(max_length=2000), Field(exclude_if=lambda words: words == "")]
"""One line of plain text. None is not told, so that a study which says nothing has the digest of one that was never
asked."""

_NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_MOST_FAULTS, _MOST_TOLD = 1000, 50
_NUMBERS = frozenset({"int", "float", "bool"})
_LISTS = frozenset({"list", "tuple", "set", "frozenset"})


def _make_strict(schema: object) -> None:
    """Make every number in a core schema strict, and every list end at its first fault, in place.

    To tell the faults of a million items takes seconds, and a gigabyte.
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
    """A frozen model that takes no field it does not know and never repeats its input in an error.

    Its numbers may be text, as those of environment variables are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but for what was derived from the fields and kept: that is derived from the copy's anew."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class Strict(Setting):
    """A model of JSON, whose numbers are numbers: neither text nor true is one, and 1.0 is no integer; 1 is real.

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
        """Pydantic's schema, made strict; all of it strict in pydantic's way would take no list for a tuple."""
        schema = handler(source)
        _make_strict(schema)
        return schema


def faults(error: ValidationError) -> str:
    """What is wrong with an input, each fault with its place, of many the first: never the input itself.

    >>> class Point(Strict):
    ...     x: int
    >>> try:
    ...     Point.model_validate({"x": "secret", "y": 1})
    ... except ValidationError as error:
    ...     print(faults(error))
    x: Input should be a valid integer; y: Extra inputs are not permitted
    """
    if error.error_count() > _MOST_FAULTS:  # to tell a million takes a gigabyte
        return f"{error.error_count():,} faults: it is something else, or damaged"
    found, all_faults = [], error.errors(include_input=False, include_url=False, include_context=False)
    within = {fault["loc"][:depth] for fault in all_faults for depth in range(1, len(fault["loc"]))}
    for fault in all_faults:
        follows = fault["type"] == "too_short" and fault["loc"] in within  # of a list whose first faulty item ends it
        if follows or fault["type"] == "default_factory_not_called":
            continue
        place, words = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {words}" if place else words)
    more = [f"and {len(found) - _MOST_TOLD:,} faults more"] if len(found) > _MOST_TOLD else []
    return "; ".join([*found[:_MOST_TOLD], *more])


def one_line(words: str) -> str:
    r"""What another service says, as `PLAIN` has it: ``?`` for what is not plain, or half a character.

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


def spelt_address(host: str, port: int) -> str:
    """A host and a port as a URL has them.

    >>> spelt_address("127.0.0.1", 8100), spelt_address("::1", 8100)
    ('127.0.0.1:8100', '[::1]:8100')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
