"""The five messages of a secure sum. Each is a frozen dataclass, checked when built; hashes and keys are hexadecimal.

0 `Roster`        who takes part, under what terms; its hash is in every later message, and all sign it
1 `SumQuery`      learner to party; attached: the message asked about, then the last round's receipts, if any
2 `Contribution`  party to learner; attached: the pad's seed, then one blob of ciphertexts for each key holder
3 `Open`          learner to key holder; attached: for each contributor its signed head and its blob
4 `Opened`        key holder to learner; attached: the sums; its head is a receipt, and stands in the certificate

A query's receipts are optional, so they prove nothing to a party; those that are there must fit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.encoding.canonical_json import canonical
from parley.common.encoding.fixed_point import FRACTION_BITS
from parley.common.secure_sum.envelope import HASH_BYTES, KEY_BYTES, Signed, sha256_hex
from parley.common.secure_sum.errors import ContributorsError, MessageError, Reason, RoundError
from parley.common.secure_sum.packing import GUARD_BITS, LANE_BITS, MAX_CONTRIBUTORS, MAX_D, Layout
from parley.common.secure_sum.paillier import MAX_KEY_BITS, MIN_KEY_BITS, check_moduli

VERSION = 1
SESSION_BYTES = 16
MAX_ROUND = 2**31 - 1
MAX_KEY_HOLDERS = 16
MAX_TEXT = 100
MAX_BODY = 2**20
"""The most bytes of a message's body; long parts are attached. The longest is a roster of `MAX_CONTRIBUTORS`."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # as `parley.common.runs.specification.Identifier`
_HEX = re.compile(r"[0-9a-f]+")

Scalar = int | float | str
"""A noise scale or a clip norm, which the secure sum only signs."""


def _is_hex(value: object, size: int | None = None) -> bool:
    """Whether a value is lower-case hexadecimal, of ``size`` bytes if that is given."""
    return isinstance(value, str) and size in {None, len(value) / 2} and bool(_HEX.fullmatch(value))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


def _is_integer(value: object, low: int, high: int) -> bool:
    """Whether a value is an integer from low to high, and no boolean."""
    return type(value) is int and low <= value <= high


def _are_hashes(value: object, high: int) -> bool:
    """Whether a value is a tuple of 1 to ``high`` hashes."""
    return isinstance(value, tuple) and 1 <= len(value) <= high and all(_is_hex(item, HASH_BYTES) for item in value)


def _are_records(value: object, entry: type[Record], high: int) -> bool:
    """Whether a value is a tuple of 1 to ``high`` records."""
    return isinstance(value, tuple) and 1 <= len(value) <= high and all(isinstance(item, entry) for item in value)


def _is_scalar(value: object) -> bool:
    """Whether a value is a finite number or a short text."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int and abs(value) < 2**63


def _checked(check: Callable[..., bool], *terms: object) -> dict[str, Any]:
    """Return the metadata of a field whose value must pass a check on these terms."""
    return {"check": lambda value: check(value, *terms)}


def _integer(low: int, high: int) -> dict[str, Any]:
    return _checked(_is_integer, low, high)


def _hashes(high: int) -> dict[str, Any]:
    return _checked(_are_hashes, high)


def _records(entry: type[Record], high: int) -> dict[str, Any]:
    return _checked(_are_records, entry, high) | {"entry": entry}


_HASH = _checked(_is_hex, HASH_BYTES)
_KEY = _checked(_is_hex, KEY_BYTES)
_SESSION = _checked(_is_hex, SESSION_BYTES)
_MODULUS = _checked(_is_hex)
_NAME = _checked(_is_name)
_SCALAR = _checked(_is_scalar)


@dataclass(frozen=True, slots=True)
class Record:
    """Fields that are checked when built and read strictly from JSON."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if not item.metadata["check"](getattr(self, item.name)):
                raise MessageError(f"{type(self).__name__}.{item.name} is missing or wrong", reason=Reason.WRONG_FIELD)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Build from a JSON object with exactly these fields. Raises MessageError(wrong_field)."""
        items = fields(cls)
        if not isinstance(data, dict) or data.keys() != {item.name for item in items}:
            raise MessageError(f"not the fields of {cls.__name__}", reason=Reason.WRONG_FIELD)
        return cls(**{item.name: _from_json(data[item.name], item.metadata.get("entry")) for item in items})


def _from_json(value: object, entry: type[Record] | None) -> object:
    """Convert a field's value from JSON: lists become tuples, objects become records."""
    if not isinstance(value, list):
        return value
    return tuple(value) if entry is None else tuple(entry.from_json(item) for item in value)


