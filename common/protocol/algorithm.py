"""The contract of an algorithm: a program asks, parties answer, and a log stores the replies.

The learner's half of an algorithm is a generator: it yields a `Query` of public values, receives a `Reply`, and returns
a `Model`. It draws no private noise, so all it does is post-processing, and the log of replies is its complete state: a
restart is a replay, and so is an audit. The party's half is a pure function of the shard and of private noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.data.study import Rows
from parley.common.encoding.fixed_point import Norm
from parley.common.encoding.texts import as_told
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NonPrivateEvent
from parley.common.privacy.guarantee import Adjacency, Guarantee
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question, Reply

PublicRowsNeeded = Literal["none", "rows", "labelled"]
Program = Generator[Query, Reply, Model]


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter that was chosen for a run, and why, in words."""

    value: float | int | str
    why: str

    def __str__(self) -> str:
        return f"{as_told(self.value)}: {self.why}"


class Algorithm(ABC):
    """A paper's algorithm: a frozen dataclass whose fields are the run's parameters, validated when built.

    ``adjacency`` is what its events hide: one example, which is a record or a person (`adjacency_of`), or all the data
    of a party. ``curator`` marks
    baselines in which one trusted curator holds all shards (a federation of one party). ``rows`` says which rows it is
    about if a study holds some out. ``trains`` says that it makes a model. ``norms`` are those by which rows may be
    bounded, and ``sparse`` says that they may be sparse. ``weighs_classes`` says that training takes class weights: its
    proofs hold for every convex loss of one example with the constants of weight 1 (`parley.common.learning.losses`).
    ``persons`` says that an example may be a person of several rows.
    """

    __slots__ = ()

    adjacency: ClassVar[Adjacency] = "replace_one"
    curator: ClassVar[bool] = False
    rows: ClassVar[Rows] = "training"
    trains: ClassVar[bool] = True
    norms: ClassVar[frozenset[Norm]] = frozenset({"euclidean"})
    sparse: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = False
    persons: ClassVar[bool] = False

    @classmethod
    def adjacency_of(cls, unit: Adjacency) -> Adjacency:
        """Return what its events hide in runs whose examples are records, or persons."""
        return cls.adjacency if cls.adjacency == "whole_party" else unit

    @property
    def makes_one_model(self) -> bool:
        """Whether a run trains one model for all, not one a party or none: only such a model can be evaluated."""
        return self.trains

    @classmethod
    def choose(
        cls,
        facts: FederationFacts,  # noqa: ARG003
        given: Mapping[str, float],  # noqa: ARG003
        most_rounds: int,  # noqa: ARG003
    ) -> dict[str, Choice]:
        """Choose parameters for a run, by name, from public facts, before any party is asked; some are ``given``.

        ``most_rounds`` is how many rounds the user has time for and the owners allow. By default nothing is chosen: the
        defaults stay.
        """
        return {}

    @classmethod
    def alternatives(
        cls,
        facts: FederationFacts,  # noqa: ARG003
        given: Mapping[str, Any],  # noqa: ARG003
    ) -> Iterator[Mapping[str, Choice]]:
        """Yield choices that may take the place of those of `choose` where an account does not pay for these.

        Each is of some parameters that are not ``given``, by name; `choose` chooses the others. The most accurate come
        first, as far as public facts tell. By default there are none.
        """
        return iter(())

    @classmethod
    def for_owner(cls, name: str, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Return the parameters of a run whose learner is the owner with this ``name``; by default those given."""
        return dict(given)

    @classmethod
    def takes(cls, norm: Norm, *, sparse: bool) -> bool:
        """Whether the algorithm accepts rows that are bounded by this norm, sparse or dense."""
        return norm in cls.norms and (cls.sparse or not sparse)

    def check_rows(self, facts: FederationFacts) -> None:
        """Raise InvalidInputError if the algorithm does not accept rows of this norm, sparse ones, or weighted ones."""
        if self.trains and not self.weighs_classes and facts.loss.class_weights:
            raise InvalidInputError(
                "the algorithm takes no class weights: to train with them, take dp_gd, average or release"
            )
        if facts.unit == "person" and not self.persons:
            raise InvalidInputError(
                "the algorithm hides one row each, and the study's examples are persons, who may have several: to "
                "train, take dp_gd, average or release"
            )
        if not self.persons and facts.study is not None and facts.study.row_weights is not None:
            raise InvalidInputError(
                "the algorithm counts all rows alike, and the study's have weights: to train, take dp_gd, average or "
                "release"
            )
        if facts.norm not in self.norms:
            raise InvalidInputError(
                "the algorithm's noise hides rows of 2-norm at most 1, and the study's are bounded in the largest "
                "coordinate (norm = 'max'): one record of d columns would move an answer by up to sqrt(d) times as "
                "much; to train, take simplex"
            )
        if facts.row_entries is not None and not self.sparse:
            others = "simplex" if facts.norm == "max" else "release, average or dp_gd"
            raise InvalidInputError(
                f"the algorithm needs dense rows, and the study's are sparse: to train, take {others}"
            )

    @abstractmethod
    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Return what each round asks, (rounds,): parties approve these questions, and answer no others.

        Raises InvalidInputError if the algorithm cannot be run on such facts.
        """

    @abstractmethod
    def program(self, facts: FederationFacts) -> Program:
        """Run the learner's half: yield queries, receive replies, return the model."""

    def prepare(self, shard: Shard, facts: OwnFacts) -> Any:  # noqa: ANN401 -- the type that `local` takes
        """Compute what `local` answers from, for one shard or a stack: the shard itself, or a result that takes long.

        It is a function of its arguments alone. A party calls it once in a run, before the first round, outside of its
        service.
        """
        return shard

    @abstractmethod
    def local(self, query: Query, prepared: Any, facts: OwnFacts, noise: Noise) -> IntArray:  # noqa: ANN401 -- as above
        """Run the party's half: return the noisy answer (..., m) in integers of 2^-32.

        ``prepared`` is of one shard or of a stack.
        """

    @abstractmethod
    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray | float:
        """Return how far a neighbour's answer differs before its noise, in the norm of its noise; in reals, (...).

        For an answer that is a function of a noisy release (`PostProcessing`), it is how far that release differs.
        """

    @abstractmethod
    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the cost of one party's answer in this round; ``facts`` are that party's."""

    @abstractmethod
    def proof(self, query: Query, facts: OwnFacts) -> Proof | None:
        """Return why the event of the query's round holds, so that the contract suite can test it (`proofs`).

        It is None if nothing is claimed (`NonPrivateEvent`) or an answer does not depend on the data (`NoEvent`).
        """

    def is_private(self, facts: FederationFacts) -> bool:
        """Whether its answers have any noise; those of baselines have none."""
        return not isinstance(self.event(1, facts.of(0)), NonPrivateEvent)

    def check_noise(self, facts: OwnFacts) -> None:
        """Raise InvalidInputError, before a party approves a run, if its noise does not fit its integers."""
        return

    def noise_of_model(self, facts: FederationFacts) -> float | None:
        """Return about how far noise moves what is learnt, in a unit of this algorithm, to compare budgets.

        None if no one figure says it.
        """
        return None

    @property
    def by_delta(self) -> Mapping[str, Any]:
        """The parameters, beside a law, that a run takes to spend a delta on less noise; often none."""
        return {}

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """Return guarantees of the paper beyond the composed transcript, by one party's facts; often none."""
        return ()

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Return what the events' costs assume and no party can check, in words; often nothing."""
        return ()

    def cautions(self, facts: FederationFacts) -> tuple[str, ...]:
        """Warn about effects of given parameters that nobody may have intended, from public facts; often nothing."""
        return ()

    @property
    def public_rows(self) -> PublicRowsNeeded:
        """The public rows that a run must name: none, rows, or rows whose last column is their label."""
        return "none"

    @property
    def noise_is_gaussian(self) -> bool:
        """Whether all its noise is Gaussian and on its answers if delta is above 0: owners' costs add by squares."""
        return False

    @property
    def roles(self) -> bool:
        """Whether a party's part depends on which party it is, so that equal budgets and sizes may pay differently."""
        return False

    def whole_noise(self, round: int) -> bool:
        """Whether each party adds all the noise that a round's event counts, under a secure sum too: none in shares."""
        return False

    @property
    def clip_norm(self) -> float:
        """The largest norm of one example's part in an answer, as queries of secure sums state it; 1 if not clipped."""
        return 1.0

    @property
    def prepares(self) -> bool:
        """Whether the algorithm prepares anything."""
        return type(self).prepare is not Algorithm.prepare
