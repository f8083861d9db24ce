"""A party without its web side: consents to runs, answers rounds, keeps the ledger. For one thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import version
from threading import Lock
from typing import Any, Self

import numpy as np
import structlog

from common.encoding.npy import pack_array
from common.errors import ConflictError, InvalidInputError, NotFoundError
from common.privacy.account import DELTA_UNITS, MICRO, Account, Price, limit
from common.privacy.noise import SystemNoise
from common.protocol.messages import Query
from common.runs.specification import RunSpec
from common.wire.party_api import Approval, BudgetReport, PartyFacts, RunProposal
from party.answering.release import NoiseFactory, Pack, answering
from party.data.owner_data import Holding, load_holding
from party.ledger.hash_chain import Ask
from party.ledger.ledger import Consent, Ledger, Released
from party.policy.approval import Terms, review, sum_policy, terms
from party.settings import PartySettings

RUNS_IN_MEMORY = 64


def open_store(settings: PartySettings) -> Ledger:
    """The party's ledger, under the budget of its settings."""
    return Ledger(
        settings.state, settings.name, limit(settings.policy.epsilon, settings.policy.delta, settings.policy.adjacency)
    )


def report(account: Account) -> BudgetReport:
    """An account as learners and owners read it."""
    return BudgetReport(
        epsilon_limit=account.epsilon_limit / MICRO,
        delta_limit=account.delta_limit / DELTA_UNITS,
        epsilon_spent=account.epsilon_spent / MICRO,
        delta_spent=account.delta_spent / DELTA_UNITS,
        epsilon_left=account.epsilon_left,
        delta_left=account.delta_left,
        adjacency=account.adjacency,
    )


