"""A party's settings: its data, the learners and other parties that it knows, and what its owner allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, HttpUrl, model_validator
from pydantic_settings import SettingsConfigDict

from parley.common.algorithms import REGISTRY
from parley.common.client.endpoints import LearnerAddress, PeerEntry
from parley.common.errors import InvalidInputError
from parley.common.extras import require_extra
from parley.common.files.sources import DataSource
from parley.common.learning.classifiers import LocalClassifier
from parley.common.privacy.guarantee import Adjacency, Composition, View
from parley.common.runs.specification import MOST_PARTIES
from parley.common.secure_sum.messages import MAX_KEY_HOLDERS
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS
from parley.common.secure_sum.paillier import MAX_KEY_BITS, MIN_KEY_BITS
from parley.common.secure_sum.session import Identity
from parley.common.service.settings import Listener, ServiceSettings
from parley.common.service.tokens import Caller
from parley.common.strict import Digest, Identifier, Name, PlainName, PublicKey, Setting

Epsilon = Annotated[FiniteFloat, Field(gt=0, le=1e6)]
Delta = Annotated[float, Field(ge=0, lt=1)]


class Data(DataSource):
    """The owner's examples."""

    out_of_bounds: Annotated[
        Literal["refuse", "clip"],
        Field(
            description="what to do with a value beyond the study's bounds: refuse to start, or clip it to the bounds"
        ),
    ] = "refuse"
    earlier_rows: Annotated[
        int,
        Field(
            ge=0,
            description="how many rows at the beginning of the table belong to an earlier period: runs are about those "
            "after them alone, which have a budget of their own; the earlier rows keep what they have lost",
        ),
    ] = 0
    person: Annotated[
        Name | None,
        Field(
            description="the column of this table that says whose a row is, such as a patient's number, which the "
            "owner alone pins: runs of studies that take another for it, or none, are refused. Unset: so are runs of "
            "studies that take any for it"
        ),
    ] = None

    @model_validator(mode="after")
    def _periods_of_records(self) -> Self:
        if self.person is not None and self.earlier_rows:
            raise ValueError(
                "earlier_rows: a person may have rows before and after them, so later rows have no budget of their own "
                "where all rows of a person are hidden at once (person)"
            )
        return self


