"""What two operators do to the roster at one time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError
from structlog.testing import capture_logs

from parley.common.client.awaited import Switchboard
from parley.common.client.endpoints import PartyEntry, PeerEntry
from parley.common.encoding.key_words import words_of
from parley.common.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from parley.common.protocol.receipts import Head, read_receipt, write_receipt
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.tokens import InvitedCaller, PeerCaller, hash_token
from parley.common.storage.certificates import Credentials, hosts_of, issue, make_authority
from parley.common.wire.membership import CertificateRequest, Invitation, JoinRequest, KnownKey, MemberRole
from parley.learner.api import membership
from parley.learner.api.membership import Confirmation, InvitationRequest, LiveRoster, renew_own, renewals
from parley.learner.settings import KeyHolderEntry
from parley.learner.storage.known_parties import KnownParties
from parley.learner.storage.roster_store import Invited, JoinedMember, RosterStore, check_agreed
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
    roster = LiveRoster(UNUSED, UNUSED, UNUSED, {}, UNUSED, store, {}, dict, UNUSED)
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
    roster = LiveRoster(settings, UNUSED, UNUSED, {}, UNUSED, RosterStore(tmp_path), {}, dict, UNUSED)
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
    return LiveRoster(
        used, LEARNERS_KEY, Switchboard(), {}, cast("Any", sums), stored, studies, dict, KnownParties(folder / "known")
    )


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


async def test_a_member_whose_words_nobody_compared_is_named_until_somebody_does(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    await roster.join("clinic", hash_token((await invited(roster, "clinic")).secret), request_of("clinic"))
    with capture_logs() as lines:
        await roster.confirm("clinic", None)
    assert [(line["event"], line["log_level"]) for line in lines] == [("confirmed unchecked", "warning")]
    assert [(view.state, view.unchecked) for view in roster.views()] == [("member", True)]
    secret = hash_token((await invited(roster, "clinic")).secret)
    await roster.join("clinic", secret, request_of("clinic", "u" * 43))
    assert RosterStore(tmp_path).members["clinic"].unchecked, "new tokens compare no words"
    line = roster.parties["clinic"]._line
    await roster.confirm("clinic", " ".join(words_of(public_hex(KEYS["clinic"]))))
    assert [(view.state, view.unchecked) for view in roster.views()] == [("member", False)]
    assert roster.parties["clinic"]._line is line, "its connection stays"
    await roster.confirm("clinic", None)
    assert not roster.store.members["clinic"].unchecked, "what was compared stays so"
    for faulty in ({}, {"words": "a", "unchecked": True}):
        with pytest.raises(ValidationError, match="say the words, or that they are unchecked"):
            Confirmation.model_validate(faulty)


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


async def test_an_invitation_that_counts_is_listed_with_its_studies_until_another_takes_its_place(
    tmp_path: Path,
) -> None:
    roster = replace(
        roster_at(tmp_path),
        studies={name: made_up(3).model_copy(update={"name": name}) for name in ("made-up", "other", "third")},
    )
    for studies in (("made-up",), ("other", "third")):
        await roster.invite(InvitationRequest(name="clinic", studies=studies))
        assert [view.invited_to for view in roster.views()] == [studies]
    gone = replace(roster, studies={"third": roster.studies["third"]})
    assert [view.invited_to for view in gone.views()] == [("third",)], "another invitation can name it"


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


def roster_with_authority(folder: Path) -> LiveRoster:
    """A learner's roster whose authority, in the folder, signs certificates for nine days."""
    authority, made = folder / "authority.pem", make_authority("authority", timedelta(days=9))
    authority.write_text(made.certificate_pem)
    key = folder / "authority.key"
    key.write_text(made.key_pem)
    key.chmod(0o600)
    joining = SimpleNamespace(url="https://learner.example", authority=authority, authority_key=key)
    return roster_at(folder / "state", joining=joining, tls=True)


async def test_a_member_gets_a_certificate_of_its_name_and_renews_it(tmp_path: Path) -> None:
    roster = roster_with_authority(tmp_path)
    invitation = await invited(roster, "clinic")
    assert invitation.authority == (tmp_path / "authority.pem").read_text()
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
    with pytest.raises(InvalidInputError, match="unknown study 'other'; there are made-up"):
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