@dataclass(frozen=True, slots=True)
class Message(Record):
    """A record that is signed on its own."""

    TAG: ClassVar[str]

    @property
    def body(self) -> bytes:
        """The message's canonical JSON."""
        return canonical(asdict(self))

    @property
    def digest(self) -> str:
        """SHA-256 of the body."""
        return sha256_hex(self.body)

    def sign(self, key: Ed25519PrivateKey, attachments: Iterable[bytes] = ()) -> Signed:
        """Sign the message: return it as it travels."""
        return Signed.seal(self.TAG, self.body, key, tuple(attachments))

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read a body strictly. Raises MessageError(wrong_length, not_canonical, wrong_field). Checks no signature."""
        _check_length(body)
        try:
            message = cls.from_json(json.loads(body))
            same = message.body == body
        except (ValueError, RecursionError) as error:
            raise MessageError("not canonical JSON", reason=Reason.NOT_CANONICAL) from error
        if not same:
            raise MessageError("not canonical JSON", reason=Reason.NOT_CANONICAL)
        return message

    @classmethod
    def read(cls, signed: Signed, key: str) -> Self:
        """Read what the holder of ``key`` signed. Raises SignatureError, MessageError."""
        _check_length(signed.body)
        signed.verify(cls.TAG, key)
        return cls.parse(signed.body)


def _check_length(body: bytes) -> None:
    """Raise MessageError(wrong_length), before parsing, for a body that is longer than any message's."""
    if len(body) > MAX_BODY:
        raise MessageError(f"a message of more than {MAX_BODY:,} bytes", reason=Reason.WRONG_LENGTH)


@dataclass(frozen=True, slots=True)
class RosterMember(Record):
    """A member of the roster and its Ed25519 key."""

    name: str = field(metadata=_NAME)
    key: str = field(metadata=_KEY)


@dataclass(frozen=True, slots=True)
class RosterParty(RosterMember):
    """A party on the roster; ``noise`` is the scale of the noise it adds."""

    noise: Scalar = field(metadata=_SCALAR)


@dataclass(frozen=True, slots=True)
class RosterKeyHolder(RosterMember):
    """A key holder on the roster, with the modulus of its Paillier key of this session."""

    modulus: str = field(metadata=_MODULUS)

    @property
    def n(self) -> int:
        """The modulus as a number."""
        return int(self.modulus, 16)


@dataclass(frozen=True, slots=True)
class Roster(Message):
    """The participants of a session, and its terms; ``d`` is the integers of an answer, ``learner`` a public key.

    ``minimum_contributors`` is m_min, ``colluders`` is t: a party adds 1/(m_min - t) of the noise's variance.
    """

    TAG: ClassVar[str] = "parley-secure-sum-1/roster"

    session: str = field(metadata=_SESSION)
    d: int = field(metadata=_integer(1, MAX_D))
    key_bits: int = field(metadata=_integer(MIN_KEY_BITS, MAX_KEY_BITS))
    minimum_contributors: int = field(metadata=_integer(2, MAX_CONTRIBUTORS))
    colluders: int = field(metadata=_integer(0, MAX_CONTRIBUTORS))
    learner: str = field(metadata=_KEY)
    parties: tuple[RosterParty, ...] = field(metadata=_records(RosterParty, MAX_CONTRIBUTORS))
    key_holders: tuple[RosterKeyHolder, ...] = field(metadata=_records(RosterKeyHolder, MAX_KEY_HOLDERS))
    version: int = field(metadata=_integer(VERSION, VERSION), default=VERSION)
    lane_bits: int = field(metadata=_integer(LANE_BITS, LANE_BITS), default=LANE_BITS)
    guard_bits: int = field(metadata=_integer(GUARD_BITS, GUARD_BITS), default=GUARD_BITS)
    fraction_bits: int = field(metadata=_integer(0, LANE_BITS - GUARD_BITS - 1), default=FRACTION_BITS)

    def __post_init__(self) -> None:
        Message.__post_init__(self)
        members: tuple[RosterMember, ...] = (*self.parties, *self.key_holders)
        keys = {self.learner, *(member.key for member in members)}
        unfit = [holder.name for holder in self.key_holders if not self._fits(holder)]
        faults = {
            "two members share a name": len({member.name for member in members}) < len(members),
            "two members share a key": len(keys) < 1 + len(members),
            "fewer parties than minimum_contributors": len(self.parties) < self.minimum_contributors,
            "colluders is not below minimum_contributors": self.colluders >= self.minimum_contributors,
            "key_bits is not in whole bytes": self.key_bits % 8 != 0,
            f"the modulus of {', '.join(unfit)} is not an odd number of key_bits bits": bool(unfit),
        }
        for fault, applies in faults.items():
            if applies:
                raise MessageError(f"Roster: {fault}", reason=Reason.WRONG_FIELD)

    def _fits(self, holder: RosterKeyHolder) -> bool:
        """Whether a modulus is odd, of the roster's size and spelt without leading zeros."""
        return len(holder.modulus) * 4 == holder.n.bit_length() == self.key_bits and holder.n % 2 == 1

    @property
    def layout(self) -> Layout:
        """The layout of an answer in plaintexts."""
        return Layout(self.d, self.key_bits)

    def check_moduli(self) -> None:
        """Raise KeyMaterialError(weak_key), naming the key holder, as `paillier.check_moduli` does."""
        check_moduli({holder.name: holder.n for holder in self.key_holders})

    def party(self, name: str) -> RosterParty:
        """Return the party of this name. Raises ContributorsError(unknown_party)."""
        for party in self.parties:
            if party.name == name:
                return party
        raise ContributorsError(f"{name} is not on the roster", reason=Reason.UNKNOWN_PARTY)


