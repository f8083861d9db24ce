"""A key holder's settings: whom it serves, and the secret that seals its keys."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from parley.common.client.endpoints import LearnerAddress
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS
from parley.common.secure_sum.paillier import MAX_KEY_BITS, MIN_KEY_BITS
from parley.common.secure_sum.session import Identity
from parley.common.service.settings import Limits, ServiceSettings
from parley.common.service.tokens import Caller
from parley.common.strict import Identifier, PublicKey


class PinnedLearner(Caller):
    """A learner that may have sums opened."""

    name: Annotated[Identifier, Field(description="name under which its sessions are kept")]
    public_key: Annotated[
        PublicKey, Field(description="its Ed25519 key, as `parley-learner identity` prints it: no other is believed")
    ]


class KeyHolderSettings(ServiceSettings):
    """The settings file of a key holder, ``keyholder.toml``; the environment's prefix is ``PARLEY_KEYHOLDER_``."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_KEYHOLDER_")

    secret: Annotated[
        SecretStr,
        Field(min_length=16, description="what the keys on disk are encrypted under; best given as secret_file"),
    ]
    learners: Annotated[tuple[PinnedLearner, ...], Field(min_length=1, description="the learners that it serves")]
    outbound: Annotated[
        tuple[LearnerAddress, ...],
        Field(description="learners to whom this service opens its connections itself, so that nobody has to reach it"),
    ] = ()
    key_bits: Annotated[
        int, Field(ge=MIN_KEY_BITS, le=MAX_KEY_BITS, multiple_of=8, description="size of the Paillier keys it makes")
    ] = DEFAULT_KEY_BITS
    idle_days: Annotated[
        float,
        Field(gt=0, le=3650, description="days without a new round after which a session ends, its key destroyed"),
    ] = 30.0
    max_sessions_per_day: Annotated[
        int,
        Field(
            ge=1, description="most sessions that one learner may begin in a day, by UTC: each takes up disk for ever"
        ),
    ] = 1000
    limits: Annotated[Limits, Field(description="what one request may ask for; a sum of many parties is long")] = (
        Limits(body_bytes=2**26)
    )

    @model_validator(mode="after")
    def _keys_distinct(self) -> Self:
        if len({learner.public_key for learner in self.learners}) != len(self.learners):
            raise ValueError("learners: two share a public_key")
        return self

    @cached_property
    def identity(self) -> Identity:
        """The key holder's name and signing key. Raises OwnKeyError, see `signing_key`."""
        return Identity(self.name, self.signing_key())

    @property
    def certificates(self) -> tuple[Path, ...]:
        """The certificate files of this service, and for learners that it connects to."""
        return (*super().certificates, *(address.certificate for address in self.outbound if address.certificate))

    @property
    def pins(self) -> dict[str, str]:
        """The learners' public keys by their names."""
        return {learner.name: learner.public_key for learner in self.learners}
