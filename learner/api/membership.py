"""Lets owners join while the learner runs: an operator invites them, and two people compare six words to confirm them.

An invitation has a secret, which an owner's party or key holder presents once to join. It then exchanges tokens with
the learner and, if the learner has an authority's key, gets a certificate. It takes part once the operator has
confirmed the words of its key.

Parties and key holders that the learner cannot reach connect to it themselves: see `parley.common.client.awaited`. If
the learner's own certificate is signed by its own authority, the learner renews it before it expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field, model_validator

from parley.common.client.awaited import Switchboard
from parley.common.client.endpoints import PartyEntry, PeerEntry
from parley.common.client.outbound import UPGRADE, is_due, keep_renewed, read_credentials, renewing
from parley.common.client.party import PartyClient
from parley.common.data.study import Study
from parley.common.encoding.key_words import check_words, words_of
from parley.common.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from parley.common.protocol.receipts import Receipt
from parley.common.routes import CONNECT, JOIN, RENEW_CERTIFICATE, SHOW_KEYS
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.common.secure_sum.paillier import require_gmpy2
from parley.common.service.application import answers
from parley.common.service.http.bodies import large_json
from parley.common.service.http.connections import TAKE_OVER, Beside
from parley.common.service.http.tls import read_authority
from parley.common.service.settings import Tls
from parley.common.service.tokens import InvitedCaller, KnownToken, PeerCaller, hash_of_bearer, hash_token, new_token
from parley.common.storage.certificates import Credentials, answer_request, pem_of, renew
from parley.common.storage.keys import read_private
from parley.common.strict import Identifier, PlainName, Strict
from parley.common.wire.membership import (
    CertificateRequest,
    Invitation,
    JoinRequest,
    KnownKey,
    MemberRole,
    Membership,
    RosterKeys,
)
from parley.learner.api import routes
from parley.learner.api.roles import check_certified, invited_name, peer_name
from parley.learner.api.schemas import MemberName
from parley.learner.secure_sum.key_holder_client import KeyHolderClient
from parley.learner.settings import Joining, KeyHolderEntry, LearnerSettings
from parley.learner.storage.known_parties import KnownParties
from parley.learner.storage.roster_store import Invited, JoinedMember, RosterStore, check_agreed
from parley.learner.storage.study_folder import find_study

if TYPE_CHECKING:
    from parley.learner.secure_sum.coordinator import SecureSumCoordinator


class InvitationRequest(Strict):
    """A request to invite a party or key holder."""

    name: Annotated[Identifier, Field(description="what the party or key holder will be called")]
    role: MemberRole = "party"
    studies: Annotated[
        tuple[PlainName, ...], Field(description="names of studies that the party is asked to hold rows of")
    ] = ()
    hours: Annotated[float, Field(gt=0, le=24 * 90, description="how long the invitation counts")] = 72.0


class SealedInvitation(BaseModel):
    """An invitation's file, and the words to read out."""

    text: Annotated[str, Field(description="the file's content: hand it over like a password")]
    words: Annotated[tuple[str, ...], Field(description="words of this learner's key, to read to the invited owner")]


class Confirmation(Strict):
    """The words that a new member's owner has read out; or, said plainly, that nobody compares them."""

    words: Annotated[str | None, Field(max_length=200, description="the six words of its key")] = None
    unchecked: Annotated[
        bool, Field(description="true, without words: nobody compares them, as the roster says from then on")
    ] = False

    @model_validator(mode="after")
    def _words_or_none(self) -> Self:
        if (self.words is None) != self.unchecked:
            raise ValueError("say the words, or that they are unchecked")
        return self


class MemberView(BaseModel):
    """An owner that is invited or has joined."""

    name: Identifier
    role: MemberRole
    state: Annotated[str, Field(description="invited, unconfirmed, or member; settings: by the settings file")]
    unchecked: Annotated[bool, Field(description="whether it is a member whose words nobody has compared")] = False
    public_key: Annotated[
        str | None, Field(description="its key; null until it is confirmed, so that only its owner can read its words")
    ]
    connected: Annotated[bool | None, Field(description="whether it is connected; null unless it connects itself")]
    expires: datetime | None
    studies: tuple[str, ...] = ()
    invited_to: Annotated[
        tuple[str, ...], Field(description="studies of an invitation that counts: another takes its place")
    ] = ()