async def test_an_invitation_is_kept_with_all_that_it_grants(tmp_path: Path) -> None:
    roster, before = roster_at(tmp_path), datetime.now(UTC)
    sealed = await roster.invite(InvitationRequest(name="clinic", studies=("made-up",)))
    invitation = Invitation.opened(sealed.text, before)
    (study,) = invitation.studies
    assert study == SignedStudy.sign(made_up(3), "learner", LEARNERS_KEY)
    assert before + timedelta(hours=72) <= invitation.expires <= datetime.now(UTC) + timedelta(hours=72)
    kept = Invited(
        name="clinic",
        role="party",
        secret_hash=hash_token(invitation.secret),
        expires=invitation.expires,
        studies=("made-up",),
        digests={"made-up": made_up(3).digest},
    )
    assert roster.store.invited == RosterStore(tmp_path).invited == {"clinic": kept}
    unknown = {"public_key": None, "connected": None, "studies": (), "invited_to": ("made-up",), "unchecked": False}
    assert [view.model_dump() for view in roster.views()] == [
        {"name": "clinic", "role": "party", "state": "invited", "expires": invitation.expires, **unknown}
    ]
    short = await roster.invite(InvitationRequest(name="ward", studies=("made-up",), hours=1))
    expires = Invitation.opened(short.text, before).expires
    assert before + timedelta(hours=1) <= expires <= datetime.now(UTC) + timedelta(hours=1)


