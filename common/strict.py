"""What is read from outside: one strict base for its models, names for things, and one way to tell its faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""What a study calls a column, a label or itself."""
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""What services and runs are called."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal."""


class Strict(BaseModel):
    """A frozen model that takes no field it does not know and never repeats its input in an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but for what was derived from the fields and kept: that is derived from the copy's anew."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


def faults(error: ValidationError) -> str:
    """What is wrong with an input, each fault with its place: never the input itself.

    >>> class Point(Strict):
    ...     x: int
    >>> try:
    ...     Point.model_validate({"x": "secret", "y": 1})
    ... except ValidationError as error:
    ...     print(faults(error))
    x: Input should be a valid integer, unable to parse string as an integer; y: Extra inputs are not permitted
    """
    found = []
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        if fault["type"] == "default_factory_not_called":  # follows from another fault
            continue
        place, words = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {words}" if place else words)
    return "; ".join(found)
