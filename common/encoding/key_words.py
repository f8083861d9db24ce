"""Six words of a key, which two people compare by telephone: 66 bits of its fingerprint, in the list of BIP 39."""

from __future__ import annotations

import re
from hashlib import sha256
from unicodedata import normalize

from mnemonic import Mnemonic

from parley.common.errors import InvalidInputError

WORDS = 6
"""The number of words of a key that people compare."""
_BITS = 11  # of each word


def words_of(public_key: str) -> tuple[str, ...]:
    """Return six words of a key's fingerprint, SHA-256.

    >>> words_of("00" * 32)
    ('grid', 'duck', 'problem', 'valid', 'cloth', 'roof')
    """
    number = int.from_bytes(sha256(bytes.fromhex(public_key)).digest()) >> (256 - WORDS * _BITS)
    words = Mnemonic("english").wordlist
    return tuple(words[number >> _BITS * place & (2**_BITS - 1)] for place in reversed(range(WORDS)))


def are_words(typed: str, public_key: str) -> bool:
    """Return whether these are the six words of a key; capitals, and separators between words, do not matter."""
    return _plain_words(typed) == words_of(public_key)


def named_words(text: str, option: str) -> tuple[str, str]:
    """Split an option NAME=WORDS into a name and the words of its key. Raises InvalidInputError if it is not so."""
    name, equals, words = text.partition("=")
    if not equals:
        raise InvalidInputError(f"{option}: say NAME=WORDS, such as 'notary=perfect armor candy few goddess hobby'")
    return name.strip(), words


def check_words(typed: str, public_key: str, whose: str) -> None:
    """Raise InvalidInputError unless these are the six words of a key, as `are_words` reads them.

    Words that no key has are reported as a slip.
    """
    words = _plain_words(typed)
    if len(words) != WORDS:
        raise InvalidInputError(f"the key of {whose} has {WORDS} words, and {len(words)} were typed")
    if unlisted := sorted({*words} - {*Mnemonic("english").wordlist}):
        raise InvalidInputError(f"no key has the word {', '.join(unlisted)}: say the words of {whose} again")
    if words != words_of(public_key):
        raise InvalidInputError(f"these are not the words of {whose}: somebody may be in between; do not go on")


def _plain_words(typed: str) -> tuple[str, ...]:
    """Return the words of a text with any separators: line ends, numbers, hyphens, quotation marks, wide letters."""
    return tuple(re.findall("[a-z]+", normalize("NFKC", typed).lower()))
