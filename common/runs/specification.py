"""What goes over the wire: the run's specification that every party approves by its hash, and the answers about it.

Arrays travel as ``.npy`` bodies (media type ``application/x-npy``: float64 queries, int64 answers in units of 2^-32),
or as JSON lists for whoever asks by hand.
"""

from __future__ import annotations

import io
import math
import re
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, model_validator

from common.algorithms import build_algorithm
from common.data.study import Name, Strict, Study
from common.encoding.canonical_json import canonical, digest
from common.encoding.fixed_point import MAX_EXAMPLES
from common.errors import InvalidInputError
from common.privacy.accountant import View
from common.privacy.calibration import check_epsilon_delta
from common.protocol.algorithm import Algorithm, FederationFacts
from common.secure_sum.messages import SESSION_BYTES
from common.secure_sum.packing import MAX_CONTRIBUTORS

NPY = "application/x-npy"
"""The media type of an array."""

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
SecureSumKind = Literal["none", "paillier"]
_LEAST_IN_A_SUM = 2
SessionId = Annotated[
    str, Field(pattern=f"^[0-9a-f]{{{2 * SESSION_BYTES}}}$", description="128 bits, lower-case hexadecimal")
]


class Budget(Strict):
    """An (epsilon, delta) that one run may cost a party."""

    epsilon: float
    delta: float

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        try:
            check_epsilon_delta(self.epsilon, self.delta)
        except InvalidInputError as error:
            raise ValueError(error.detail) from None
        return self


class Member(Strict):
    """A party of a run: its name, the public size of its shard, and what the run may cost it."""

    name: Identifier
    n_examples: Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
    budget: Budget


class RunSpec(Strict):
    """All that a run is, public: what the learner proposes and every party approves, named by its hash.

    ``answer_every`` is r: a party that misses r rounds in a row is dropped. Above 1, rounds are asynchronous.
    """

    study: Study
    algorithm: Name
    parameters: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    parties: Annotated[tuple[Member, ...], Field(min_length=1, max_length=100_000)]
    minimum_contributors: Annotated[int, Field(ge=1)]
    colluders: Annotated[int, Field(ge=0)] = 0
    secure_sum: SecureSumKind = "none"
    answer_every: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _parties_distinct(self) -> Self:
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError("a party is named twice")
        return self

    @model_validator(mode="after")
    def _sums_hide(self) -> Self:
        if self.secure_sum == "none":
            return self
        if self.minimum_contributors < _LEAST_IN_A_SUM:
            raise ValueError(f"a secure sum hides nothing below minimum_contributors = {_LEAST_IN_A_SUM}")
        if len(self.parties) > MAX_CONTRIBUTORS:
            raise ValueError(f"a secure sum has at most {MAX_CONTRIBUTORS} parties")
        return self

    @model_validator(mode="after")
    def _parameters_have_a_spelling(self) -> Self:
        try:
            canonical(self.parameters)
        except ValueError:
            raise ValueError("parameters must be JSON: finite numbers and valid text") from None
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The parties' names in order."""
        return tuple(member.name for member in self.parties)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the name under which parties approve the run."""
        return digest(self.model_dump(mode="json"))

    def build(self) -> Algorithm:
        """The algorithm with its parameters; raises InvalidInputError."""
        return build_algorithm(self.algorithm, self.parameters)

    def facts(self) -> FederationFacts:
        """What all agree on; raises InvalidInputError where the terms contradict each other."""
        return FederationFacts(
            parties=self.names,
            n_examples=np.array([member.n_examples for member in self.parties]),
            epsilon=np.array([member.budget.epsilon for member in self.parties]),
            delta=np.array([member.budget.delta for member in self.parties]),
            n_features=self.study.n_features,
            loss=self.study.loss.build(),
            minimum_contributors=self.minimum_contributors,
            colluders=self.colluders,
            secure_sum=self.secure_sum != "none",
            clip_norm=self.study.clip_norm,
        )

    def index(self, party: str) -> int:
        """A party's place; raises InvalidInputError when the run does not name it."""
        if party not in self.names:
            raise InvalidInputError(f"the run does not name the party {party!r}")
        return self.names.index(party)


class PartyFacts(Strict):
    """What a party says of itself to a learner it knows: nothing private but the declared size of its shard."""

    name: Identifier
    version: str
    study_digest: str
    n_examples: int
    algorithms: tuple[str, ...]
    views: tuple[View, ...]
    minimum_contributors: int
    require_secure_sum: bool
    max_epsilon_per_run: float
    max_delta_per_run: float


class BudgetReport(Strict):
    """A party's ledger in short: (epsilon, delta) allowed in total, spent, and left."""

    epsilon_limit: float
    delta_limit: float
    epsilon_spent: float
    delta_spent: float
    epsilon_left: float
    delta_left: float


class RunProposal(Strict):
    """What a learner sends a party to approve."""

    run: Identifier
    spec: RunSpec


class Approval(Strict):
    """A party's consent: it will answer this run's rounds at this price."""

    run: Identifier
    spec_digest: str
    rounds: int
    epsilon: float
    delta: float


class KeyHolderFacts(Strict):
    """What anyone on a roster must know of a key holder."""

    name: str
    public_key: Annotated[str, Field(description="its Ed25519 key, for others to pin")]
    key_bits: Annotated[int, Field(description="size of the Paillier keys it makes")]
    version: str


class NewSession(Strict):
    """What a learner asks a session by."""

    session: SessionId
    key_bits: Annotated[int, Field(description="size of the Paillier key")]


class SessionKey(Strict):
    """A session's public Paillier key."""

    session: str
    modulus: Annotated[str, Field(description="n, hexadecimal")]


class Signature(Strict):
    """A signature of a roster."""

    signature: Annotated[str, Field(description="Ed25519, hexadecimal")]


_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<[fi]8)', 'fortran_order': False,"
    rb" 'shape': \((\d{1,9}),(?: (\d{1,9}))?\), \} *\n",
    re.DOTALL,
)


def pack_array(array: npt.NDArray[Any]) -> bytes:
    """An array as an ``.npy`` body, little-endian."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def unpack_array(body: bytes, dtype: Literal["<f8", "<i8"]) -> npt.NDArray[Any]:
    """The array of an ``.npy`` body; raises InvalidInputError unless it is well-formed, complete and of this type.

    The header is matched, never evaluated: NumPy writes it in one way only.
    """
    header = _NPY_HEADER.match(body)
    if not header or header.end() != 10 + int.from_bytes(body[8:10], "little"):
        raise InvalidInputError("the body is not an .npy array of version 1.0, with one axis or two, in C order")
    found, *sizes = header.groups()
    shape = tuple(int(size) for size in sizes if size is not None)
    if found.decode() != dtype or len(body) - header.end() != math.prod(shape) * 8:
        raise InvalidInputError(f"the body must hold a whole array of type {dtype}")
    return np.frombuffer(body, dtype, offset=header.end()).reshape(shape)
