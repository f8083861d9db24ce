"""What whoever signs a roster answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from parley.common.strict import Strict


class Signature(Strict):
    """A signature of a roster."""

    signature: Annotated[str, Field(description="Ed25519, hexadecimal")]
