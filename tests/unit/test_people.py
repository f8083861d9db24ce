"""Who a person is here, by the claims of an ID token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.common.errors import ForbiddenError, InvalidInputError
from parley.common.service.tokens import SignInError
from parley.learner.api.sign_in.people import caller_of_claims, check_ours
from parley.learner.settings import LearnerSettings, SignIn
from tests.support.toml import write

ROLES = {"parley-operators": "operator", "staff": "submitter", "guests": "viewer"}
SETTINGS: dict[str, Any] = {
    "issuer": "https://login.hospital.example/realms/hospital",
    "client_id": "parley",
    "url": "https://parley.hospital.example",
    "roles": ROLES,
}


def sign_in(**changes: object) -> SignIn:
    return SignIn.model_validate(SETTINGS | changes)


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ("staff", "submitter"),
        (["guests", "staff"], "submitter"),
        (["staff", "parley-operators", "x"], "operator"),
        (["guests", 7, None, ["staff"]], "viewer"),
    ],
)
def test_the_highest_role_counts(values: object, role: str) -> None:
    assert caller_of_claims({"sub": "1", "roles": values}, sign_in()).role == role


@pytest.mark.parametrize("values", [None, "", [], "Staff", ["x"], {"staff": True}, 7, True])
def test_nobody_enters_without_a_role(values: object) -> None:
    with pytest.raises(ForbiddenError, match=r'no role here: its claim "roles"'):
        caller_of_claims({"sub": "1", "roles": values}, sign_in())


def test_a_claim_may_be_nested_and_may_have_a_dot() -> None:
    nested = sign_in(role_claim=["realm_access", "roles"])
    assert caller_of_claims({"sub": "1", "realm_access": {"roles": ["staff"]}}, nested).role == "submitter"
    with pytest.raises(ForbiddenError, match=r"realm_access\.roles"):
        caller_of_claims({"sub": "1", "realm_access": ["roles"]}, nested)
    dotted = sign_in(role_claim=["https://hospital.example/roles"])
    assert caller_of_claims({"sub": "1", "https://hospital.example/roles": "guests"}, dotted).role == "viewer"


def test_a_person_is_named_by_the_subject_unless_the_operator_chooses_another_claim() -> None:
    claims = {"sub": "f3a", "preferred_username": "ada", "name": "Ada Lovelace", "roles": "staff"}
    by_default = caller_of_claims(claims, sign_in())
    assert (by_default.name, by_default.title) == ("oidc:f3a", "Ada Lovelace")
    assert caller_of_claims(claims, sign_in(name_claim="preferred_username")).name == "oidc:ada"


@pytest.mark.parametrize("name", [None, "", " ada", "ada ", "a\nb", "a\u202eb", "a" * 96, 7, ["ada"]])
def test_a_name_that_is_not_plain_is_refused_and_not_shown(name: object) -> None:
    with pytest.raises(ForbiddenError, match='"sub" of your account cannot name a user'):
        caller_of_claims({"sub": name, "roles": "staff"}, sign_in())


@pytest.mark.parametrize("title", [None, "", 7, "Ada\u202e", "A\x1b[31m"])
def test_what_cannot_be_shown_is_not(title: object) -> None:
    claims = {"sub": "1", "name": title, "preferred_username": title, "roles": "staff"}
    assert caller_of_claims(claims, sign_in()).title == "1"
    assert caller_of_claims(claims | {"preferred_username": "ada"}, sign_in()).title == "ada"


def test_an_address_counts_only_if_the_provider_has_verified_it() -> None:
    by_address = sign_in(name_claim="email")
    claims = {"sub": "1", "email": "ada@hospital.example", "roles": "staff"}
    for verified in (None, False, "true", 1):
        with pytest.raises(ForbiddenError, match="not verified"):
            caller_of_claims(claims | {"email_verified": verified}, by_address)
    assert caller_of_claims(claims | {"email_verified": True}, by_address).name == "oidc:ada@hospital.example"


def test_a_token_is_for_this_client_and_this_sign_in() -> None:
    for claims in ({"aud": "parley"}, {"aud": ["parley"]}, {"aud": ["x", "parley"], "azp": "parley"}):
        check_ours(claims | {"nonce": "n"}, sign_in(), "n")
        with pytest.raises(SignInError, match="nonce"):
            check_ours(claims, sign_in(), "n")
        check_ours(claims, sign_in())  # a renewal has none
    for claims in ({"aud": ["x", "parley"]}, {"aud": ["parley", "parley"]}, {"aud": "parley", "azp": "x"}):
        with pytest.raises(SignInError, match="another client"):
            check_ours(claims, sign_in())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": "http://login.hospital.example"}, "issuer: https:// is needed"),
        ({"issuer": "login.hospital.example"}, "issuer: https:// is needed"),
        ({"url": "http://parley.hospital.example"}, "url: https:// is needed"),
        ({"url": "https://hospital.example/parley"}, "url: the page is at the root"),
        ({"roles": {}}, "sign_in.roles: Dictionary should have at least 1 item"),
        ({"roles": {"staff": "owner"}}, r"sign_in\.roles\.staff"),
        ({"role_claim": []}, "sign_in.role_claim"),
        ({"client_id": ""}, "sign_in.client_id"),
        ({"secret": "x"}, "sign_in.secret: Extra inputs are not permitted"),
        ({"scopes": ["a b"]}, r"sign_in\.scopes"),
        ({"leeway_seconds": 900}, "sign_in.leeway_seconds"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    users = [{"name": "a", "token_hash": f"sha256:{'0' * 64}"}]
    file = write(
        tmp_path / "learner.toml",
        {"name": "learner", "state": tmp_path, "users": users, "sign_in": SETTINGS | changes},
    )
    with pytest.raises(InvalidInputError, match=words):
        LearnerSettings.load(file)


def test_the_way_back_has_no_slash_too_many() -> None:
    assert sign_in().redirect_uri == "https://parley.hospital.example/sign-in/callback"
    assert sign_in(url="http://localhost:8000/").redirect_uri == "http://localhost:8000/sign-in/callback"
