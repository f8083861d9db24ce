"""The learner's settings: ``learner.toml`` and ``PARLEY_LEARNER_*``; see `parley.common.service.settings`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, HttpUrl, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from parley.common.client.endpoints import PartyEntry, PeerEntry
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.files.studies import read_study
from parley.common.secure_sum.messages import MAX_KEY_HOLDERS
from parley.common.service.http.proxy import ProxyUrl
from parley.common.service.settings import ServiceSettings, Shares
from parley.common.service.tokens import Caller, KnownToken, PeerCaller
from parley.common.strict import Identifier, Name, PlainName, PublicKey, Setting, is_protected

_MOST_PARTIES = 10_000
"""Each is a connection."""


class KeyHolderEntry(PeerEntry):
    """A key holder; the parties must pin the same ones."""

    public_key: Annotated[
        PublicKey, Field(description="its Ed25519 key, as `parley-party keyholder identity` prints it")
    ]


UserRole = Literal["viewer", "submitter", "operator"]
"""What a user may do; each role may do all that the one before may.

A viewer looks, forecasts and predicts; a submitter also submits runs, ends and resumes its own, and uploads public
rows; an operator also ends and resumes those of others."""


class UserEntry(Caller):
    """A user of this learner."""

    name: Annotated[Identifier, Field(description="the user's name, noted with each run")]
    role: Annotated[
        UserRole,
        Field(
            description="what the user may do: look, forecast and predict (viewer); also submit runs, end and resume "
            "its own, and upload public rows (submitter); also end and resume those of others (operator)"
        ),
    ] = "submitter"


class SignIn(Setting):
    """How people sign in to the page: at an identity provider that speaks OpenID Connect."""

    issuer: Annotated[
        str,
        Field(
            max_length=1000,
            description="the provider's issuer, https://, spelt as in its document below /.well-known/",
        ),
    ]
    client_id: Annotated[str, Field(min_length=1, max_length=200, description="this learner's name at the provider")]
    client_secret_file: Annotated[
        Path | None, Field(description="file that holds the client's secret; unset for a public client")
    ] = None
    url: Annotated[
        HttpUrl,
        Field(description="where browsers reach this learner, https://; the provider sends them to /sign-in/callback"),
    ]
    provider: Annotated[PlainName, Field(description="what the page calls the provider")] = "your organisation"
    scopes: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")], ...],
        Field(description="scopes to ask for beside openid"),
    ] = ("profile",)
    name_claim: Annotated[
        str,
        Field(
            min_length=1,
            description="claim whose value names the user for ever; sub is the only one that no provider gives to "
            "somebody else later, or lets people choose; of email, only verified ones count",
        ),
    ] = "sub"
    role_claim: Annotated[
        tuple[str, ...],
        Field(min_length=1, description='claim whose values give the role; ["realm_access", "roles"] if nested'),
    ] = ("roles",)
    roles: Annotated[
        dict[str, UserRole],
        Field(min_length=1, description="role by value of that claim; the highest counts, and without one none enters"),
    ]
    renew_minutes: Annotated[
        float,
        Field(
            gt=0,
            le=1440,
            description="the provider is asked this often whether a session may go on; without a refresh token, "
            "or an ID token in the answer, it ends",
        ),
    ] = 10.0
    session_hours: Annotated[float, Field(gt=0, le=720, description="a session ends after so long in any case")] = 10.0
    leeway_seconds: Annotated[
        float, Field(ge=0, le=300, description="how far the provider's clock and this machine's may be apart")
    ] = 60.0
    ca: Annotated[
        Path | None, Field(description="PEM file of the authority that signed its certificate; the system's if unset")
    ] = None
    proxy: Annotated[ProxyUrl | None, Field(description="HTTP proxy on the way to it, http://host:port")] = None

    @model_validator(mode="after")
    def _protected(self) -> Self:
        for name, text in (("issuer", self.issuer), ("url", str(self.url))):
            if not is_protected(text):
                raise ValueError(f"{name}: https:// is needed; http:// is for this machine alone")
        if self.url.path not in {None, "/"} or self.url.query or self.url.fragment:
            raise ValueError("url: the page is at the root of its host: leave the path away")
        return self

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends a browser back to."""
        return f"{str(self.url).rstrip('/')}/sign-in/callback"


class Joining(Setting):
    """How owners join while the learner runs."""

    url: Annotated[HttpUrl, Field(description="where members reach this learner, as invitations say")]
    authority: Annotated[
        Path | None, Field(description="PEM of the authority that signs this learner's certificate, if it is its own")
    ] = None
    authority_key: Annotated[
        Path | None,
        Field(description="PEM of its private key: members get certificates by it, and have to show them"),
    ] = None

    @model_validator(mode="after")
    def _key_of_an_authority(self) -> Self:
        if self.authority_key is not None and self.authority is None:
            raise ValueError("authority_key needs authority")
        return self


class LearnerShares(Shares):
    """What one user may have at a time."""

    streams: Annotated[int, Field(ge=1, description="event streams that one user may have open")] = 16
    queued_runs: Annotated[int, Field(ge=1, description="runs of one user that have not come to an end")] = 100
    uploads: Annotated[
        int, Field(ge=1, description="uploads of one user that arrive or wait; they are read one after the other")
    ] = 8
    forecasts: Annotated[
        int, Field(ge=1, description="forecasts of one user that wait; they are computed one after the other")
    ] = 16