@dataclass(frozen=True, slots=True)
class LiveRoster:
    """Adds members to ``parties`` and to the key holders of ``sums``, and removes them, while the learner runs."""

    settings: LearnerSettings
    key: Ed25519PrivateKey
    board: Switchboard
    parties: dict[str, PartyClient]
    sums: SecureSumCoordinator
    store: RosterStore
    studies: Mapping[str, Study]
    receipts: Callable[[], Mapping[str, Receipt]]
    known: KnownParties
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during each change of the roster, so that one follows the other."""

    def begin(self) -> None:
        """Admit the members that have joined before; raises ConflictError if the settings have one of their names."""
        for member in self.store.members.values():
            self._check_free(member.name)
            if member.confirmed:
                self._admit(member, self.receipts())

    def tokens(self) -> Iterable[KnownToken]:
        """Yield the tokens with which members connect, and the secrets with which invited owners join."""
        now = datetime.now(UTC)
        for member in self.store.members.values():
            yield KnownToken(member.connects_with, PeerCaller(member.name))
            if member.expires > now:
                yield KnownToken(member.secret_hash, InvitedCaller(member.name))
        for invited in self.store.invited.values():
            if invited.expires > now:
                yield KnownToken(invited.secret_hash, InvitedCaller(invited.name))

    async def invite(self, request: InvitationRequest) -> SealedInvitation:
        """Make an invitation. A member that is invited again keeps its key.

        It adds a study that it did not hold; otherwise it gets new tokens and a new certificate.
        """
        async with self.lock:
            return await asyncio.to_thread(self._invite, request)

    def _invite(self, request: InvitationRequest) -> SealedInvitation:
        joining = self.settings.joining
        if joining is None:
            raise InvalidInputError("this learner invites nobody: its settings have no [joining]")
        self._check_free(request.name)
        self._check_apart(request.name)
        studies = [find_study(self.studies, name) for name in dict.fromkeys(request.studies)]
        if request.role == "party" and not request.studies:
            raise InvalidInputError("studies: a party must hold rows of at least one: name it")
        if (member := self.store.members.get(request.name)) and member.role != request.role:
            raise ConflictError(f"{request.name} has joined as a {member.role.replace('_', ' ')}")
        if request.role == "key_holder":
            require_gmpy2()
        secret, expires = new_token(), datetime.now(UTC) + timedelta(hours=request.hours)
        invitation = Invitation(
            name=request.name,
            role=request.role,
            learner=KnownKey(name=self.settings.name, public_key=public_hex(self.key)),
            url=str(joining.url).rstrip("/"),
            authority=read_authority(joining.authority) if joining.authority else None,
            secret=secret,
            expires=expires,
            studies=tuple(SignedStudy.sign(study, self.settings.name, self.key) for study in studies),
            parties=self._keys_of("party", but=request.name),
            key_holders=self._keys_of("key_holder", but=request.name),
        )
        self.store.expire(datetime.now(UTC))
        self.store.invite(
            Invited(
                name=request.name,
                role=request.role,
                secret_hash=hash_token(secret),
                expires=expires,
                studies=tuple(study.name for study in studies),
                digests={study.name: study.digest for study in studies},
            )
        )
        return SealedInvitation(text=invitation.sealed(self.key), words=words_of(public_hex(self.key)))

    async def join(self, name: str, secret_hash: str, request: JoinRequest) -> Membership:
        """Add a member that presents a secret of this hash. A repeated request gets the same answer.

        Raises ConflictError for a secret that another request has used, that was replaced, or a key that is not free.
        """
        async with self.lock:
            membership = await asyncio.to_thread(self._join, name, secret_hash, request)
            if (member := self.store.members[name]).confirmed:
                self._admit(member, await asyncio.to_thread(self.receipts))
            return membership

    def _join(self, name: str, secret_hash: str, request: JoinRequest) -> Membership:
        request.verify(name)
        earlier, invited = self.store.members.get(name), self.store.invited.get(name)
        if earlier is not None and earlier.secret_hash == secret_hash:
            if (earlier.public_key, earlier.connects_with) != (request.public_key, request.connects_with):
                structlog.get_logger().warning("invitation used twice", name=name)
                raise ConflictError("this invitation has been used: if not by you, tell the operator of the learner")
            return self._membership(earlier, request)
        if invited is None or invited.secret_hash != secret_hash:
            raise ConflictError("this invitation does not count any more")
        if earlier is not None and earlier.public_key != request.public_key:
            raise ConflictError(f"{name} has joined with another key: have it removed first")
        check_agreed(self.studies, [invited])
        taken = {member.public_key: member.name for member in self.store.members.values() if member.name != name}
        if request.public_key in taken:
            raise ConflictError(f"this key is {taken[request.public_key]}'s: each party needs its own")
        member = JoinedMember(
            name=name,
            role=invited.role,
            public_key=request.public_key,
            connects_with=request.connects_with,
            token=request.token,
            joined=datetime.now(UTC),
            confirmed=earlier is not None and earlier.confirmed,
            unchecked=earlier is not None and earlier.unchecked,
            studies=tuple(dict.fromkeys((*(earlier.studies if earlier else ()), *invited.studies))),
            digests=(earlier.digests if earlier else {}) | invited.digests,
            secret_hash=invited.secret_hash,
            expires=invited.expires,
        )
        membership = self._membership(member, request)
        self.store.keep(member)
        structlog.get_logger().info("joined", name=name, role=member.role)
        return membership

    async def confirm(self, name: str, words: str | None) -> None:
        """Let a member take part; raises NotFoundError for an unknown name, InvalidInputError for wrong words.

        Without words, which nobody compares then, the roster says so until they are compared.
        """
        async with self.lock:  # otherwise a member that is removed or joins again meanwhile would be written back
            member = self._member(name)
            if words is not None:
                check_words(words, member.public_key, name)
            else:
                structlog.get_logger().warning("confirmed unchecked", name=name)
            if not member.confirmed or (member.unchecked and words is not None):
                confirmed = member.model_copy(update={"confirmed": True, "unchecked": words is None})
                await asyncio.to_thread(self.store.keep, confirmed)
                if not member.confirmed:
                    self._admit(confirmed, await asyncio.to_thread(self.receipts))

    async def renew(self, name: str, request: CertificateRequest) -> Membership:
        """Renew a member's certificate; raises NotFoundError, InvalidInputError for one without or a bad request."""
        if not self.needs_certificate(self._member(name).name):
            raise InvalidInputError("certificate_request: this learner gives no certificates")
        certificate = await asyncio.to_thread(self._certificate, name, request.certificate_request)
        structlog.get_logger().info("certificate renewed", name=name)
        return Membership(name=name, certificate=certificate)

    async def remove(self, name: str) -> None:
        """Remove a member or an invitation, so that it counts no more; raises NotFoundError if there is neither."""
        if name not in self.store.invited:
            self._member(name)
        async with self.lock:
            await asyncio.to_thread(self.store.remove, name)
            await asyncio.to_thread(self.known.forget, name)
        self.parties.pop(name, None)
        self.sums.holders.pop(name, None)
        self.sums.party_keys.pop(name, None)
        await self.board.drop(name)

    def keys(self, but: str) -> RosterKeys:
        """Return the keys of all members except ``but``, who asks.

        Raises ForbiddenError until that one is confirmed.
        """
        if (member := self.store.members.get(but)) and not member.confirmed:
            raise ForbiddenError(f"{but} has not been confirmed yet", rule="unconfirmed")
        return RosterKeys(parties=self._keys_of("party", but), key_holders=self._keys_of("key_holder", but))

    def needs_certificate(self, name: str) -> bool:
        """Say whether a member has a certificate from this learner, which it must show."""
        joining = self.settings.joining
        return name in self.store.members and bool(self.settings.tls and joining and joining.authority_key)

    def views(self) -> list[MemberView]:
        """Return all entries of the roster, in the order of their names."""
        views = {}
        entries: tuple[PartyEntry | KeyHolderEntry, ...] = (*self.settings.parties, *self.settings.key_holders)
        for entry in entries:
            role: MemberRole = "key_holder" if isinstance(entry, KeyHolderEntry) else "party"
            views[entry.name] = self._view(entry.name, role, "settings", entry.public_key, entry.url is None)
        for member in self.store.members.values():
            state = "member" if member.confirmed else "unconfirmed"
            key = member.public_key if member.confirmed else None
            view = self._view(member.name, member.role, state, key, is_awaited=True)
            views[member.name] = view.model_copy(update={"studies": member.studies, "unchecked": member.unchecked})
        for invited in self.store.invited.values():
            if invited.name not in views:
                views[invited.name] = MemberView(
                    name=invited.name, role=invited.role, state="invited", public_key=None, connected=None,
                    expires=invited.expires,
                )  # fmt: skip
            if invited.expires > datetime.now(UTC):
                offered = tuple(study for study in invited.studies if study in self.studies)
                views[invited.name] = views[invited.name].model_copy(update={"invited_to": offered})
        return [views[name] for name in sorted(views)]

    def _view(self, name: str, role: MemberRole, state: str, key: str | None, is_awaited: bool) -> MemberView:  # noqa: FBT001
        connected = self.board.is_connected(name) if is_awaited else None
        return MemberView(name=name, role=role, state=state, public_key=key, connected=connected, expires=None)

    def _member(self, name: str) -> JoinedMember:
        if name not in self.store.members:
            raise NotFoundError(f"nobody has joined as {name}; {', '.join(sorted(self.store.members)) or 'nobody'} did")
        return self.store.members[name]

    def _check_free(self, name: str) -> None:
        if name in self._settled:
            raise ConflictError(f"{name} is in the settings file already")

    def _check_apart(self, name: str) -> None:
        """Raise ConflictError if another name differs only by capitals: people could not tell the two apart."""
        learner = self.settings.name
        if name.casefold() == learner.casefold():
            raise ConflictError(f"{learner} is the learner itself: say another name")
        if near := _near(name, self._settled):
            raise ConflictError(f"{near} is in the settings file: say a name that differs by more than capitals")
        if near := _near(name, {*self.store.members, *self.store.invited} - {name}):
            raise ConflictError(
                f"{near} is invited or has joined: say {near}, or a name that differs by more than capitals"
            )

    @property
    def joined(self) -> dict[str, tuple[str, ...]]:
        """The names of the studies that members have joined for, by member."""
        return {member.name: member.studies for member in self.store.members.values()}

    @property
    def _settled(self) -> set[str]:
        """The names in the settings file."""
        return {entry.name for entry in (*self.settings.parties, *self.settings.key_holders)}

    def _keys_of(self, role: MemberRole, but: str) -> tuple[KnownKey, ...]:
        """Return the keys of all confirmed members of a role, and of those in the settings, except ``but``."""
        views = (
            view for view in self.views() if view.role == role and view.name != but and view.state != "unconfirmed"
        )
        return tuple(KnownKey(name=view.name, public_key=view.public_key) for view in views if view.public_key)

    def _membership(self, member: JoinedMember, request: JoinRequest) -> Membership:
        """Answer a join request; raises InvalidInputError for a certificate request that cannot be signed."""
        csr = request.certificate_request
        return Membership(name=member.name, certificate=csr and self._certificate(member.name, csr))

    def _certificate(self, name: str, request: str) -> str | None:
        """Return a certificate as PEM; None if this learner gives none.

        Raises InvalidInputError if it cannot be signed.
        """
        joining = self.settings.joining
        if joining is None or not (joining.authority and joining.authority_key):
            return None
        try:
            authority = Credentials.read(joining.authority.read_bytes(), read_private(joining.authority_key))
            return pem_of(answer_request(authority, request, name))
        except ValueError:
            raise InvalidInputError("certificate_request: this cannot be signed") from None

    def _admit(self, member: JoinedMember, receipts: Mapping[str, Receipt]) -> None:
        """Let a member take part from now on."""
        entry = {"name": member.name, "connects_with": member.connects_with, "token": member.token}
        line, newest = self.board.connect(PeerEntry.model_validate(entry)), receipts.get(member.name)
        if peer := self.parties.get(member.name) or self.sums.holders.get(member.name):
            peer.ask_over(line)  # runs go on with it
        elif member.role == "party":
            self.parties[member.name] = PartyClient(member.name, line, newest, member.public_key)
            self.sums.party_keys[member.name] = member.public_key
        else:
            self.sums.holders[member.name] = KeyHolderClient(member.name, line, member.public_key, newest)