class Policy(Setting):
    """What the owner allows. The party enforces all of it itself, so nothing depends on what a learner says."""

    epsilon: Annotated[Epsilon, Field(description="epsilon that all runs of all learners together may cost")]
    delta: Annotated[Delta, Field(description="delta that all runs of all learners together may cost")]
    max_epsilon_per_run: Annotated[Epsilon, Field(description="epsilon that one run may cost")]
    max_delta_per_run: Annotated[Delta, Field(description="delta that one run may cost")]
    view: Annotated[
        View,
        Field(
            description="the adversary view, and so what a run costs: an adversary sees every answer (transcript), or "
            "the final model alone (model), where an algorithm claims a price for that"
        ),
    ] = "transcript"
    algorithms: Annotated[
        tuple[str, ...], Field(min_length=1, description="names of the algorithms that may be run")
    ] = ("dp_gd",)
    minimum_contributors: Annotated[
        int, Field(ge=1, description="least number of parties that must contribute to each sum of a run")
    ] = 2
    minimum_rows: Annotated[int, Field(ge=1, description="least number of examples the data must have to be used")] = 1
    require_secure_sum: Annotated[
        bool, Field(description="whether to refuse runs in which the learner sees this party's own answers")
    ] = False
    colluders: Annotated[
        int, Field(ge=0, description="least number of colluding parties that a run with shared noise must tolerate")
    ] = 0
    overlap: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_PARTIES,
            description="with how many of a run's owners the same person, or record, may be, as this owner knows its "
            "people: runs that count on fewer are refused",
        ),
    ] = 1
    adjacency: Annotated[
        Adjacency,
        Field(
            description="what each answer must hide: one record replaced by another (replace_one), all rows of one "
            "person (person), or all that this owner holds (whole_party); runs that hide less are refused"
        ),
    ] = "replace_one"
    public_rows: Annotated[
        tuple[Digest, ...] | None,
        Field(description="SHA-256 of the only public rows that runs may ask about; any if unset"),
    ] = None
    classifier: Annotated[
        LocalClassifier | None,
        Field(
            description='what this owner trains on its shard to vote in an ensemble, such as {kind = "tree", max_depth '
            "= 5}: logistic, svm, tree, forest, knn or bayes; what the run says if unset. Nobody is told which"
        ),
    ] = None
    composition: Annotated[
        Composition,
        Field(
            description="how the costs of runs add up: by a filter of Gaussian differential privacy, by which a budget "
            "suffices for many small runs (filter), or as sums of epsilons and of deltas (basic), where a run with a "
            "delta costs all with its first answer"
        ),
    ] = "filter"
    reservation_days: Annotated[
        float,
        Field(gt=0, le=3650, description="days without a question after which a run ends and frees its budget"),
    ] = 30.0
    approval: Annotated[
        Literal["policy", "manual"],
        Field(
            description="who consents to a run: this policy by itself, or the owner, who is asked about each run that "
            "the policy allows (parley-party pending, approve, deny)"
        ),
    ] = "policy"
    approval_hours: Annotated[
        float,
        Field(gt=0, le=24 * 365, description="how long a run waits for the owner's word, where that is asked for"),
    ] = 168.0
    max_rounds: Annotated[int, Field(ge=1, le=100_000, description="most rounds that a run may have")] = 10_000
    max_runs_per_day: Annotated[
        int,
        Field(
            ge=1, description="most runs of one learner that are approved in a day, by UTC: each takes up disk for ever"
        ),
    ] = 1000

    @model_validator(mode="after")
    def _known_algorithms(self) -> Self:
        if unknown := sorted(set(self.algorithms) - set(REGISTRY)):
            raise ValueError(f"unknown algorithms {', '.join(unknown)}; there are {', '.join(sorted(REGISTRY))}")
        return self

    @model_validator(mode="after")
    def _can_train(self) -> Self:
        """Refuse at start a classifier that would fail in a run and cost the run's full price."""
        if self.classifier is not None:
            require_extra("sklearn", "policy.classifier")
        return self


class StudyPolicy(Setting):
    """What the owner's policy for one study says otherwise than ``[policy]``; what it leaves unset is as there."""

    share: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="part of the account that is set aside for this study: its runs spend no more than that, and "
            "those of other studies leave it; unset: what is not set aside for others",
        ),
    ] = None
    learners: Annotated[
        tuple[Identifier, ...] | None,
        Field(min_length=1, description="names of the only learners that may ask about this study; all if unset"),
    ] = None
    approval: Annotated[
        Literal["policy", "manual"] | None, Field(description="who consents to a run: the policy, or the owner")
    ] = None
    algorithms: Annotated[
        tuple[str, ...] | None, Field(min_length=1, description="names of the algorithms that may be run")
    ] = None
    max_epsilon_per_run: Annotated[Epsilon | None, Field(description="epsilon that one run may cost")] = None
    max_delta_per_run: Annotated[Delta | None, Field(description="delta that one run may cost")] = None
    classifier: Annotated[
        LocalClassifier | None, Field(description="what this owner trains on its shard to vote in an ensemble")
    ] = None

    def over(self, policy: Policy) -> Policy:
        """Return the owner's policy for the runs of this study."""
        own = {name: value for name in Policy.model_fields if (value := getattr(self, name, None)) is not None}
        return Policy.model_validate(policy.model_dump() | own)


class StudySettings(Setting):
    """A study that the owner takes part in, and the table that it is about."""

    name: Annotated[PlainName, Field(description="the study's own name")]
    study: Annotated[Path, Field(description="JSON file of the study that the owner agreed to")]
    data: Annotated[Data, Field(description="the owner's examples for this study")]
    people: Annotated[
        PlainName | None,
        Field(
            description="a name for the people in this table, if the owner knows that none of them is in any table of "
            "its other studies, but those of the same name: they have an account of their own. Unset: the account of "
            "all. The ledger keeps this word, and guarantees repeat it as an assumption"
        ),
    ] = None
    policy: Annotated[StudyPolicy, Field(description="what differs from [policy] for this study")] = StudyPolicy()

    @property
    def label(self) -> str:
        """What to call the study in a message: its name, or its file if that alone says the name."""
        return self.name or str(self.study)

    def is_open_to(self, learner: str) -> bool:
        """Say whether a learner may ask about the study."""
        return self.policy.learners is None or learner in self.policy.learners


