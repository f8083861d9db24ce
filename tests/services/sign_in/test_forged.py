"""Tokens that are forged, expired, of another or replayed let nobody in; nor does a provider that answers nonsense."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi import FastAPI
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tests.services.sign_in.conftest import Browser, learner, visiting
from tests.support.identity_provider import CLIENT, IdentityProvider, sessions_of

Forge = Callable[[IdentityProvider, str], str | None]


def key_of(provider: IdentityProvider) -> tuple[rsa.RSAPrivateKey, str]:
    """The private key that the provider signs ID tokens with, and its name."""
    key = provider.server.keyjar.get_signing_key("RSA", issuer_id=provider.url)[0]
    return key.private_key(), key.kid


def changed(**claims: object) -> Forge:
    """The provider's own token with other claims, well signed; a claim of None is left out."""

    def forge(provider: IdentityProvider, token: str) -> str:
        said = jwt.decode(token, options={"verify_signature": False}) | claims
        key, name = key_of(provider)
        return jwt.encode({k: v for k, v in said.items() if v is not None}, key, "RS256", {"kid": name})

    return forge


def timed(**seconds: int) -> Forge:
    """The provider's own token with other times, so many seconds from when it is given; well signed."""

    def forge(provider: IdentityProvider, token: str) -> str | None:
        now = int(time.time())
        return changed(**{claim: now + after for claim, after in seconds.items()})(provider, token)

    return forge


def with_header(algorithm: str, secret: Callable[[bytes], bytes] = lambda _: b"") -> Forge:
    """The provider's own claims below another header, with a signature of one's own."""

    def forge(provider: IdentityProvider, token: str) -> str:
        head = json.dumps({"alg": algorithm, "typ": "JWT", "kid": key_of(provider)[1]}).encode()
        signed = base64.urlsafe_b64encode(head).rstrip(b"=") + b"." + token.split(".")[1].encode()
        signature = base64.urlsafe_b64encode(secret(signed)).rstrip(b"=")
        return (signed + b"." + signature).decode()

    return forge


