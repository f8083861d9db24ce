"""What two operators do to the roster at one time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs

from parley.common.client.awaited import Switchboard
from parley.common.encoding.key_words import words_of
from parley.common.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.tokens import InvitedCaller, PeerCaller, hash_token
from parley.common.storage.certificates import Credentials, hosts_of, make_authority
from parley.common.wire.membership import CertificateRequest, Invitation, JoinRequest
from parley.learner.api.membership import InvitationRequest, LiveRoster
from parley.learner.storage.roster_store import JoinedMember, RosterStore
from tests.support.cluster import made_up

KEY = "0b" * 32
UNUSED = cast("Any", None)


async def test_a_member_that_is_removed_while_it_is_confirmed_stays_away(tmp_path: Path) -> None:
    store, now = RosterStore(tmp_path), datetime.now(UTC)
    token = f"sha256:{'0' * 64}"
    store.keep(
        JoinedMember(
            name="clinic", role="party", public_key=KEY, connects_with=token, token="t" * 43, joined=now,
            confirmed=False, studies=("s",), secret_hash=token, expires=now,
        )
    )  # fmt: skip
    roster = LiveRoster(UNUSED, UNUSED, UNUSED, {}, UNUSED, store, {}, dict)
    async with roster.lock:  # as the removal holds it
        confirming = asyncio.create_task(roster.confirm("clinic", " ".join(words_of(KEY))))
        await asyncio.sleep(0)
        store.remove("clinic")
    with pytest.raises(NotFoundError, match="nobody has joined as clinic"):
        await confirming
    assert RosterStore(tmp_path).members == store.members == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Clinic", "clinic is in the settings file: say a name that differs by more than capitals"),
        ("clinic", "clinic is in the settings file already"),
        ("NOTARY", "notary is in the settings file"),
        ("Learner", "learner is the learner itself"),
        ("learner", "learner is the learner itself"),
    ],
)
async def test_nobody_is_invited_by_a_name_that_is_taken_but_for_capitals(tmp_path: Path, name: str, told: str) -> None:
    entries = {"parties": [SimpleNamespace(name="clinic")], "key_holders": [SimpleNamespace(name="notary")]}
    settings = cast("Any", SimpleNamespace(name="learner", joining=True, **entries))
    roster = LiveRoster(settings, UNUSED, UNUSED, {}, UNUSED, RosterStore(tmp_path), {}, dict)
    with pytest.raises(ConflictError, match=told):
        await roster.invite(InvitationRequest(name=name, studies=("s",)))


LEARNERS_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n, name in enumerate(("clinic", "ward"), 1)}


def roster_at(folder: Path, **settings: object) -> LiveRoster:
    """A learner's roster, to which nobody has been invited yet."""
    joining = SimpleNamespace(url="https://learner.example/", authority=None, authority_key=None)
    of_learner: dict[str, object] = {
        "name": "learner",
        "tls": None,
        "joining": joining,
        "parties": [],
        "key_holders": [],
    }
    sums = SimpleNamespace(holders={}, party_keys={})
    studies, stored = {"made-up": made_up(3)}, RosterStore(folder)
    used = cast("Any", SimpleNamespace(**of_learner | settings))
    return LiveRoster(used, LEARNERS_KEY, Switchboard(), {}, cast("Any", sums), stored, studies, dict)


async def invited(roster: LiveRoster, name: str) -> Invitation:
    """An invitation, as its owner opens it."""
    sealed = await roster.invite(InvitationRequest(name=name, studies=("made-up",)))
    assert sealed.words == words_of(public_hex(LEARNERS_KEY))
    return Invitation.opened(sealed.text, datetime.now(UTC))


def request_of(name: str, token: str = "t" * 43, csr: str | None = None) -> JoinRequest:
    """An owner's request to join."""
    key = KEYS[name]
    request = JoinRequest(
        public_key=public_hex(key), connects_with=hash_token(token), token=token[::-1], certificate_request=csr
    )
    return request.signed(name, key)