@dataclass(frozen=True, slots=True)
class RoundMessage(Message):
    """The first fields of every message in a round: session, hash of the roster, number of the round."""

    session: str = field(metadata=_SESSION)
    roster: str = field(metadata=_HASH)
    round: int = field(metadata=_integer(0, MAX_ROUND))

    def check_session(self, session: str, roster: str) -> None:
        """Raise RoundError(wrong_session, wrong_roster) unless this is of that session and that roster (by hash)."""
        if self.session != session:
            raise RoundError("another session", reason=Reason.WRONG_SESSION)
        if self.roster != roster:
            raise RoundError("another roster", reason=Reason.WRONG_ROSTER)


@dataclass(frozen=True, slots=True)
class SumQuery(RoundMessage):
    """1: the query to all parties. ``message`` is a hash; ``deadline``, in seconds since 1970, is for services."""

    TAG: ClassVar[str] = "parley-secure-sum-1/query"

    step: str = field(metadata=_NAME)
    message: str = field(metadata=_HASH)
    clip: Scalar = field(metadata=_SCALAR)
    noise: Scalar = field(metadata=_SCALAR)
    deadline: int = field(metadata=_integer(0, 2**53))


@dataclass(frozen=True, slots=True)
class Contribution(RoundMessage):
    """2: a party's answer of ``d`` integers, by the hashes of its seed and of its blob for each key holder."""

    TAG: ClassVar[str] = "parley-secure-sum-1/contribution"

    query: str = field(metadata=_HASH)
    party: str = field(metadata=_NAME)
    d: int = field(metadata=_integer(1, MAX_D))
    blobs: tuple[str, ...] = field(metadata=_hashes(MAX_KEY_HOLDERS))
    seed: str = field(metadata=_HASH)


@dataclass(frozen=True, slots=True)
class Open(RoundMessage):
    """3: the request to open the sum of these contributions, by the hashes of their bodies."""

    TAG: ClassVar[str] = "parley-secure-sum-1/open"

    query: str = field(metadata=_HASH)
    contributions: tuple[str, ...] = field(metadata=_hashes(MAX_CONTRIBUTORS))


@dataclass(frozen=True, slots=True)
class Opened(RoundMessage):
    """4: a round is opened, for this set of contributions and no other. ``contributors`` is `set_digest` of the set."""

    TAG: ClassVar[str] = "parley-secure-sum-1/opened"

    contributors: str = field(metadata=_HASH)
    sums: str = field(metadata=_HASH)


def set_digest(contributions: Iterable[str]) -> str:
    """Return the hash of a set of contributions, in any order."""
    return sha256_hex(canonical(sorted(contributions)))
