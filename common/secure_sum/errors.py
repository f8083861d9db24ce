"""The refusals of a secure sum: one exception for a family of checks, one machine-readable reason for each check.

No message holds a value of an answer, a pad, a plaintext or a key.
"""

from __future__ import annotations

from enum import StrEnum

from parley.common.errors import SecureSumError


class Reason(StrEnum):
    """The check that failed, as it travels in a problem document's ``reason``."""

    # MessageError
    NOT_CANONICAL = "not_canonical"
    WRONG_FIELD = "wrong_field"
    WRONG_FRAME = "wrong_frame"
    # SignatureError
    BAD_SIGNATURE = "bad_signature"
    WRONG_PIN = "wrong_pin"
    # RosterError
    NOT_ON_ROSTER = "not_on_roster"
    ROSTER_CHANGED = "roster_changed"
    TOO_FEW_REQUIRED = "too_few_required"
    WRONG_TERMS = "wrong_terms"
    # RoundError
    WRONG_SESSION = "wrong_session"
    WRONG_ROSTER = "wrong_roster"
    WRONG_ROUND = "wrong_round"
    WRONG_QUERY = "wrong_query"
    WRONG_SET = "wrong_set"
    ROUND_OLD = "round_old"
    ROUND_ANSWERED = "round_answered"
    ROUND_OPENED = "round_opened"
    # ContributorsError
    TOO_FEW = "too_few_contributors"
    UNKNOWN_PARTY = "unknown_party"
    DUPLICATE_PARTY = "duplicate_party"
    DUPLICATE_BLOB = "duplicate_blob"
    # BlobError
    WRONG_HASH = "wrong_hash"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_RANGE = "out_of_range"
    NOT_A_UNIT = "not_a_unit"
    NOT_SEALED = "not_sealed"
    # PackingError
    WRONG_SHAPE = "wrong_shape"
    VALUE_TOO_LARGE = "value_too_large"
    TOO_MANY_CONTRIBUTORS = "too_many_contributors"
    BITS_ABOVE_LANES = "bits_above_lanes"
    COUNT_MISMATCH = "count_mismatch"
    LANE_TOO_LARGE = "lane_too_large"
    PADDING_NOT_ZERO = "padding_not_zero"
    BEYOND_BOUND = "beyond_bound"
    # KeyMaterialError
    WRONG_KEY_SIZE = "wrong_key_size"
    WRONG_KEY = "wrong_key"
    WEAK_KEY = "weak_key"
    # OwnKeyError
    GMPY2_MISSING = "gmpy2_missing"
    KEY_FILE_CORRUPT = "key_file_corrupt"
    KEY_FILE_OPEN = "key_file_open"
    KEY_FILE_UNREADABLE = "key_file_unreadable"
    OBFUSCATORS_EXHAUSTED = "obfuscators_exhausted"
    # StateError
    OUT_OF_TURN = "out_of_turn"


class MessageError(SecureSumError):
    """A message that no honest sender writes: not canonical, a field missing or out of its range, a torn frame."""

    status = 422


class SignatureError(SecureSumError):
    """A signature that does not verify, or a key other than the one pinned in the settings."""

    status = 403


class RosterError(SecureSumError):
    """A roster that this role does not join: it is not on it, has joined another, or the terms are not acceptable."""

    status = 403


class RoundError(SecureSumError):
    """A message about another session, roster, round or query, or about a round already settled."""


class ContributorsError(SecureSumError):
    """A set of contributors that must not be opened: too few, unknown, or the same one twice."""

    status = 403


class BlobError(SecureSumError):
    """Bytes that were not signed for or not sealed by their party, or ciphertexts that are no units modulo n^2."""

    status = 422


class PackingError(SecureSumError):
    """Integers that do not fit their lanes, or a total that no k honest parties can have made."""

    status = 422


class KeyMaterialError(SecureSumError):
    """A Paillier key that must not be used: of another size, weak, or not the agreed one."""

    status = 422


class OwnKeyError(KeyMaterialError):
    """Something that this service itself computes with is unusable: gmpy2, a key file, its stock of obfuscators."""

    status = 503


class StateError(SecureSumError):
    """A step that the role's transition table does not have."""
