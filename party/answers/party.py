"""A party without its HTTP service: it consents to runs, answers their rounds and keeps the ledger.

The ledger pins the data that its answers are about, so that a change is noticed when the party starts. An answer is
computed from a query and from what was prepared for its run, and leaves as bytes once the ledger has stored it.

Whether work on the data ends in an error may reveal something about them. So a party refuses by public numbers alone,
before any work on the data. If that work fails nevertheless, only the failure itself becomes known, and the run's
whole price is charged for it (`Consents.fail`).
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import time
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import structlog

from parley.common import parley_version
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.data.sparse import SparseShard
from parley.common.data.study import ChargedRows
from parley.common.encoding.fixed_point import to_wire
from parley.common.encoding.npy import pack_array
from parley.common.encoding.texts import so_many
from parley.common.errors import (
    AwaitingOwnerError,
    BudgetExhaustedError,
    ConflictError,
    DataChangedError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    ParleyError,
    UnavailableError,
    WorkFailedError,
)
from parley.common.files.sources import PostgresTable
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, Price, limit
from parley.common.privacy.guarantee import Adjacency
from parley.common.privacy.noise import Noise, SystemNoise
from parley.common.protocol.messages import Query
from parley.common.protocol.receipts import APPROVAL, Answer, Binding
from parley.common.runs.pricing import longest_body
from parley.common.runs.specification import MemberColumns, RunSpec
from parley.common.service.logs import place_of
from parley.common.storage.witness import Witness
from parley.common.wire.party_api import (
    Approval,
    BudgetReport,
    PartyFacts,
    Room,
    RunOffer,
    RunProposal,
    StudyFacts,
)
from parley.party.data.holdings import HeldStudy, Holdings
from parley.party.data.owner_data import Holding, load_apart
from parley.party.ledger.accounts import Accounts, StudyTerms
from parley.party.ledger.books import ALL
from parley.party.ledger.ledger import Ask, Compute, Consent, Ledger, OneTimeNoise, check_exists, has_ledger
from parley.party.ledger.ledger_log import log_records
from parley.party.ledger.records import DataPin
from parley.party.policy import Terms, policy_cautions, review, rules_of, sum_policy, terms
from parley.party.settings import PartySettings, Policy, StudySettings

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")

# ── which data the ledger's answers are about ────────────────────────────────


def pin_of(held: StudySettings, holding: Holding) -> DataPin:
    """Describe the data of a study that a party has loaded, as its ledger pins them."""
    data, study = held.data, holding.study
    tables = {name: at if isinstance(at, str) else _name_table(at) for name, at in sorted(data.tables.items())}
    return DataPin(
        source=data.source,
        tables=tables,
        study=study,
        people=held.people or ALL,
        n_examples=holding.n_examples,
        rows=digest_rows(holding.shard),
        contents=holding.loaded.contents,
        first=data.earlier_rows,
        digest_at=lambda first, end: digest_rows(load_apart(data, study, (first, end)).shard),
    )


def digest_rows(shard: Shard) -> bytes:
    """Compute SHA-256 of a shard's shape, and of its numbers, persons and weights in the order of its rows.

    Nothing is copied.

    The digest is as secret as the rows: anyone who knows all rows except one can find that one with it.
    """
    if isinstance(shard, SparseShard):
        arrays = {"data": shard.rows.data, "indices": shard.rows.indices, "indptr": shard.rows.indptr, "y": shard.y}
    else:
        arrays = {"X": shard.X, "y": shard.y}
    if shard.weighing is not None:
        of_rows = {"begins": shard.weighing.begins, "weights": shard.weighing.row_weights}
        arrays |= {name: values for name, values in of_rows.items() if values is not None}
    head = {name: [array.dtype.str, *array.shape] for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps([head, shard.shape, shard.norm]).encode())
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _name_table(at: PostgresTable) -> str:
    """Return a PostgreSQL table's name and where its secret is, never the secret."""
    return f"{at.postgres} {at.table}"


# ── one answer ───────────────────────────────────────────────────────────────


class KeepingNoise(Noise, Protocol):
    """Noise that shows its one-time draws, so that they can be stored with the answer."""

    @property
    def one_time(self) -> Mapping[str, npt.NDArray[Any]]:
        """All one-time noise that was drawn so far, by name."""