class KnownLearner(Caller):
    """A learner that may ask."""

    name: Annotated[Identifier, Field(description="name under which the ledger charges it")]
    public_key: Annotated[
        PublicKey | None,
        Field(description="its Ed25519 key, as `parley-learner identity` prints it; without it no secure sum"),
    ] = None


class Notify(Setting):
    """How the owner is told that a run waits for its decision."""

    command: Annotated[
        tuple[str, ...],
        Field(description="a program and its arguments, which gets the question as JSON on its standard input"),
    ] = ()
    url: Annotated[HttpUrl | None, Field(description="a web hook, to which the question is posted as JSON")] = None


class OwnerPage(Listener):
    """The page on which the owner decides about runs; it answers to 127.0.0.1 and localhost alone."""

    port: Annotated[
        int, Field(ge=0, le=65535, description="port of the page on this machine; 0 for none (parley-party owner)")
    ] = 0


class PinnedKey(Setting):
    """The public key of a key holder or a party, which the owner pins; it counts once the owner has compared it."""

    name: Annotated[Identifier, Field(description="its own name")]
    public_key: Annotated[
        PublicKey,
        Field(description="its Ed25519 key, as `parley-party identity` or `parley-party keyholder identity` prints it"),
    ]
    learners: Annotated[
        tuple[Identifier, ...] | None,
        Field(
            min_length=1, description="names of the learners in whose sums the key counts, and who see it; all if unset"
        ),
    ] = None
    compared: Annotated[
        bool | None,
        Field(
            description="whether the owner has compared the key with whose it is, as parley-party pin does; a key that "
            "was not compared counts for nothing. Unset: yes where settings have no [[outbound]], for the owner wrote "
            "them; no beside [[outbound]], for the learner's invitation may have named the key"
        ),
    ] = None


class SecureSum(Setting):
    """The key holders that the owner trusts to open sums, and the parties whose answers it trusts to be in them."""

    key_holders: Annotated[
        tuple[PinnedKey, ...],
        Field(
            min_length=1,
            max_length=MAX_KEY_HOLDERS,
            description="who open every sum, all of them each; no others. The owner trusts them not to collude with "
            "the learner",
        ),
    ]
    parties: Annotated[
        tuple[PinnedKey, ...],
        Field(
            description="the other owners' parties; any party of a run whose key was not compared "
            "counts as one of the learner's: as one more colluder, and as none of minimum_contributors"
        ),
    ] = ()
    minimum_key_bits: Annotated[
        int, Field(ge=MIN_KEY_BITS, le=MAX_KEY_BITS, description="least size of their Paillier keys")
    ] = DEFAULT_KEY_BITS

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        pinned: tuple[PinnedKey, ...] = (*self.key_holders, *self.parties)
        for values in ([pin.name for pin in pinned], [pin.public_key for pin in pinned]):
            if len(set(values)) != len(values):
                raise ValueError("key_holders, parties: two share a name or a key")
        return self


class Shards(Setting):
    """How many of the owner's examples are in memory, and for how long."""

    megabytes: Annotated[
        int,
        Field(
            ge=1,
            description="memory for the examples of all studies together: those asked about longest ago are let go, "
            "and loaded again when they are needed. The examples of one study may take more",
        ),
    ] = 1024
    idle_minutes: Annotated[
        float | None,
        Field(
            gt=0,
            le=10**6,
            description="minutes without a question after which examples are let go; unset: 60 if there are several "
            "studies, and those of a single one stay",
        ),
    ] = None


