"""Bearer tokens: which of several counts, and until when."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from parley.common.service.tokens import (
    InvitedCaller,
    KnownToken,
    NamedCaller,
    PeerCaller,
    SignInError,
    Tokens,
    hash_token,
    new_token,
)

DAY = date(2027, 1, 31)
ALICE, BOB = NamedCaller("alice"), NamedCaller("bob")
OLD, NEW = KnownToken(hash_token("old"), ALICE, DAY), KnownToken(hash_token("new"), ALICE, DAY + timedelta(30))


def tokens(today: date) -> Tokens:
    return Tokens((OLD, NEW, KnownToken(hash_token("for-ever"), BOB)), lambda: today)


def test_tokens_overlap_and_an_expired_one_is_refused_in_words_of_its_own() -> None:
    before, after = tokens(DAY - timedelta(1)), tokens(DAY)
    assert [before.identify(f"Bearer {token}") for token in ("old", "new", "for-ever")] == [ALICE, ALICE, BOB]
    assert [after.identify(f"bearer {token}") for token in ("new", "for-ever")] == [ALICE, BOB]
    with pytest.raises(SignInError, match="the bearer token has expired") as expired:
        after.identify("Bearer old")
    assert expired.value.reason == "expired"
    assert expired.value.status == 401


@pytest.mark.parametrize(
    ("authorization", "why"),
    [(None, "absent"), ("Basic old", "absent"), ("Bearer ", "unknown"), ("Bearer other", "unknown")],
)
def test_a_stranger_is_refused(authorization: str | None, why: str) -> None:
    with pytest.raises(SignInError) as refused:
        tokens(DAY).identify(authorization)
    assert refused.value.reason == why


def test_the_next_to_expire_counts_or_has_left_its_caller_without_any() -> None:
    assert tokens(DAY - timedelta(1)).next_expiry() == OLD
    assert tokens(DAY).next_expiry() == NEW
    assert tokens(DAY + timedelta(365)).next_expiry() == NEW, "its caller is without a token"
    assert Tokens((NEW, OLD), lambda: DAY - timedelta(1)).next_expiry() == OLD, "their order does not matter"


def test_a_token_is_new_each_time_and_of_256_bits() -> None:
    first, second = new_token(), new_token()
    assert first != second
    assert len(first) == len(second) == 43, "six bits a character"


@pytest.mark.parametrize(
    ("authorization", "words"),
    [
        (None, "a bearer token is needed"),
        ("Bearer other", "the bearer token is not known here"),
        ("BEARER  old ", "the bearer token has expired: ask for a new one"),
    ],
)
def test_a_failed_sign_in_says_what_is_wrong(authorization: str | None, words: str) -> None:
    with pytest.raises(SignInError) as refused:
        tokens(DAY).identify(authorization)
    assert refused.value.detail == words


def test_replaced_tokens_count_at_once() -> None:
    known = tokens(DAY)
    known.replace([KnownToken(hash_token("third"), ALICE)])
    assert known.identify("Bearer third") == ALICE
    with pytest.raises(SignInError):
        known.identify("Bearer new")


def test_a_name_of_two_kinds_is_two_callers() -> None:
    assert len({NamedCaller("party-1"), PeerCaller("party-1"), InvitedCaller("party-1"), PeerCaller("party-1")}) == 3
    assert Tokens([KnownToken(hash_token("peer"), PeerCaller("bob"))]).identify("Bearer peer") != BOB