class Party:
    """One owner's side of every run. What is in memory can be thrown away: it is rebuilt from the ledger."""

    def __init__(self, settings: PartySettings, noise: NoiseFactory = SystemNoise, *, apart: bool = False) -> None:
        """Load the study and the data and open the ledger; raises what `load_holding` and `Ledger` raise."""
        self.settings = settings
        self._noise = noise
        self.holding: Holding = load_holding(settings, apart=apart)
        self.store = open_store(settings)
        self.agreed = lru_cache(RUNS_IN_MEMORY)(self._find_agreed)
        """The consent to a learner's run, and its terms; raises NotFoundError."""
        self._prepared: OrderedDict[str, Any] = OrderedDict()
        self._preparing = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def facts(self) -> PartyFacts:
        """What a learner may know before it proposes a run."""
        policy = self.settings.policy
        return PartyFacts(
            name=self.settings.name,
            version=version("parley"),
            study_digest=self.holding.study.digest,
            n_examples=self.holding.n_examples,
            algorithms=policy.algorithms,
            views=(policy.view,),
            adjacency=policy.adjacency,
            minimum_contributors=policy.minimum_contributors,
            require_secure_sum=policy.require_secure_sum,
            max_epsilon_per_run=policy.max_epsilon_per_run,
            max_delta_per_run=policy.max_delta_per_run,
        )

    def budget(self) -> BudgetReport:
        """What may be spent in total, what has been, what is left."""
        return report(self.store.account())

    def approve(self, learner: str, proposal: RunProposal, receipt: str | None = None) -> Approval:
        """Consent to a run, once: the same proposal again gets the same approval.

        Raises what `known`, `review` and `Ledger.approve` raise.
        """
        return self.known(learner, proposal, receipt) or self.consent(learner, proposal, self.review(proposal.spec))

    def known(self, learner: str, proposal: RunProposal, receipt: str | None = None) -> Approval | None:
        """The approval that a run has; None for a new one.

        Raises LedgerError where the learner's newest ``receipt`` shows that this ledger is an old copy, ConflictError
        where the run has another specification.
        """
        if receipt is not None:
            self.store.check_receipt(receipt)
        consent = self.store.consent(learner, proposal.run)
        return self._approval(learner, proposal, consent) if consent else None

    def review(self, spec: RunSpec) -> Price:
        """The price of a run that the owner allows; raises what `approval.review` raises.

        May take seconds. Touches neither ledger nor data, so any thread may call it.
        """
        policy, name = self.settings.policy, self.settings.name
        try:
            with np.errstate(all="ignore"):  # what is not finite is refused
                return review(
                    spec, policy, name, self.holding.study, self.holding.n_examples, self.settings.known_parties
                )
        except (ArithmeticError, ValueError):
            raise InvalidInputError("the run's parameters and budgets cannot be computed with") from None

    def consent(self, learner: str, proposal: RunProposal, price: Price) -> Approval:
        """Write the consent to a reviewed run down; raises what `sum_policy` and `Ledger.approve` raise."""
        if proposal.spec.secure_sum != "none":
            sum_policy(self.settings, learner)
        approval = self._approval(learner, proposal, self.store.approve(learner, proposal, price))
        structlog.get_logger().info("approved", learner=learner, run=proposal.run, algorithm=proposal.spec.algorithm)
        return approval

    def answer(self, learner: str, run: str, query: Query) -> Released:
        """The answer to one round; raises ConflictError where its run has a secure sum, and what `release` raises."""
        if self.agreed(learner, run)[0].spec.secure_sum != "none":
            raise ConflictError(f"run {run} was approved with a secure sum: the learner sees no answer by itself")
        return self.release(Ask(learner, run, query.round, query.digest), query, pack_array)

    def release(self, ask: Ask, query: Query, pack: Pack) -> Released:
        """An answer as a body, charged when it is new; raises what `Terms.check` and `Ledger.answer` raise."""
        consent, agreed = self.agreed(ask.learner, ask.run)
        agreed.check(query)
        prepared = self.preparation(ask.learner, ask.run)()
        return self.store.answer(ask, consent.price, answering(agreed, query, prepared, self._noise, pack))

    def is_prepared(self, learner: str, run: str) -> bool:
        """Whether a run can be answered at once; raises NotFoundError."""
        _, agreed = self.agreed(learner, run)
        return not agreed.algorithm.prepares or agreed.digest in self._prepared

    def preparation(self, learner: str, run: str) -> Callable[[], Any]:
        """What makes what a run is answered from, once for its specification, and again after a restart.

        Calling it may take long, as long as the algorithm needs for the data that there is: in any thread but the
        service's. Of several at a time, one is made after the other. Raises NotFoundError.
        """
        _, agreed = self.agreed(learner, run)
        if not agreed.algorithm.prepares:
            return lambda: self.holding.shard
        return partial(self._prepare, agreed)

    def unprepared(self) -> list[tuple[str, str]]:
        """The newest runs, as (learner, run), that have not ended and that something must be prepared for."""
        return [run for run in self.store.unended(RUNS_IN_MEMORY) if not self.is_prepared(*run)]

    def end(self, learner: str, run: str) -> None:
        """Answer no more rounds of a run; raises NotFoundError."""
        self.store.end(learner, run)
        structlog.get_logger().info("ended", learner=learner, run=run)

    def _find_agreed(self, learner: str, run: str) -> tuple[Consent, Terms]:
        consent = self.store.consent(learner, run)
        if consent is None:
            raise NotFoundError(f"run {run} is not known here")
        return consent, terms(consent.spec, self.settings.name)

    def _prepare(self, agreed: Terms) -> Any:  # noqa: ANN401 -- whatever the algorithm answers from
        if (prepared := self._prepared.get(agreed.digest)) is not None:
            return prepared
        with self._preparing:
            if (prepared := self._prepared.get(agreed.digest)) is None:
                prepared = agreed.algorithm.prepare(self.holding.shard, agreed.facts)
                self._prepared[agreed.digest] = prepared
                if len(self._prepared) > RUNS_IN_MEMORY:
                    self._prepared.popitem(last=False)
        return prepared

    def _approval(self, learner: str, proposal: RunProposal, consent: Consent) -> Approval:
        """A consent as an answer to a proposal; raises ConflictError where it is a consent to something else."""
        if (digest := consent.spec.digest) != proposal.spec.digest:
            raise ConflictError(f"run {proposal.run} was approved with another specification")
        whole = consent.price.whole
        return Approval(
            run=proposal.run,
            spec_digest=digest,
            rounds=len(consent.price.epsilon),
            epsilon=whole.epsilon / MICRO,
            delta=whole.delta / DELTA_UNITS,
            adjacency=consent.price.adjacency,
            prepared=self.is_prepared(learner, proposal.run),
        )