class PartySettings(ServiceSettings):
    """The settings file of a party, ``party.toml``; the environment's prefix is ``PARLEY_PARTY_``."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_PARTY_")

    study: Annotated[
        Path | None, Field(description="JSON file of the study that the owner agreed to, where there is but one")
    ] = None
    data: Annotated[Data | None, Field(description="the owner's examples for that study")] = None
    studies: Annotated[
        tuple[StudySettings, ...],
        Field(description="the studies that the owner takes part in, where there are several"),
    ] = ()
    shards: Annotated[Shards, Field(description="how many examples are in memory")] = Shards()
    policy: Annotated[Policy, Field(description="what the owner allows")]
    learners: Annotated[tuple[KnownLearner, ...], Field(min_length=1, description="the learners that may ask")]
    outbound: Annotated[
        tuple[LearnerAddress, ...],
        Field(description="learners to whom this service opens its connections itself, so that nobody has to reach it"),
    ] = ()
    peers: Annotated[
        tuple[PeerEntry, ...],
        Field(description='other owners\' parties, whom this owner asks when it trains a model of its own ("learn")'),
    ] = ()
    notify: Annotated[Notify, Field(description="how the owner hears that a run waits for its word")] = Notify()
    owner: Annotated[OwnerPage, Field(description="the page on which the owner gives its word")] = OwnerPage()
    secure_sum: Annotated[
        SecureSum | None, Field(description="whom the owner trusts with opening sums; without it no secure sum")
    ] = None

    @model_validator(mode="after")
    def _has_studies(self) -> Self:
        """Refuse settings without a study, and studies that cannot be told apart."""
        if (self.study is None) != (self.data is None):
            raise ValueError("study and [data] belong together: name both")
        if not self.held:
            raise ValueError("study: name the study that the owner agreed to, and its [data]")
        names = [entry.name for entry in self.studies]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"studies: two are called {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _accounts_possible(self) -> Self:
        """Refuse shares of more than an account, accounts beside that of all data, and learners that nobody knows.

        So are two columns of one table that each say whose a row is: an account would count persons in two ways.
        """
        shares: dict[str, float] = {}
        persons: dict[tuple[str, ...], StudySettings] = {}
        names = {learner.name for learner in self.learners}
        for entry in self.held:
            shares[entry.people or ""] = shares.get(entry.people or "", 0.0) + (entry.policy.share or 0.0)
            if entry.people is not None and self.policy.adjacency == "whole_party":
                raise ValueError(
                    "studies: people: a budget for all that the owner holds (policy.adjacency is whole_party) is one "
                    "account: it cannot be told apart by people"
                )
            if entry.data.earlier_rows and self.policy.adjacency == "whole_party":
                raise ValueError(
                    "data.earlier_rows: a budget for all that the owner holds (policy.adjacency is whole_party) counts "
                    "for earlier and later rows together"
                )
            if entry.data.person is not None:
                pinned = persons.setdefault((entry.data.source, *sorted(map(str, entry.data.tables.values()))), entry)
                if pinned.data.person != entry.data.person:
                    raise ValueError(
                        f"data.person: the table of {pinned.label} and {entry.label} has one column that says whose a "
                        f"row is, not {pinned.data.person!r} and {entry.data.person!r}"
                    )
            if unknown := sorted(set(entry.policy.learners or ()) - names):
                raise ValueError(f"studies: {entry.name}: learners: unknown: {', '.join(unknown)}")
        for people, share in shares.items():
            if share > 1 + 1e-9:  # sums of tenths are not exact
                of = f"of the people {people!r} " if people else ""
                raise ValueError(f"studies: the shares {of}add up to {share:g}, and an account has but 1 to set aside")
        return self

    @model_validator(mode="after")
    def _peers_distinct(self) -> Self:
        """Refuse peers that share a name or URL, or have this party's name: one owner must not count as two."""
        names = [self.name, *(peer.name for peer in self.peers)]
        for values in (names, [str(peer.url).rstrip("/") for peer in self.peers]):
            if len(set(values)) != len(values):
                raise ValueError("peers: two share a name or a url, or one has this party's name")
        if nowhere := [peer.name for peer in self.peers if peer.url is None]:
            raise ValueError(f"peers: {', '.join(nowhere)} have no url")
        return self

    @model_validator(mode="after")
    def _secure_sum_possible(self) -> Self:
        if self.policy.require_secure_sum and self.secure_sum is None:
            raise ValueError("policy.require_secure_sum needs the key holders of [secure_sum]")
        return self

    @model_validator(mode="after")
    def _pins_are_of_others(self) -> Self:
        """Refuse pins of this party or a learner: neither may open its own sums, or count as another party in them."""
        sums = self.secure_sum
        keys = {learner.public_key for learner in self.learners}
        for pin in (*sums.key_holders, *sums.parties) if sums else ():
            if pin.name == self.name:
                raise ValueError(f"secure_sum: {pin.name} is this party itself")
            if pin.public_key in keys:
                raise ValueError(f"secure_sum: the key of {pin.name} is a learner's")
        return self

    @property
    def held(self) -> tuple[StudySettings, ...]:
        """All studies, first that of the short form, whose name its file says: it has none here."""
        if self.study is None or self.data is None:
            return self.studies
        return StudySettings.model_construct(name="", study=self.study, data=self.data), *self.studies

    def study_named(self, name: str | None) -> StudySettings:
        """Return the study of this name, or the only one for None. Raises InvalidInputError."""
        if name is None and len(self.held) == 1:
            return self.held[0]
        named = next((entry for entry in self.studies if entry.name == name), None)
        if named is None:
            names = ", ".join(entry.label for entry in self.held)
            raise InvalidInputError(f"--study: name one of {names}")
        return named

    @property
    def certificates(self) -> tuple[Path, ...]:
        """The certificate files of this service, of other owners' parties, and for learners that it connects to."""
        others = (*self.peers, *self.outbound)
        return (*super().certificates, *(other.certificate for other in others if other.certificate))

    @property
    def side_ports(self) -> dict[str, int]:
        """The ports that the service listens on beside its own, by the variables of their settings."""
        page = {f"{self.model_config['env_prefix']}OWNER": self.owner.port} if self.owner.port else {}
        return super().side_ports | page

    @cached_property
    def identity(self) -> Identity:
        """The party's name and signing key. Raises OwnKeyError, and InvalidInputError if it pins its own key."""
        identity, sums = Identity(self.name, self.signing_key()), self.secure_sum
        for pin in (*sums.key_holders, *sums.parties) if sums else ():
            if pin.public_key == identity.key:
                raise InvalidInputError(f"secure_sum: the key of {pin.name} is this party's own")
        return identity

    @property
    def key_holder_pins(self) -> dict[str, str]:
        """The public keys of the key holders, by name, that the owner has compared."""
        return self._compared(self.secure_sum.key_holders if self.secure_sum else ())

    @property
    def party_pins(self) -> dict[str, str]:
        """The public keys of other owners' parties, by name, that the owner has compared."""
        return self._compared(self.secure_sum.parties if self.secure_sum else ())

    def pins_for(self, learner: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the compared keys of key holders, and of parties, by name, that count in this learner's sums."""
        sums = self.secure_sum
        holders, parties = (sums.key_holders, sums.parties) if sums else ((), ())
        return (
            self._compared(pin for pin in holders if pin.learners is None or learner in pin.learners),
            self._compared(pin for pin in parties if pin.learners is None or learner in pin.learners),
        )

    def known_parties_for(self, learner: str) -> frozenset[str] | None:
        """Return the parties that this learner's sums may hide this one among: itself, and those compared for it.

        None if no key holder's key was compared for it: then this party joins no secure sum of the learner.
        """
        key_holders, parties = self.pins_for(learner)
        return frozenset({self.name, *parties}) if key_holders else None

    @property
    def uncompared(self) -> tuple[str, ...]:
        """The names in ``secure_sum`` whose keys the owner has not compared, key holders first."""
        sums = self.secure_sum
        pins = (*sums.key_holders, *sums.parties) if sums else ()
        return tuple(pin.name for pin in pins if not self._is_compared(pin))

    def _compared(self, pins: Iterable[PinnedKey]) -> dict[str, str]:
        return {pin.name: pin.public_key for pin in pins if self._is_compared(pin)}

    def _is_compared(self, pin: PinnedKey) -> bool:
        return not self.outbound if pin.compared is None else pin.compared