class Retention(Setting):
    """For how many days the learner keeps what runs that have ended left; without a number, for ever."""

    log_days: Annotated[
        float | None,
        Field(ge=0, description="days after a run's end for which its replies and the news of its rounds are kept"),
    ] = None
    run_days: Annotated[
        float | None,
        Field(
            ge=0, description="days after a run's end for which all else of it is kept, its model and certificate too"
        ),
    ] = None
    public_days: Annotated[
        float | None,
        Field(ge=0, description="days for which public rows and starting weights that no run names are kept"),
    ] = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.log_days is not None and self.run_days is not None and self.run_days < self.log_days:
            raise ValueError("run_days must not be below log_days: a run is deleted with its log")
        return self


class LearnerSettings(ServiceSettings):
    """The roster, the users, and how long the learner waits for parties."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_LEARNER_")
    callers_key: ClassVar[str] = "users"

    parties: Annotated[
        tuple[PartyEntry, ...], Field(max_length=_MOST_PARTIES, description="the roster; others join by invitations")
    ] = ()
    key_holders: Annotated[
        tuple[KeyHolderEntry, ...],
        Field(max_length=MAX_KEY_HOLDERS, description="who open secure sums, all of them each; none: no secure sum"),
    ] = ()
    joining: Annotated[Joining | None, Field(description="how owners are invited; if unset, nobody is")] = None
    users: Annotated[tuple[UserEntry, ...], Field(min_length=1, description="who may use this learner by tokens")]
    sign_in: Annotated[
        SignIn | None, Field(description="how people sign in at an identity provider; if unset, by tokens alone")
    ] = None
    studies: Annotated[Path | None, Field(description="directory of studies, one JSON file each")] = None
    public_data: Annotated[
        dict[Name, Path],
        Field(
            default_factory=dict,
            description="by study: CSV, Parquet or LIBSVM of public examples on which each round is measured",
        ),
    ]
    deadline_seconds: Annotated[float, Field(gt=0, le=3600, description="how long a silent party is waited for")] = 5.0
    approval_seconds: Annotated[
        float, Field(gt=0, le=3600, description="how long parties may take to work out what a run would cost them")
    ] = 60.0
    preparation_seconds: Annotated[
        float,
        Field(gt=0, le=86_400, description="how long parties may take to train what they answer from, where they do"),
    ] = 3600.0
    key_holder_seconds: Annotated[
        float, Field(gt=0, le=3600, description="how long key holders may take to begin a session or to open a sum")
    ] = 60.0
    patience_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=2_592_000,
            description="how long a run that cannot go on pauses in all, and asks again, before it fails",
        ),
    ] = 86_400.0
    concurrent_runs: Annotated[
        int,
        Field(
            ge=1,
            description="runs carried at once, beside the one that each user may have; others wait in the queue",
        ),
    ] = 10
    retention: Annotated[Retention, Field(description="for how long what ended runs left is kept")] = Retention()
    shares: Annotated[LearnerShares, Field(description="what one user may have at a time")] = LearnerShares()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        """Raise ValueError for a name, URL or key that appears twice: one owner must not count as two."""
        peers: tuple[PartyEntry | KeyHolderEntry, ...] = (*self.parties, *self.key_holders)
        for kind, values in (
            ("name", [entry.name for entry in peers]),
            ("url", [str(entry.url).rstrip("/") for entry in peers if entry.url]),
            ("public_key", [entry.public_key for entry in peers if entry.public_key]),
        ):
            if twice := sorted(value for value, count in Counter(values).items() if count > 1):
                raise ValueError(f"{kind} given twice: {', '.join(twice)}")
        return self

    @property
    def tokens(self) -> tuple[KnownToken, ...]:
        """The tokens of users, and of parties and key holders that connect themselves."""
        peers: tuple[PeerEntry, ...] = (*self.parties, *self.key_holders)
        of_peers = (KnownToken(peer.connects_with, PeerCaller(peer.name)) for peer in peers if peer.connects_with)
        return (*super().tokens, *of_peers)

    @property
    def peer_connections(self) -> int:
        """How many parties and key holders the learner connects to."""
        peers: tuple[PeerEntry, ...] = (*self.parties, *self.key_holders)
        return sum(peer.url is not None for peer in peers)

    @property
    def certificates(self) -> tuple[Path, ...]:
        """The learner's certificate files, and those of parties and key holders."""
        peers: tuple[PeerEntry, ...] = (*self.parties, *self.key_holders)
        return (*super().certificates, *(peer.certificate for peer in peers if peer.certificate))


def load_studies(directory: Path | None) -> dict[str, Study]:
    """Load the studies of a directory's JSON files, by their names; raises InvalidInputError that names the file."""
    studies: dict[str, Study] = {}
    for path in sorted(directory.glob("*.json")) if directory else ():
        study = read_study(path)
        if study.name in studies:
            raise InvalidInputError(f"two studies are named {study.name!r}; the second is {path}")
        studies[study.name] = study
    return studies
