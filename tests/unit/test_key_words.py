"""Six words of a key as people type them: how they are set does not matter, and a slip is told from another key."""

from __future__ import annotations

import pytest

from parley.common.encoding.key_words import are_words, check_words, words_of
from parley.common.errors import InvalidInputError

KEY, OTHER = "0b" * 32, "0c" * 32
WORDS = words_of(KEY)


@pytest.mark.parametrize(
    "typed",
    [
        " ".join(WORDS).upper(),
        *(mark.join(WORDS) for mark in ("\n", "\u00a0", "\u200b", "-", " - ", ". ", ",", ";", "/", "_")),
        f"\ufeff\u201c{' '.join(WORDS)}\u201d.",
        "\r\n".join(f"{number}. {word.capitalize()}" for number, word in enumerate(WORDS, start=1)),
        "".join(chr(ord(letter) + 0xFEE0) if letter != " " else "\u3000" for letter in " ".join(WORDS)),
    ],
)
def test_how_words_are_set_does_not_matter(typed: str) -> None:
    check_words(typed, KEY, "notary")
    assert not are_words(typed, OTHER)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("", "the key of notary has 6 words, and 0 were typed"),
        (" ".join(WORDS[:5]), "the key of notary has 6 words, and 5 were typed"),
        (" ".join((*WORDS, WORDS[0])), "the key of notary has 6 words, and 7 were typed"),
        (" ".join((*WORDS[:5], "zzyzx")), "no key has the word zzyzx: say the words of notary again"),
        (" ".join(word[:3] for word in WORDS), "no key has the word "),
        (" ".join(reversed(WORDS)), "these are not the words of notary: somebody may be in between; do not go on"),
        (" ".join(words_of(OTHER)), "these are not the words of notary: somebody may be in between; do not go on"),
    ],
)
def test_a_slip_is_told_from_another_key(typed: str, told: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_words(typed, KEY, "notary")
    assert refused.value.detail.startswith(told)