def _near(name: str, others: Iterable[str]) -> str | None:
    """Return another name that differs from this one only by capitals, if there is one."""
    return next((other for other in others if other.casefold() == name.casefold()), None)


def add_membership(app: FastAPI, members: LiveRoster) -> None:
    """Add the routes of the roster."""

    @answers(app, routes.INVITE, status_code=201, summary="Invite an owner", tags=["roster"])
    async def invite_member(invitation: InvitationRequest) -> SealedInvitation:
        """Make a file to hand over, which counts once and until it expires, and the words to read out by telephone.

        A second invitation of a name replaces the first. A member that is invited again keeps its key. It adds a study
        that it did not hold; otherwise it gets new tokens and a new certificate.
        """
        return await members.invite(invitation)

    @answers(app, routes.SHOW_ROSTER, summary="Who is invited, and who has joined", tags=["roster"])
    def show_roster() -> list[MemberView]:
        """List them, and say whether they are connected. Only its owner reads out the words of a member's key."""
        return members.views()

    @answers(app, JOIN, summary="Join", tags=["roster"])
    @large_json
    async def join_roster(member: JoinRequest, request: Request) -> Membership:
        """Take an invitation's secret as the bearer token. The same request again gets the same answer."""
        secret_hash = hash_of_bearer(request.headers["authorization"])
        return await members.join(invited_name(request), secret_hash, member)

    @answers(app, SHOW_KEYS, summary="The keys of the others, for a member", tags=["roster"])
    def show_keys(request: Request) -> RosterKeys:
        """List the keys of parties and key holders, which a member's owner may pin once words have been compared."""
        return members.keys(but=peer_name(request))

    @answers(app, RENEW_CERTIFICATE, summary="Have one's certificate renewed, as a member", tags=["roster"])
    async def renew_certificate(renewal: CertificateRequest, request: Request) -> Membership:
        """Signs for the caller's name, whichever the request has; the caller must show its present certificate."""
        name = peer_name(request)
        check_certified(request, name)
        return await members.renew(name, renewal)

    @answers(app, routes.CONFIRM_MEMBER, status_code=204, summary="Confirm a member", tags=["roster"])
    async def confirm_member(name: MemberName, confirmation: Confirmation) -> None:
        """Lets a member take part: the words that its owner reads out must be those of its key.

        Where nobody compares them, such as in a trial on one machine, say so: the roster names such a member.
        """
        await members.confirm(name, confirmation.words)

    @answers(app, routes.REMOVE_MEMBER, status_code=204, summary="Remove a member", tags=["roster"])
    async def remove_member(name: MemberName) -> None:
        """Remove a member: its tokens and its invitation count no more, and runs that need it pause.

        Its ledger stays with it.
        """
        await members.remove(name)