def hs256_by_public_key(provider: IdentityProvider, token: str) -> str:
    """The classic: the public key taken for a shared secret."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key_of(provider)[0].public_key().public_bytes(serialization.Encoding.PEM, form)
    return str(with_header("HS256", lambda signed: hmac.digest(public, signed, sha256))(provider, token))


def by_another_key(name: str | None) -> Forge:
    """The provider's own claims, signed with a key that is not the provider's."""

    def forge(provider: IdentityProvider, token: str) -> str:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        said = jwt.decode(token, options={"verify_signature": False})
        kid = key_of(provider)[1] if name == "the provider's" else name
        return jwt.encode(said, key, "RS256", {"kid": kid} if kid else {})

    return forge


FORGED: dict[str, tuple[Forge, str]] = {
    "alg none": (with_header("none"), "is malformed|has an algorithm"),
    "alg none with the provider's signature": (with_header("None"), "has an algorithm"),
    "HS256 with the public key": (hs256_by_public_key, "has an algorithm"),
    "another key by the same name": (by_another_key("the provider's"), "wrong signature"),
    "another key by its own name": (by_another_key("a-key"), "does not publish"),
    "another key without a name": (by_another_key(None), "does not publish"),
    "an EC signature by an RSA key's name": (with_header("ES256", lambda _: b"x" * 64), "has an algorithm"),
    "claims changed under the signature": (lambda _, token: token[:-20] + "A" * 20, "wrong signature|malformed"),
    "another issuer": (changed(iss="https://evil.example"), "another issuer"),
    "the issuer with a slash more": (
        lambda provider, token: changed(iss=f"{provider.url}/")(provider, token),
        "issuer",
    ),
    "another audience": (changed(aud="another-client"), "another client"),
    "an audience of two, by another party": (changed(aud=[CLIENT, "x"], azp="x"), "by another client"),
    "an audience of two, by nobody": (changed(aud=[CLIENT, "x"]), "by another client"),
    "an azp that is no text": (changed(azp=[CLIENT]), "by another client"),
    "expired": (timed(exp=-70, iat=-400), "has expired"),
    "of the future": (timed(iat=400, exp=800), "is not valid yet"),
    "not before the future": (timed(nbf=400), "is not valid yet"),
    "an infinite end": (changed(exp=float("inf")), "malformed"),
    "an end that is a word": (changed(exp="soon"), "malformed"),
    "no end": (changed(exp=None), "lacks a claim"),
    "no beginning": (changed(iat=None), "lacks a claim"),
    "no issuer": (changed(iss=None), "lacks a claim"),
    "no subject": (changed(sub=None), "lacks a claim"),
    "no audience": (changed(aud=None), "another client|lacks a claim"),
    "a subject that is a number": (changed(sub=7), "malformed"),
    "no nonce": (changed(nonce=None), "its nonce is another"),
    "another sign-in's nonce": (changed(nonce="another"), "its nonce is another"),
    "no token": (lambda *_: None, "no ID token came"),
    "no token at all": (lambda *_: "not.a.token", "is malformed"),
    "an empty token": (lambda *_: "", "is malformed|no ID token came"),
    "nested arrays": (lambda *_: f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.e30.x", "is malformed"),
}


async def test_a_forged_token_lets_nobody_in(browser: Browser) -> None:
    for name, (forge, words) in FORGED.items():
        browser.provider.forge = lambda token, forge=forge: forge(browser.provider, token)
        answer = await browser.sign_in("ada")
        assert answer.status_code == 401, (name, answer.text)
        assert any(word in answer.text for word in words.split("|")), (name, answer.text)
        assert "parley-session" not in answer.headers["set-cookie"]
    assert (await browser.user()).status_code == 401
    print(f"{len(FORGED)} forged tokens let nobody in")


async def test_clocks_may_be_a_minute_apart(browser: Browser) -> None:
    for seconds, status in ((-50, 303), (50, 303), (-70, 401), (75, 401)):
        times = {"iat": seconds} if seconds > 0 else {"iat": -300, "exp": seconds}
        browser.provider.forge = lambda token, times=times: timed(**times)(browser.provider, token)
        assert (await browser.sign_in("ada")).status_code == status, seconds


async def test_new_keys_are_fetched_when_they_are_needed_and_once_a_minute(app: FastAPI, browser: Browser) -> None:
    await browser.sign_in("ada")
    now = time.monotonic()
    keys = sessions_of(app)._provider._keys
    keys._clock = lambda: now
    browser.provider.rotate()
    assert (await browser.sign_in("ada")).status_code == 401, "the keys are fresh, and a stranger's name costs no fetch"
    now += 61
    browser.provider.paths.clear()
    assert (await browser.sign_in("ada")).status_code == 303
    for _ in range(3):
        browser.provider.forge = lambda token: by_another_key("a-key")(browser.provider, token)
        assert (await browser.sign_in("ada")).status_code == 401
    assert browser.provider.paths.count("/jwks") == 1


async def test_a_callback_counts_once_and_in_the_browser_that_began(browser: Browser) -> None:
    address = await browser.begin()
    begun = dict(browser.client.cookies)
    back = await browser.log_in(address, "ada")
    browser.client.cookies.clear()
    assert "This browser began no sign-in" in (await browser.client.get(back)).text, "another browser"
    browser.client.cookies.update(begun)
    for sealed in (b"", b"x", b"gAAAAA", b"\xfc" * 40, b"=" * 200):
        cookie = {b"Cookie": b"__Host-parley-sign-in=" + sealed}
        assert (await browser.client.get(back, headers=cookie)).status_code == 401
    browser.client.cookies.update(begun)
    assert "another sign-in" in (await browser.client.get(back.replace("state=", "state=x"))).text
    browser.client.cookies.update(begun)
    assert "Another provider" in (await browser.client.get(back.replace("iss=http", "iss=https"))).text
    browser.client.cookies.update(begun)
    assert (await browser.client.get(back)).status_code == 303
    browser.client.cookies.clear()
    browser.client.cookies.update(begun)
    replayed = await browser.client.get(back)
    assert (replayed.status_code, "parley-session" in replayed.headers["set-cookie"]) != (303, True)
    assert replayed.status_code in {401, 502}, replayed.text


async def test_a_code_of_one_sign_in_does_not_count_in_another(browser: Browser) -> None:
    stolen = httpx.URL(await browser.log_in(await browser.begin(), "ada")).params["code"]
    own = httpx.URL(await browser.log_in(await browser.begin(), "sam"))
    answer = await browser.client.get(str(own.copy_set_param("code", stolen)))
    assert answer.status_code in {401, 502}, "PKCE's verifier is another's"
    assert (await browser.user()).status_code == 401


async def test_a_refusal_of_the_provider_is_said_without_its_words(browser: Browser) -> None:
    state = httpx.URL(await browser.begin()).params["state"]
    answer = await browser.client.get(
        "/sign-in/callback", params={"error": "access_denied", "error_description": "<b>pay here</b>", "state": state}
    )
    assert answer.status_code == 401
    assert "did not sign you in" in answer.text
    assert "pay here" not in answer.text


NONSENSE: dict[str, tuple[str, Response, int]] = {
    "tokens that are no JSON": ("/token", PlainTextResponse("hello"), 502),
    "an answer that does not end": ("/token", PlainTextResponse("x" * 300_000), 502),
    "a redirect": ("/token", RedirectResponse("http://127.0.0.1:1/"), 502),
    "an error of the server": ("/token", PlainTextResponse("{}", 500), 503),
    "an error that is markup": ("/token", PlainTextResponse('{"error": "<script>"}', 400), 502),
    "keys that are none": (
        "/jwks",
        PlainTextResponse('{"keys": [{"kty": "oct", "k": "AA"}, {"kty": "RSA"}, {}]}'),
        401,
    ),
}


async def test_a_provider_that_answers_nonsense_lets_nobody_in(app: FastAPI, browser: Browser) -> None:
    for name, (path, nonsense, status) in NONSENSE.items():
        browser.provider.broken = {path: nonsense}
        sessions_of(app)._provider._keys._value = None
        answer = await browser.sign_in("ada")
        assert answer.status_code == status, (name, answer.text)
        assert "<script>" not in answer.text
    assert (await browser.user()).status_code == 401


async def test_a_logout_token_has_to_be_one(browser: Browser) -> None:
    await browser.sign_in("ada")
    key, name = key_of(browser.provider)
    now = int(time.time())
    logout = {"iss": browser.provider.url, "aud": CLIENT, "iat": now, "exp": now + 3600, "jti": "1", "sub": "x"}
    event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"events": []},
        {"events": {"x": {}}},
        {"events": event, "nonce": "n"},
        {"events": event, "sub": None},
    )
    for claims in cases:
        token = jwt.encode({k: v for k, v in (logout | claims).items() if v is not None}, key, "RS256", {"kid": name})
        assert (await browser.client.post("/sign-in/ended", data={"logout_token": token})).status_code == 400
    for body in (b"", b"logout_token=", b"\xff" * 9, b"logout_token=a.b.c"):
        assert (await browser.client.post("/sign-in/ended", content=body)).status_code == 400
    assert (await browser.client.post("/sign-in/ended", content=b"x" * 70_000)).status_code == 413
    assert (await browser.user()).status_code == 200


async def test_many_failures_of_one_address_have_to_wait(
    provider: IdentityProvider, sign_in: dict[str, Any], tmp_path: Path
) -> None:
    app = learner(tmp_path, sign_in, shares={"failed_sign_ins": 3})
    async with visiting(app) as client:
        assert [(await client.get("/sign-in/callback")).status_code for _ in range(5)] == [401] * 3 + [429] * 2
        assert (await Browser(client, provider).sign_in("ada")).status_code == 303, "who can sign in may at any time"