async def test_a_member_is_kept_with_what_it_joined_with(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    invitation, before = await invited(roster, "clinic"), datetime.now(UTC)
    with capture_logs() as lines:
        await roster.join("clinic", hash_token(invitation.secret), request_of("clinic"))
    assert lines == [{"event": "joined", "name": "clinic", "role": "party", "log_level": "info"}]
    member = roster.store.members["clinic"]
    assert before <= member.joined <= datetime.now(UTC)
    assert member == JoinedMember(
        name="clinic",
        role="party",
        public_key=public_hex(KEYS["clinic"]),
        connects_with=hash_token("t" * 43),
        token="t" * 43,
        joined=member.joined,
        confirmed=False,
        studies=("made-up",),
        digests={"made-up": made_up(3).digest},
        secret_hash=hash_token(invitation.secret),
        expires=invitation.expires,
    )
    assert RosterStore(tmp_path).members == {"clinic": member}
    assert roster.store.invited == RosterStore(tmp_path).invited == {}
    peer, secret = roster.tokens()
    assert (peer.hash, peer.caller) == (member.connects_with, PeerCaller("clinic"))
    assert (secret.hash, secret.caller) == (member.secret_hash, InvitedCaller("clinic"))


async def test_a_study_that_changed_after_owners_agreed_is_refused_by_name(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    for name in ("clinic", "ward"):
        invitation = await invited(roster, name)
        await roster.join(name, hash_token(invitation.secret), request_of(name))
    agreed, changed = made_up(3), made_up(3).model_copy(update={"hold_out": 0.1})
    check_agreed({"made-up": agreed, "other": changed}, roster.store.members.values())
    check_agreed({}, roster.store.members.values())
    with pytest.raises(ConflictError, match=r"the study 'made-up' of clinic, ward .*\(hold_out.* new name and invite"):
        check_agreed({"made-up": changed}, roster.store.members.values())
    older = [member.model_copy(update={"digests": {}}) for member in roster.store.members.values()]
    check_agreed({"made-up": changed}, older)


async def test_an_invitation_to_a_study_that_changed_since_admits_nobody(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    invitation = await invited(roster, "clinic")
    changed = {"made-up": made_up(3).model_copy(update={"hold_out": 0.1})}
    with pytest.raises(ConflictError, match="the study 'made-up' of clinic has other settings"):
        await replace(roster, studies=changed).join("clinic", hash_token(invitation.secret), request_of("clinic"))
    assert roster.store.members == {}


async def test_what_has_expired_lets_nobody_in(tmp_path: Path) -> None:
    roster = roster_at(tmp_path)
    invitation = await invited(roster, "clinic")
    await roster.join("clinic", hash_token(invitation.secret), request_of("clinic"))
    await invited(roster, "ward")
    past = datetime.now(UTC) - timedelta(seconds=1)
    roster.store.keep(roster.store.members["clinic"].model_copy(update={"expires": past}))
    roster.store.invite(roster.store.invited["ward"].model_copy(update={"expires": past}))
    assert [token.caller for token in roster.tokens()] == [PeerCaller("clinic")]
    await roster.invite(InvitationRequest(name="other", studies=("made-up",)))
    assert set(roster.store.invited) == set(RosterStore(tmp_path).invited) == {"other"}


async def test_members_of_before_take_part_again_once_confirmed(tmp_path: Path) -> None:
    first = roster_at(tmp_path)
    for name in KEYS:
        await first.join(name, hash_token((await invited(first, name)).secret), request_of(name))
    await first.confirm("clinic", " ".join(words_of(public_hex(KEYS["clinic"]))))
    again = roster_at(tmp_path)
    receipt = read_receipt(write_receipt(KEYS["clinic"], signer="clinic", ledger="0" * 64, head=Head(3, "0" * 64)).text)
    object.__setattr__(again, "receipts", lambda: {"clinic": receipt})
    again.begin()
    assert set(again.parties) == set(again.sums.party_keys) == {"clinic"}
    assert again.sums.party_keys["clinic"] == public_hex(KEYS["clinic"])
    assert again.parties["clinic"].receipts.newest == receipt
    taken = roster_at(tmp_path, parties=[SimpleNamespace(name="ward", public_key=None, url=None)])
    with pytest.raises(ConflictError, match=r"^ward is in the settings file already$"):
        taken.begin()


async def test_the_roster_is_told_by_name_with_its_keys(tmp_path: Path) -> None:
    entries = {
        "parties": [
            PartyEntry(name="zoo", url="http://127.0.0.1:1", token="t", public_key="0c" * 32),
            PartyEntry(name="away", connects_with=f"sha256:{'0' * 64}", token="t"),
        ],
        "key_holders": [
            KeyHolderEntry(name="notary", url="http://127.0.0.1:2", token="t", public_key="0d" * 32),
        ],
    }
    roster = roster_at(tmp_path, **entries)
    for name in KEYS:
        await roster.join(name, hash_token((await invited(roster, name)).secret), request_of(name))
    await roster.confirm("ward", " ".join(words_of(public_hex(KEYS["ward"]))))
    expected: list[tuple[str, str, str, str | None, bool | None, tuple[str, ...]]] = [
        ("away", "party", "settings", None, False, ()),
        ("clinic", "party", "unconfirmed", None, False, ("made-up",)),
        ("notary", "key_holder", "settings", "0d" * 32, None, ()),
        ("ward", "party", "member", public_hex(KEYS["ward"]), False, ("made-up",)),
        ("zoo", "party", "settings", "0c" * 32, None, ()),
    ]
    fields = ("name", "role", "state", "public_key", "connected", "studies")
    assert [tuple(getattr(view, field) for field in fields) for view in roster.views()] == expected
    assert all(view.expires is None for view in roster.views())
    keys = roster.keys("zoo")
    assert keys.parties == (KnownKey(name="ward", public_key=public_hex(KEYS["ward"])),)
    assert keys.key_holders == (KnownKey(name="notary", public_key="0d" * 32),)
    invitation = await invited(roster, "another")
    assert (invitation.parties, invitation.key_holders) == (roster.keys("").parties, keys.key_holders)
    with pytest.raises(ConflictError, match=r"^ward is invited") as near:
        await roster.invite(InvitationRequest(name="Ward", studies=("made-up",)))
    assert near.value.detail == "ward is invited or has joined: say ward, or a name that differs by more than capitals"


async def test_a_learner_without_joining_or_studies_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"^this learner invites nobody: its settings have no \[joining\]$"):
        await roster_at(tmp_path, joining=None).invite(InvitationRequest(name="clinic", studies=("made-up",)))
    roster = roster_at(tmp_path)
    object.__setattr__(roster, "studies", {})
    with pytest.raises(InvalidInputError, match=r"^unknown study 'a'; there are none$"):
        await roster.invite(InvitationRequest(name="clinic", studies=("a", "b")))


@pytest.mark.parametrize(("tls", "key", "needs"), [(True, True, True), (None, True, False), (True, None, False)])
async def test_a_certificate_is_needed_where_the_learner_gives_one(
    tmp_path: Path, tls: object, key: object, needs: object
) -> None:
    joining = SimpleNamespace(url="https://learner.example", authority=None, authority_key=key)
    roster = roster_at(tmp_path, joining=joining, tls=tls)
    await roster.join("clinic", hash_token((await invited(roster, "clinic")).secret), request_of("clinic"))
    assert roster.needs_certificate("clinic") is needs
    assert not roster.needs_certificate("nobody")
    with pytest.raises(InvalidInputError, match="gives no certificates") if not needs else nullcontext():
        assert (await roster.renew("clinic", CertificateRequest(certificate_request="x"))).certificate is None


async def test_a_renewal_is_logged_and_a_request_that_is_none_refused(tmp_path: Path) -> None:
    roster = roster_with_authority(tmp_path)
    await roster.join("clinic", hash_token((await invited(roster, "clinic")).secret), request_of("clinic"))
    with pytest.raises(InvalidInputError, match=r"^certificate_request: this cannot be signed$"):
        await roster.renew("clinic", CertificateRequest(certificate_request="x"))
    mine = make_authority("clinic", timedelta(days=1))
    with capture_logs() as lines:
        await roster.renew("clinic", CertificateRequest(certificate_request=mine.request()))
    assert lines == [{"event": "certificate renewed", "name": "clinic", "log_level": "info"}]


async def test_members_are_asked_with_their_token_and_hold_to_their_key_and_receipts(tmp_path: Path) -> None:
    entries: list[PeerEntry] = []
    roster = roster_at(tmp_path)

    def connect(entry: PeerEntry) -> str:
        entries.append(entry)
        return f"the line of {entry.name}"

    object.__setattr__(roster, "board", SimpleNamespace(connect=connect))
    newest = {
        name: read_receipt(write_receipt(LEARNERS_KEY, signer=name, ledger="0" * 64, head=Head(3, "0" * 64)).text)
        for name in KEYS
    }
    now = datetime.now(UTC)
    roles: list[tuple[str, MemberRole]] = [("clinic", "party"), ("ward", "key_holder")]
    for name, role in roles:
        member = JoinedMember(
            name=name, role=role, public_key=public_hex(KEYS[name]), connects_with=hash_token(name), token=name * 9,
            joined=now, confirmed=True, studies=(), secret_hash=hash_token("x"), expires=now,
        )  # fmt: skip
        roster._admit(member, newest)
    assert [(entry.name, entry.connects_with, entry.token_text()) for entry in entries] == [
        (name, hash_token(name), name * 9) for name in KEYS
    ]
    holders = cast("Any", roster.sums.holders)
    assert (list(roster.parties), list(holders), roster.sums.party_keys) == (
        ["clinic"],
        ["ward"],
        {"clinic": public_hex(KEYS["clinic"])},
    )
    for name, peer in (("clinic", roster.parties["clinic"]), ("ward", holders["ward"])):
        assert (peer.name, cast("Any", peer._line), peer.receipts.newest) == (name, f"the line of {name}", newest[name])
        assert peer.receipts.key == public_hex(KEYS[name])


def test_the_renewal_is_of_the_settings_own_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "renewing", lambda *given: given)
    settings = cast("Any", SimpleNamespace(name="learner", tls=object(), joining=SimpleNamespace(authority_key="key")))
    ((name, renewal),) = cast("Any", renewals(settings))
    assert name == "learner"
    assert (renewal.func, renewal.args) == (renew_own, (settings.tls, settings.joining, "learner"))


def test_a_certificate_is_renewed_beside_a_learner_that_has_an_authority() -> None:
    joining = SimpleNamespace(authority_key="key")
    for settings, count in (
        ({"tls": True, "joining": joining}, 1),
        ({"tls": None, "joining": joining}, 0),
        ({"tls": True, "joining": None}, 0),
        ({"tls": True, "joining": SimpleNamespace(authority_key=None)}, 0),
    ):
        assert len(renewals(cast("Any", SimpleNamespace(name="learner", **settings)))) == count


def test_the_learners_own_certificate_is_renewed_by_its_own_authority_when_due(tmp_path: Path) -> None:
    def keep(name: str, pair: Any) -> tuple[Path, Path]:  # noqa: ANN401 -- a certificate and its key
        files = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        for path, text in zip(files, (pair.certificate_pem, pair.key_pem), strict=True):
            path.write_text(text)
            path.chmod(0o600)
        return files

    authority, other = (make_authority(name, timedelta(days=99)) for name in ("authority", "other"))
    (authority_file, authority_key), (other_file, other_key) = keep("authority", authority), keep("other", other)
    for lifetime, files, is_renewed in (
        (timedelta(0), (authority_file, authority_key), True),
        (timedelta(days=9), (authority_file, authority_key), False),
        (timedelta(0), (other_file, other_key), False),
        (timedelta(0), (None, authority_key), False),
        (timedelta(0), (authority_file, None), False),
    ):
        mine = issue(authority, ["learner"], lifetime)
        certificate, key = keep("mine", mine)
        tls, joining = SimpleNamespace(certificate=certificate, key=key), SimpleNamespace(authority=files[0])
        joining.authority_key = files[1]
        with capture_logs() as lines:
            renew_own(cast("Any", tls), cast("Any", joining), "learner")
        assert (certificate.read_text() != mine.certificate_pem) is is_renewed
        assert [line["learner"] for line in lines] == ["learner"] * is_renewed