_SWITCHING = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n\r\n".encode()


def add_connections(app: FastAPI, board: Switchboard, needs_certificate: Callable[[str], bool]) -> None:
    """Add the route by which peers connect; those that ``needs_certificate`` names must show one for their name."""

    @answers(app, CONNECT, summary="Have a party or key holder asked on this connection", tags=["connections"])
    async def take_connection(request: Request) -> Response:
        """Answers 101; from then on the learner sends requests by HTTP/1.1, and the peer that has connected answers.

        Needs the token that `connects_with` of the roster names, and ``Connection: Upgrade``.
        """
        name = peer_name(request)
        if request.headers.get("upgrade", "").lower() != UPGRADE or TAKE_OVER not in request.scope.get("state", {}):
            raise InvalidInputError(f"this takes Connection: Upgrade and Upgrade: {UPGRADE}")
        if needs_certificate(name):
            check_certified(request, name)
        board.check(name)
        if not board.is_connected(name):
            structlog.get_logger().info("connected", peer=name)
        board.add(name, *request.scope["state"][TAKE_OVER](_SWITCHING))
        return Response(status_code=101)


def renewals(settings: LearnerSettings) -> list[Beside]:
    """Return the task that renews these settings' certificate beside the server; none if they name no authority."""
    tls, joining = settings.tls, settings.joining
    if tls is None or joining is None or joining.authority_key is None:
        return []
    return [renewing(settings.name, partial(renew_own, tls, joining, settings.name))]


def renew_own(tls: Tls, joining: Joining, name: str) -> None:
    """Renew the learner's certificate when a third of its lifetime is left, if the settings' authority signed it.

    An expired certificate is renewed too. Raises InvalidInputError if files cannot be read, UnavailableError if the
    new certificate cannot be written.
    """
    credentials = read_credentials(tls.certificate, tls.key)
    if not is_due(credentials) or joining.authority is None or joining.authority_key is None:
        return
    authority = read_credentials(joining.authority, joining.authority_key)
    if credentials.certificate.issuer == authority.certificate.subject:
        keep_renewed(tls.certificate, renew(authority, credentials), name)