NoiseFactory = Callable[["OneTimeNoise | None"], KeepingNoise]
"""Makes a round's noise, given the one-time noise that earlier rounds of the run stored."""

Pack = Callable[[IntArray], bytes]
"""Makes the body of an answer from its integers: ``.npy``, or a contribution to a secure sum."""


def answering(terms: Terms, query: Query, prepared: Any, noise: NoiseFactory, pack: Pack) -> Compute:  # noqa: ANN401
    """Return the function that answers a query from what was prepared for its run.

    It takes the one-time noise stored so far, and returns the answer's body and all one-time noise to store.
    """

    def compute(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        drawn = noise(earlier)
        with work_on_data():
            integers = to_wire(terms.algorithm.local(query, prepared, terms.facts, drawn), terms.shift)
        return pack(integers), drawn.one_time

    return compute


@contextmanager
def work_on_data() -> Iterator[None]:
    """Raise WorkFailedError in place of an unforeseen error; the log says only the error's type and place in code."""
    try:
        yield
    except ParleyError:
        raise
    except Exception as error:  # noqa: BLE001 -- any error's text may contain private values
        structlog.get_logger().error("failed", error=type(error).__name__, place=place_of(error))
        raise WorkFailedError from None


# ── the party ────────────────────────────────────────────────────────────────

RUNS_IN_MEMORY = 64
TAKEN_UP = ("study", "data", "studies", "shards", "policy", "learners", "outbound", "secure_sum")
"""The keys of settings that a party takes up while it runs; others count when it starts again."""


def open_store(settings: PartySettings, *, to_read: bool = False) -> Ledger:
    """Open the party's ledger, under the budget of its settings; one that has ended only ``to_read``.

    Raises what `Ledger` raises.
    """
    check_exists(settings.state)  # first, so that no identity is made where there is no ledger
    budget, days = budget_of(settings.policy), settings.policy.reservation_days
    terms = terms_of(settings)
    return Ledger(settings.state, settings.identity, budget, terms, reservation_days=days, to_read=to_read)


def charged_adjacency(settings: PartySettings) -> Adjacency:
    """Return what all that the party has answered hides at least: ``whole_party`` where it has answered nothing yet.

    Raises what `open_store` raises, but for a ledger that is not there.
    """
    if not has_ledger(settings.state):
        return "whole_party"
    with open_store(settings) as store:
        return store.books.hides()


def terms_of(settings: PartySettings) -> dict[str, StudyTerms]:
    """Return which account pays for each study that the settings name, and what is set aside for it."""
    return {
        held.name: StudyTerms(held.people or ALL, round(held.policy.share * MICRO) if held.policy.share else None)
        for held in settings.studies
    }


def allot(store: Ledger, settings: PartySettings) -> None:
    """Have a ledger's accounts pay as the settings say from now on. Raises what `Accounts.check_shares` raises."""
    store.allot(budget_of(settings.policy), terms_of(settings))
    store.accounts.check_shares()


def check_addition(settings: PartySettings, held: StudySettings, holding: Holding) -> None:
    """Raise InvalidInputError if a study cannot be added to these settings: its people have another account already.

    Also if more is set aside for it than is left of its account. Nothing is written.
    """
    with open_store(settings) as store:
        names = {entry.name for entry in settings.studies}
        store.check_people(pin_of(held, holding), store.books.pins if settings.study else names)
        changed = settings.model_copy(update={"studies": (*settings.studies, held)})
        store.accounts.terms = terms_of(changed)
        store.accounts.check_shares()


def open_witness(settings: Callable[[], PartySettings]) -> Witness:
    """Open the store of receipts of those services whose keys the owner has compared: key holders and other parties."""

    def compared() -> Collection[tuple[str, str]]:
        return (settings().key_holder_pins | settings().party_pins).items()

    return Witness(settings().state, compared, {learner.name for learner in settings().learners})


def budget_of(policy: Policy) -> Account:
    """Return the owner's budget as an account with nothing spent."""
    return limit(policy.epsilon, policy.delta, policy.adjacency, policy.composition)


def facts_of(settings: PartySettings, studies: Iterable[HeldStudy]) -> PartyFacts:
    """Return what a learner that may ask about these studies may know about a party before it proposes a run."""
    facts = (
        StudyFacts(
            study_digest=held.digest,
            study=held.name,
            n_examples=held.n_examples,
            people=held.settings.people,
            **dict(rules_of(held.policy, settings.limits, held.settings.data.person)),
        )
        for held in studies
    )
    return PartyFacts(name=settings.name, version=parley_version(), studies=tuple(facts))


def check_pin(store: Ledger, data: DataPin) -> None:
    """Raise DataChangedError unless the data are those that the ledger pins; pin them if it pins none yet.

    Raises InvalidInputError if the people in them have another account already.
    """
    if changes := store.pin(data):
        raise DataChangedError(
            f"the data of {data.study.name} are not those that the ledger answered about: {', '.join(changes)} "
            "changed; if that is right, say so by parley-party accept-data, which ends all runs of it in progress"
        )


@dataclass(frozen=True, slots=True, eq=False)
class AgreedRun:
    """A run that the owner has consented to and its present policy allows, with the terms on which it is answered."""

    learner: str
    run: str
    consent: Consent
    terms: Terms

    @property
    def study(self) -> str:
        """The name of its study."""
        return self.consent.spec.study.name


@dataclass(frozen=True, slots=True)
class ApprovalAnswer(Answer):
    """An `Approval` in JSON, which its receipt binds to the specification, and whether it says ``prepared``."""

    prepared: bool


class NewestByLearner(Generic[_K, _T]):
    """The newest values of each learner, by keys: those of one learner push out none of another's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[str, OrderedDict[_K, _T]] = {}

    def get(self, learner: str, key: _K) -> _T | None:
        """Return a value, or None."""
        values = self._values.get(learner)
        return None if values is None else values.get(key)

    def put(self, learner: str, key: _K, value: _T) -> _T:
        """Store a value as the newest, and return it."""
        values = self._values.setdefault(learner, OrderedDict())
        values[key] = value
        values.move_to_end(key)
        while len(values) > self._most:
            values.popitem(last=False)
        return value

    def drop(self, is_over: Callable[[_K], bool] = lambda _: True) -> None:
        """Drop the values whose keys are over; all of them, if it is not said which."""
        for values in list(self._values.values()):
            for key in [key for key in list(values) if is_over(key)]:
                values.pop(key, None)


class _Preparation(NamedTuple):
    """What tells apart what is prepared for runs: their study's name, specification, data, and the owner's choice.

    ``data`` is the entry that pins them; ``classifier`` is the owner's, in JSON, "" for none.
    """

    study: str
    spec: str
    data: int | None
    classifier: str


class Party:
    """One owner's side of every run. All that it holds in memory can be rebuilt from the ledger.

    One thread at a time may answer, because the noise drawn ahead is for one thread; other methods are for any thread.
    """

    def __init__(
        self,
        settings: PartySettings,
        noise: NoiseFactory = SystemNoise,
        notify_owner: Callable[[str, RunProposal, Price, float, Accounts], None] = lambda *_: None,
        *,
        apart: bool = False,
    ) -> None:
        """Load all studies and their data and open the ledger. Raises what `Holdings.take_up` and `Ledger` raise.

        ``notify_owner`` is called for each run that waits for the owner's decision, with the learner, its proposal, the
        price, the time when the question expires, and the owner's accounts; one of them would pay.
        """
        self.settings = settings
        self._noise = noise
        self._notify_owner = notify_owner
        self._agreed = NewestByLearner[str, AgreedRun](RUNS_IN_MEMORY)
        self._prepared = NewestByLearner[_Preparation, Any](RUNS_IN_MEMORY)
        self._members = NewestByLearner[str, MemberColumns](RUNS_IN_MEMORY)
        self._preparing, self._taking_up = Lock(), Lock()
        self._opened: Ledger | None = None
        check_exists(settings.state)
        self.holdings = Holdings(
            lambda held, holding: check_pin(self.store, pin_of(held, holding)),
            self._has_loaded,
            self._forget,
            apart=apart,
        )
        try:
            self.take_up(settings)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger, if it was opened."""
        if self._opened is not None:
            self._opened.close()

    @property
    def store(self) -> Ledger:
        """The ledger. It is opened when data were loaded: a start that fails before says why, and nothing else."""
        if self._opened is None:
            self._opened = open_store(self.settings)
            self._opened.chain.hear = partial(log_records, self._opened.books)
        return self._opened

    def take_up(self, settings: PartySettings) -> None:
        """Take up settings, also changed ones while runs go on: studies, the policy, learners, whom sums trust.

        Runs of studies in which the owner takes part no more end. Raises what `Holdings.take_up` raises, and
        InvalidInputError for shares that an account does not have; then all stays as it was.
        """
        with self._taking_up:
            store = self._opened
            settings = self.settings.model_copy(update={name: getattr(settings, name) for name in TAKEN_UP})
            try:
                if store is not None:
                    allot(store, settings)
                self.holdings.take_up(settings)
                if store is None:
                    self.store.accounts.check_shares()
            except BaseException:
                if store is not None:
                    allot(store, self.settings)
                raise
            self.settings = settings
            self._agreed.drop()
            for held in self.holdings.studies.values():
                for words in policy_cautions(held.policy, held.n_examples, held.unit):
                    structlog.get_logger().warning("caution", study=held.name, words=words)
            self._end_withdrawn()

    def tend(self) -> None:
        """Let go of the examples that nobody asks about; take up data that the owner has accepted by a command.

        It waits for settings that are taken up, for while studies load, the terms of earlier ones would replace theirs.
        """
        with self._taking_up:
            self.store.allot(budget_of(self.settings.policy), terms_of(self.settings))  # a command may have older ones
            self._end_withdrawn()
            self.holdings.tend(len(self.store.books.pinned))

    def _has_loaded(self, study: str) -> bool:
        """Say whether the data of a study in memory are those that the ledger pins now."""
        return self.store.has_loaded(study)

    def _end_withdrawn(self) -> None:
        """End the open runs of studies that the settings do not name any more, if all that they name are known."""
        if self.holdings.has_unnamed:
            return
        open_ones = {run.use.study for _, run in self.store.books.open_runs()}
        for study in open_ones - self.holdings.names:
            structlog.get_logger().warning("study", name=study, withdrawn=True, ended=len(self.store.withdraw(study)))

    def facts(self, learner: str) -> PartyFacts:
        """Return what a learner may know before it proposes a run."""
        return facts_of(self.settings, self.holdings.open_to(learner))

    def budget(self, learner: str, study: str | None = None, rows: ChargedRows | None = None) -> BudgetReport:
        """Return what a learner's own runs have left of the account for the study with this digest; its first if None.

        It is what is left for a run about these ``rows``; about all of the study's if None. Raises ForbiddenError if it
        may ask about no such study.
        """
        first = next((held.digest for held in self.holdings.open_to(learner)), "")
        held = self.holdings.find(learner, study or first)
        self.store.chain.expire()
        return BudgetReport.of(self.store.accounts.seen_by(learner, held.name, rows or "all"))

    def room(self, learner: str, study: str, cost: Cost, rows: ChargedRows | None = None) -> Room:
        """Return whether a run of this cost, about these ``rows`` or any, fits into what is left for a learner.

        Raises as `budget` does.
        """
        held = self.holdings.find(learner, study)
        self.store.chain.expire()
        try:
            self.store.accounts.require(self.store.accounts.use(learner, held.name, rows), cost)
        except BudgetExhaustedError:
            return Room(fits=False)
        return Room(fits=True)

    def approve(self, learner: str, proposal: RunProposal) -> ApprovalAnswer:
        """Consent to a run, once: the same proposal again gets the same approval.

        Raises what `find_approval`, `review` and `Consents.approve` raise.
        """
        return self.find_approval(learner, proposal) or self.consent(learner, proposal, self.price(learner, proposal))

    def find_approval(self, learner: str, offer: RunOffer | RunProposal) -> ApprovalAnswer | None:
        """Return the approval given to this run, or None.

        Raises ConflictError if the run was approved with another specification, and WorkFailedError if it failed.
        """
        consent = self.store.consents.find(learner, offer.run)
        return self._approval(learner, offer, consent) if consent else None

    def review(self, learner: str, offer: RunOffer) -> tuple[RunProposal, Price]:
        """Return the proposal of an offered run, and its price if the owner allows it; may take seconds.

        Raises UnknownMembersError if the offer names its members by a digest that no run in memory has, and what
        `price` raises.
        """
        spec = offer.spec.listed(self._members.get(learner, offer.spec.members))
        proposal = RunProposal(run=offer.run, spec=spec, user=offer.user, purpose=offer.purpose)
        if (learner, offer.run) not in self.store.books.owner:  # its owner has not been asked before
            log = structlog.get_logger().bind(learner=learner, run=offer.run, user=offer.user)
            log.info("proposed", study=spec.study.name, algorithm=spec.algorithm, parties=len(spec.names))
        return proposal, self.price(learner, proposal)

    def price(self, learner: str, proposal: RunProposal) -> Price:
        """Return the price of a run that the owner allows. Raises what `policy.review` raises, and notes refusals."""
        with self._noting(learner, proposal.run, proposal.spec):
            return self._review(self.holdings.find(learner, proposal.spec.study.digest), learner, proposal.spec)

    def consent(self, learner: str, proposal: RunProposal, price: Price) -> ApprovalAnswer:
        """Store the consent to a reviewed run. Raises what `sum_policy` and `Consents.approve` raise."""
        spec = proposal.spec
        with self._hiding_others(learner, spec, price.total), self._noting(learner, proposal.run, spec):
            held = self.holdings.find(learner, spec.study.digest)
            if spec.secure_sum != "none":
                sum_policy(self.settings, learner)
            if held.policy.approval == "manual":
                self._ask_owner(held, learner, proposal, price)
            self._check_today(learner)
            consent = self.store.consents.approve(learner, proposal, price)
        approval = self._approval(learner, proposal, consent)
        self._remember(learner, proposal.run, consent)
        return approval

    def _check_today(self, learner: str) -> None:
        """Raise ForbiddenError if the learner has begun all runs allowed in a day: each takes up the owner's disk."""
        most = self.settings.policy.max_runs_per_day
        if self.store.consents.approved_today(learner) >= most:
            raise ForbiddenError(
                f"{learner} has begun {so_many(most, 'run')} today (by UTC), and the owner allows no more in a day",
                rule="max_runs_per_day",
            )

    def _ask_owner(self, held: HeldStudy, learner: str, proposal: RunProposal, price: Price) -> None:
        """Raise AwaitingOwnerError until the owner has decided, and ForbiddenError after a no; a yes is a consent."""
        self.store.chain.expire()
        use = self.store.accounts.use(learner, held.name, proposal.spec.charged_rows)
        self.store.accounts.require(use, price.total)  # raises now if the budget could not pay after a yes
        book_before = self.store.books.owner.get((learner, proposal.run))
        book = self.store.questions.ask(learner, proposal, price, self.settings.policy.approval_hours * 3600)
        if book.denied is not None:
            reason = f": {book.denied}" if book.denied else ""
            raise ForbiddenError(f"the owner does not want to take part{reason}", rule="owner")
        if book.expires <= time():
            raise ForbiddenError("the owner did not answer in time", rule="owner")
        if book_before is not book:
            self._notify_owner(learner, proposal, price, book.expires, self.store.accounts)
        raise AwaitingOwnerError("its owner was asked, and has not answered yet")

    def recall(self, learner: str, run: str, query: Query) -> Answer | None:
        """Return the answer that this round was given before, or None. Raises ConflictError for another question."""
        return self.store.rounds.recall(Ask(learner, run, query.round, query.digest))

    def answer(self, learner: str, run: str, query: Query) -> Answer:
        """Answer one round. Raises ConflictError where its run has a secure sum, and what `release` raises."""
        ask = Ask(learner, run, query.round, query.digest, query.step)
        if (stored := self.store.rounds.recall(ask)) is not None:
            return stored
        agreed = self.agreed(learner, run)
        if agreed.consent.spec.secure_sum != "none":
            raise ConflictError(f"run {run} was approved with a secure sum: the learner sees no answer by itself")
        return self.release(agreed, ask, query, pack_array)

    def release(self, agreed: AgreedRun, ask: Ask, query: Query, pack: Pack) -> Answer:
        """Return an answer, charged when it is new. Raises what `Terms.check` and `AnsweredRounds.answer` raise.

        Raises WorkFailedError if work on the data fails: then the run ends, and its whole price is charged.
        """
        agreed.terms.check(query)
        prepared = self.prepare(agreed)
        cost = agreed.consent.price.total
        with (
            self._hiding_others(agreed.learner, agreed.consent.spec, cost),
            self._noting(agreed.learner, agreed.run, agreed.consent.spec),
            self._failing(agreed),
        ):
            return self.store.rounds.answer(ask, answering(agreed.terms, query, prepared, self._noise, pack))

    def agreed(self, learner: str, run: str) -> AgreedRun:
        """Return a learner's run that the owner has consented to.

        Raises NotFoundError, and ForbiddenError where the owner's present policy does not allow the run.
        """
        if (agreed := self._agreed.get(learner, run)) is not None:
            return agreed
        consent = self.store.consents.find(learner, run)
        if consent is None:
            raise self.store.chain.unknown(run)
        with self._noting(learner, run, consent.spec):
            price = self._review(self.holdings.find(learner, consent.spec.study.digest), learner, consent.spec)
            if price.total.is_more_than_agreed(consent.price.total):
                raise ForbiddenError(
                    "the run costs more than was agreed, by the owner's present policy or this version of Parley",
                    rule="price",
                )
            if consent.spec.secure_sum != "none":
                sum_policy(self.settings, learner)
        return self._remember(learner, run, consent)

    def question_bytes(self, learner: str, run: str) -> int:
        """Return the longest body that a round's question may have, in bytes; 0 for an unknown run."""
        try:
            return longest_body(question.message for question in self.agreed(learner, run).terms.questions)
        except NotFoundError:
            return 0

    def is_ready(self, learner: str, run: str) -> bool:
        """Say whether a run can be answered at once: its terms are in memory and nothing has to be prepared."""
        agreed = self._agreed.get(learner, run)
        if agreed is None:
            return False
        if agreed.terms.algorithm.prepares:
            return self._is_prepared(learner, agreed.consent.spec)
        return self.holdings.is_loaded(agreed.study)

    def make_ready(self, learner: str, run: str) -> None:
        """Load a run's terms under the present policy, and prepare what it is answered from; may take long.

        Raises NotFoundError, ForbiddenError, WorkFailedError.
        """
        self.prepare(self.agreed(learner, run))

    def prepare(self, agreed: AgreedRun) -> Any:  # noqa: ANN401 -- what its algorithm answers from
        """Return what a run is answered from; it is made once for a specification, and again after a restart.

        This takes as long as the algorithm needs for the data, so it must not run in the service's thread. Of several
        calls at a time, one works after the other. Raises WorkFailedError.
        """
        terms = agreed.terms
        if not terms.algorithm.prepares:
            return self._rows(agreed)
        spec = agreed.consent.spec
        if (prepared := self._prepared.get(agreed.learner, self._preparation(spec))) is not None:
            return prepared
        with self._preparing:
            rows = self._rows(agreed)  # first: that they cannot be loaded is no failure of work on them
            key = self._preparation(spec)
            if (prepared := self._prepared.get(agreed.learner, key)) is not None:
                return prepared
            with self._failing(agreed), work_on_data():
                prepared = terms.algorithm.prepare(rows, terms.facts)
            return self._prepared.put(agreed.learner, key, prepared)

    def make_all_ready(self) -> None:
        """Prepare the newest open runs after a restart; those that the present policy refuses are logged."""
        for learner, run in reversed(self.store.consents.open_runs()[-RUNS_IN_MEMORY:]):
            try:
                self.make_ready(learner, run)
            except ParleyError as error:
                structlog.get_logger().warning("prepare", learner=learner, run=run, refused=error.kind)

    def end(self, learner: str, run: str) -> None:
        """Answer no more rounds of a run; raises NotFoundError."""
        self.store.consents.end(learner, run)

    def _rows(self, agreed: AgreedRun) -> Shard:
        """Return the examples that a run is about, which may have to be loaded.

        Raises ForbiddenError and DataChangedError as `Holdings.holding`. Why else they cannot be loaded names files and
        columns, and counts rows: that is for the log, and the learner gets an UnavailableError without it.
        """
        try:
            return self.holdings.holding(agreed.study).parts[agreed.terms.algorithm.rows]
        except (ForbiddenError, DataChangedError):
            raise
        except ParleyError as error:
            structlog.get_logger().warning("study", name=agreed.study, usable=False, reason=error.detail)
            raise UnavailableError(
                f"the data of {agreed.study} cannot be used as they are now; the log of their owner's party says why"
            ) from None

    def _review(self, held: HeldStudy, learner: str, spec: RunSpec) -> Price:
        settings = self.settings
        rules = rules_of(held.policy, settings.limits, held.settings.data.person)
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused
                return review(
                    spec, rules, settings.name, held.digest, held.n_examples, settings.known_parties_for(learner)
                )
        except (ArithmeticError, ValueError):
            raise InvalidInputError("the run's parameters and budgets cannot be computed with") from None

    @contextmanager
    def _noting(self, learner: str, run: str, spec: RunSpec) -> Iterator[None]:
        """Note each refusal by one of the owner's rules in the ledger."""
        try:
            yield
        except ForbiddenError as error:
            self.store.consents.refuse(
                learner, run, spec.algorithm, str(error.facts.get("rule", error.kind)), error.detail
            )
            raise

    @contextmanager
    def _hiding_others(self, learner: str, spec: RunSpec, cost: Cost) -> Iterator[None]:
        """Have a refusal by the budget tell a learner nothing of what others have spent."""
        try:
            yield
        except BudgetExhaustedError:
            raise self.store.accounts.refusal(learner, spec.study.name, cost, spec.charged_rows) from None

    @contextmanager
    def _failing(self, agreed: AgreedRun) -> Iterator[None]:
        """End the run and charge what is left of its price if work on the data fails."""
        try:
            yield
        except WorkFailedError:
            self.store.consents.fail(agreed.learner, agreed.run)
            raise

    def _remember(self, learner: str, run: str, consent: Consent) -> AgreedRun:
        """Keep a run's terms in memory, as the newest."""
        held = self.holdings.find(learner, consent.spec.study.digest)
        agreed = terms(consent.spec, self.settings.name, held.policy.classifier)
        self._members.put(learner, consent.spec.members.digest, consent.spec.members)
        return self._agreed.put(learner, run, AgreedRun(learner, run, consent, agreed))

    def _preparation(self, spec: RunSpec) -> _Preparation:
        study = spec.study.name
        held = self.holdings.studies.get(study)
        classifier = held.policy.classifier.model_dump_json() if held and held.policy.classifier else ""
        return _Preparation(study, spec.digest, self.store.chain.about.get(study), classifier)

    def _is_prepared(self, learner: str, spec: RunSpec) -> bool:
        """Say whether what a learner's run is answered from has been prepared."""
        return self._prepared.get(learner, self._preparation(spec)) is not None

    def _forget(self, study: str) -> None:
        """Drop what was prepared from a study's examples, which leave memory."""
        self._prepared.drop(lambda prepared: prepared.study == study)

    def _approval(self, learner: str, proposal: RunOffer | RunProposal, consent: Consent) -> ApprovalAnswer:
        """Return a consent as the answer to a proposal.

        Raises ConflictError if it is a consent to another specification, and WorkFailedError if its run failed.
        """
        if (digest := consent.spec.digest) != proposal.spec.digest:
            raise ConflictError(f"run {proposal.run} was approved with another specification")
        if self.store.consents.has_failed(learner, proposal.run):
            raise WorkFailedError
        total = consent.price.total
        approval = Approval(
            run=proposal.run,
            spec_digest=digest,
            rounds=len(consent.price.epsilon),
            epsilon=total.epsilon / MICRO,
            delta=total.delta / DELTA_UNITS,
            adjacency=consent.price.adjacency,
            prepared=self._is_prepared(learner, consent.spec) or not consent.spec.build().prepares,
            people=self.store.accounts.people(consent.spec.study.name) or None,
            earlier_rows=self.store.books.runs[learner, proposal.run].use.places.first,
        )
        body = approval.model_dump_json().encode()
        return ApprovalAnswer(body, Binding.of(proposal.run, APPROVAL, digest, body), approval.prepared)