async def test_an_invitation_says_where_and_with_whom_an_owner_joins(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    invitation = await invited(roster, "clinic")
    assert (invitation.url, invitation.authority, invitation.parties) == ("https://learner.example", None, ())
    assert invitation.learner.model_dump() == {"name": "learner", "public_key": public_hex(LEARNERS_KEY)}
    assert [view.state for view in roster.views()] == ["invited"]
    (token,) = roster.tokens()
    assert (token.hash, token.caller) == (hash_token(invitation.secret), InvitedCaller("clinic"))


async def test_an_invited_owner_joins_is_confirmed_by_its_words_and_removed(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    secret = hash_token((await invited(roster, "clinic")).secret)
    membership = await roster.join("clinic", secret, request_of("clinic"))
    assert (membership.name, membership.certificate) == ("clinic", None)
    assert [token.caller for token in roster.tokens()] == [PeerCaller("clinic"), InvitedCaller("clinic")]
    (view,) = roster.views()
    assert (view.state, view.public_key, view.studies) == ("unconfirmed", None, ("made-up",))
    assert not roster.parties
    with pytest.raises(ForbiddenError, match="clinic has not been confirmed yet"):
        roster.keys("clinic")
    with pytest.raises(InvalidInputError, match="clinic"):
        await roster.confirm("clinic", " ".join(words_of(KEY)))

    words = " ".join(words_of(public_hex(KEYS["clinic"])))
    await roster.confirm("clinic", words)
    assert set(roster.parties) == set(roster.sums.party_keys) == {"clinic"}
    assert roster.parties["clinic"].name == "clinic"
    (view,) = roster.views()
    assert (view.state, view.public_key, view.connected) == ("member", public_hex(KEYS["clinic"]), False)
    assert RosterStore(tmp_path).members["clinic"].confirmed
    assert [key.name for key in roster.keys("ward").parties] == ["clinic"]
    assert roster.keys("clinic").parties == ()
    assert [key.name for key in (await invited(roster, "ward")).parties] == ["clinic"]

    await roster.remove("clinic")
    await roster.remove("ward")
    assert (roster.views(), roster.parties, roster.sums.party_keys) == ([], {}, {})
    with pytest.raises(NotFoundError, match="nobody has joined as clinic"):
        await roster.remove("clinic")


async def test_an_invitation_counts_once(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    secret = hash_token((await invited(roster, "clinic")).secret)
    with pytest.raises(ConflictError, match="this invitation does not count any more"):
        await roster.join("clinic", hash_token("another"), request_of("clinic"))
    first = await roster.join("clinic", secret, request_of("clinic"))
    assert await roster.join("clinic", secret, request_of("clinic")) == first, "the answer may have been lost"
    with capture_logs() as lines, pytest.raises(ConflictError, match="this invitation has been used"):
        await roster.join("clinic", secret, request_of("clinic", "u" * 43))
    assert [(line["event"], line["name"]) for line in lines] == [("invitation used twice", "clinic")]
    wrong = request_of("clinic").model_copy(update={"signature": "0" * 128})
    with pytest.raises(InvalidInputError, match="signature: not by the key that it names"):
        await roster.join("clinic", secret, wrong)


async def test_a_key_is_one_members_and_a_member_keeps_its_key(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    await roster.join("clinic", hash_token((await invited(roster, "clinic")).secret), request_of("clinic"))
    await roster.confirm("clinic", " ".join(words_of(public_hex(KEYS["clinic"]))))
    other = request_of("clinic").signed("ward", KEYS["clinic"])
    with pytest.raises(ConflictError, match="this key is clinic's: each party needs its own"):
        await roster.join("ward", hash_token((await invited(roster, "ward")).secret), other)
    secret, line = hash_token((await invited(roster, "clinic")).secret), roster.parties["clinic"]._line
    with pytest.raises(ConflictError, match="clinic has joined with another key: have it removed first"):
        await roster.join("clinic", secret, request_of("ward").signed("clinic", KEYS["ward"]))
    await roster.join("clinic", secret, request_of("clinic", "u" * 43))
    assert roster.store.members["clinic"].confirmed, "by the same key"
    assert roster.parties["clinic"]._line is not line, "runs go on with its new token"
    assert roster.store.members["clinic"].token == "u" * 43


async def test_a_member_gets_a_certificate_of_its_name_and_renews_it(tmp_path: Path) -> None:
    authority = make_authority("authority", timedelta(days=9))
    (tmp_path / "authority.pem").write_text(authority.certificate_pem)
    (tmp_path / "authority.key").write_text(authority.key_pem)
    (tmp_path / "authority.key").chmod(0o600)
    joining = SimpleNamespace(
        url="https://learner.example", authority=tmp_path / "authority.pem", authority_key=tmp_path / "authority.key"
    )
    roster = roster_at(tmp_path / "state", joining=joining, tls=True)
    invitation = await invited(roster, "clinic")
    assert invitation.authority == authority.certificate_pem
    mine = make_authority("clinic", timedelta(days=1))
    request = request_of("clinic", csr=mine.request())
    membership = await roster.join("clinic", hash_token(invitation.secret), request)
    assert roster.needs_certificate("clinic")
    assert not roster.needs_certificate("ward")
    renewed = await roster.renew("clinic", CertificateRequest(certificate_request=mine.request()))
    for answer in (membership, renewed):
        assert answer.name == "clinic"
        assert answer.certificate is not None
        certificate = Credentials.read(answer.certificate.encode(), mine.key_pem.encode())
        assert hosts_of(certificate.certificate)[0] == "clinic"
    with pytest.raises(NotFoundError, match="nobody has joined as ward"):
        await roster.renew("ward", CertificateRequest(certificate_request=mine.request()))


async def test_a_party_is_invited_for_studies_and_a_key_holder_without(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    with pytest.raises(InvalidInputError, match="studies: a party must hold rows of at least one: name it"):
        await roster.invite(InvitationRequest(name="clinic"))
    with pytest.raises(InvalidInputError, match="studies: unknown: other; there are made-up"):
        await roster.invite(InvitationRequest(name="clinic", studies=("made-up", "other")))
    sealed = await roster.invite(InvitationRequest(name="ward", role="key_holder"))
    invitation = Invitation.opened(sealed.text, datetime.now(UTC))
    assert (invitation.role, invitation.studies) == ("key_holder", ())
    await roster.join("ward", hash_token(invitation.secret), request_of("ward"))
    await roster.confirm("ward", " ".join(words_of(public_hex(KEYS["ward"]))))
    assert (roster.parties, roster.sums.party_keys) == ({}, {})
    assert roster.sums.holders["ward"].name == "ward"
    assert [key.name for key in roster.keys("clinic").key_holders] == ["ward"]
    with pytest.raises(ConflictError, match="ward has joined as a key holder"):
        await roster.invite(InvitationRequest(name="ward", studies=("made-up",)))
