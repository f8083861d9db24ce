"""Defines what users may request from the learner: a run, a forecast, an evaluation, predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, ValidationError

from parley.common.algorithms import AUTO, fixed_parameters
from parley.common.data.class_weights import ClassWeights
from parley.common.data.study import MOST_ROWS_OF_A_PERSON, Study
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.encoding.texts import first_names
from parley.common.errors import InvalidInputError
from parley.common.learning.threshold import NO_RULE, RULES, ThresholdRule
from parley.common.privacy.calibration import check_budget
from parley.common.privacy.guarantee import Adjacency
from parley.common.runs.evaluation import evaluation_spec, with_evaluation
from parley.common.runs.self_evaluation import USUAL_SHARE
from parley.common.runs.specification import (
    MOST_PARTIES,
    Budget,
    Cohort,
    Member,
    PublicRows,
    RunDelta,
    RunEpsilon,
    RunSpec,
    SecureSumKind,
)
from parley.common.strict import Digest, Identifier, Name, OneLine, Strict, faults
from parley.learner.runs.run import DEFAULT_SECONDS, Run
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.study_folder import find_study

Purpose = Annotated[
    OneLine, Field(max_length=500, description="what the model is for, on one line, as owners read in their logs")
]

RuleText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        description=f"the rule for the threshold of a model of two classes: {RULES}; {NO_RULE}: 0 is the threshold",
    ),
]


DEFAULT_ALGORITHM = "dp_gd"


class RunRequest(Strict):
    """What to train. By default all parties that hold the study take part, and all must contribute to every sum."""

    study: Annotated[Name | Study, Field(description="the name of a study the learner knows, or a study")]
    algorithm: Annotated[
        Name, Field(description="see GET /v1/algorithms; auto: the one with the best forecast, of those allowed")
    ] = DEFAULT_ALGORITHM
    parameters: Annotated[
        dict[str, JsonValue],
        Field(default_factory=dict, description="of the algorithm; what is left out or 'auto' is chosen, if it can be"),
    ]
    epsilon: Annotated[RunEpsilon, Field(description="what the run may cost each party")]
    delta: Annotated[RunDelta, Field(description="what the run may cost each party")]
    budgets: Annotated[
        dict[Identifier, Budget], Field(default_factory=dict, description="by party: other than the above")
    ]
    parties: Annotated[
        tuple[Identifier, ...] | None,
        Field(max_length=MOST_PARTIES, description="names from GET /v1/parties; null: all that hold the study"),
    ] = None
    minimum_contributors: Annotated[int | None, Field(ge=1, description="least number of parties in a sum")] = None
    colluders: Annotated[
        int | None,
        Field(
            ge=0,
            description="parties whose noise may be subtracted. If not given, 1 for secure sums: two models "
            "in a row give a sum away, from which a party can subtract its own noise; otherwise 0",
        ),
    ] = None
    secure_sum: Annotated[
        SecureSumKind, Field(description="paillier: the learner sees the sum of the answers alone")
    ] = "none"
    adjacency: Annotated[
        Adjacency,
        Field(
            description="what the run must hide at least: one record (replace_one), all rows of a person with an owner "
            "(person), or all data of a party (whole_party); of a study that names persons a run hides persons"
        ),
    ] = "replace_one"
    overlap: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_PARTIES,
            description="with how many of the owners the same person, or record, may be: it is hidden at all of them, "
            "by so much more noise; nobody checks it",
        ),
    ] = 1
    public: Annotated[
        Digest | None, Field(description="digest of the public rows to ask about; see PUT /v1/public")
    ] = None
    answer_every: Annotated[
        int,
        Field(
            ge=1,
            description="asynchronous rounds, above 1: a round goes on without the silent parties, which are asked "
            "again, and dropped when they miss so many rounds in a row; their ledgers charge the rounds that they "
            "missed with the next one that they answer. Needs minimum_contributors below the number of parties",
        ),
    ] = 1

    class_weights: Annotated[
        ClassWeights | None,
        Field(description="how much a row of each class counts in training, instead of what the study says"),
    ] = None

    cohort: Annotated[
        Cohort | None,
        Field(
            description="who takes part, of parties that are not always there: those that answer while the run "
            "recruits, and approve it. Every sum then needs ``least`` of them, unless minimum_contributors says fewer"
        ),
    ] = None

    evaluate: Annotated[
        Annotated[float, Field(ge=0, lt=1)] | Literal["auto"],
        Field(
            description="the share of the budget that evaluates the model on held-out rows, which then "
            "follows by itself; the study must hold rows out. 0: none. auto: a tenth, if owners allow it and it tells "
            "enough of so many rows; once their sizes are known, the run's `evaluation` says what was decided"
        ),
    ] = "auto"
    threshold: RuleText | None = None
    purpose: Purpose = ""

    seconds: Annotated[
        float, Field(gt=0, le=86_400, description="how long the rounds may take, where no parameter says how many")
    ] = DEFAULT_SECONDS

    imagines_curator: ClassVar[bool] = False
    """Whether a curator's algorithm may be meant for several parties, who would hand their data over."""

    def draft(
        self,
        studies: Mapping[str, Study],
        roster: Mapping[str, object],
        rows: PublicRowStore,
        holders: Sequence[str] | None = None,
    ) -> RunSpec:
        """Draft the run's specification, except for the sizes of the shards, which are 1.

        Where the request names no parties, they are the ``holders`` of the study, by default the roster. Raises
        InvalidInputError that names what is unknown, contradictory or out of range.
        """
        check_budget(self.epsilon, self.delta)
        if self.any_algorithm and self.parameters:
            raise InvalidInputError("parameters are those of an algorithm: name one, or leave them open too")
        names = self._members(roster, holders)
        least, budgets = self._least(names), self._totals(names)
        minimum = self.minimum_contributors or least
        try:
            draft = RunSpec(
                study=self.chosen_study(studies),
                algorithm=DEFAULT_ALGORITHM if self.any_algorithm else self.algorithm,
                parameters=self.parameters,
                parties=tuple(Member(name=name, n_examples=1, budget=budgets[name]) for name in names),
                minimum_contributors=minimum,
                colluders=self._default_colluders(minimum) if self.colluders is None else self.colluders,
                secure_sum=self.secure_sum,
                answer_every=self.answer_every,
                adjacency=self.adjacency,
                overlap=self.overlap,
                public=None if self.public is None else rows.find(self.public),
                class_weights=self.class_weights,
            )
        except ValidationError as error:
            raise InvalidInputError(faults(error)) from None
        draft = draft.with_budgets({name: own for name, (own, _) in self._budgets(draft, budgets).items()})
        if draft.answer_every > 1 and minimum == len(names):
            raise InvalidInputError("answer_every above 1 needs minimum_contributors below the number of parties")
        if self.any_algorithm:
            draft.facts()  # refuses terms that contradict each other
        else:
            settled, _ = draft.settled()
            self._check_program(settled)
        stated = {name: value for name, value in self.parameters.items() if name in draft.parameters}
        return draft.model_copy(update={"parameters": fixed_parameters(stated)})

    @property
    def any_algorithm(self) -> bool:
        """Whether the algorithm is left open; the draft's algorithm then stands for any."""
        return self.algorithm == AUTO

    def evaluation(self, draft: RunSpec) -> RunSpec | None:
        """Draft the evaluation that follows the run of a draft, and costs the share asked for; None without one.

        Raises InvalidInputError if the run makes no model that can be evaluated.
        """
        if self._share is None:
            return None
        if not draft.build().makes_one_model:
            raise InvalidInputError(f"{draft.algorithm} makes no model that can be evaluated")
        budgets = self._budgets(draft, self._totals(draft.names))
        return evaluation_spec(draft, {name: part for name, (_, part) in budgets.items()}, {})

    def threshold_rule(self, draft: RunSpec, evaluation: RunSpec | None) -> str | None:
        """Return the rule for the threshold of the model of a draft, None without; ``evaluation`` is what follows it.

        Raises InvalidInputError for a rule that does not fit the study, or chooses by an evaluation that none follows.
        """
        rule = read_rule(self.threshold, draft)
        if rule is not None and rule.estimated and evaluation is None:
            raise InvalidInputError(
                f"the threshold {rule} is chosen by an evaluation, and none follows this run: add --evaluate 0.1 "
                f"(evaluate), or take a public rule, such as probability=.1"
            )
        return None if rule is None else str(rule)

    @property
    def has_rule(self) -> bool:
        """Whether a rule chooses the model's threshold; raises InvalidInputError for no rule."""
        return _read_rule(self.threshold) is not None

    @property
    def may_evaluate(self) -> bool:
        """Whether a part of the budget is kept for an evaluation where that is of use."""
        return self.evaluate == AUTO and not self._needs_evaluation

    @property
    def _share(self) -> float | None:
        """The share of the budget that was asked for; None for none, and where it is left open."""
        if self.evaluate == AUTO:
            return USUAL_SHARE if self._needs_evaluation else None
        return float(self.evaluate) or None

    @property
    def _needs_evaluation(self) -> bool:
        """Whether the rule for the threshold chooses by an evaluation; raises InvalidInputError for no rule."""
        rule = _read_rule(self.threshold)
        return rule is not None and rule.estimated

    def _totals(self, names: Iterable[str]) -> dict[str, Budget]:
        """Return the budget of each party, by name."""
        common = Budget(epsilon=self.epsilon, delta=self.delta)
        return {name: self.budgets.get(name, common) for name in names}

    def _budgets(self, draft: RunSpec, totals: Mapping[str, Budget]) -> dict[str, tuple[Budget, Budget]]:
        """Return what of their budgets the run of a draft may cost each party, and what its evaluation may; by name."""
        share = self._share
        return {name: (b, b) if share is None else with_evaluation(draft, b, share) for name, b in totals.items()}

    def _check_program(self, draft: RunSpec) -> None:
        """Raise InvalidInputError if the algorithm cannot be run among these parties on these terms."""
        questions, facts, algorithm = draft.questions(), draft.facts(), draft.build()
        if self.class_weights is not None and not algorithm.trains:
            raise InvalidInputError(f"{self.algorithm} trains nothing that class_weights could change: leave them out")
        if (pure := next((i for i, member in enumerate(draft.parties) if member.budget.delta == 0), None)) is not None:
            algorithm.event(1, facts.of(pure))  # refuses a delta of 0 where the noise needs more
        if algorithm.curator and len(draft.parties) > 1 and not self.imagines_curator:
            raise InvalidInputError(f"{self.algorithm} needs a trusted curator who holds all data: name one party")
        if facts.secure_sum and any(question.reveal != "sum" for question in questions):
            raise InvalidInputError(f"{self.algorithm} asks for each party's answer, which a secure sum never shows")

    def _least(self, names: tuple[str, ...]) -> int:
        """Return the least number of parties that take part.

        Raises InvalidInputError if the cohort's least is impossible.
        """
        if self.cohort is None:
            return len(names)
        least, minimum = self.cohort.least, self.minimum_contributors
        if least > len(names):
            raise InvalidInputError(f"cohort.least = {least}, and the run names {len(names)} parties")
        if minimum is not None and minimum > least:
            raise InvalidInputError(f"minimum_contributors = {minimum} is above cohort.least = {least}")
        return least

    def _default_colluders(self, minimum: int) -> int:
        """Return 1 for a secure sum of several parties, which is then safe against each of its parties; otherwise 0."""
        return int(self.secure_sum != "none" and minimum > 1)

    def chosen_study(self, studies: Mapping[str, Study]) -> Study:
        """Return the study, by its name or as the request states it; raises InvalidInputError for an unknown name."""
        return self.study if isinstance(self.study, Study) else find_study(studies, self.study)

    def _members(self, roster: Mapping[str, object], holders: Sequence[str] | None) -> tuple[str, ...]:
        names = tuple(roster if holders is None else holders) if self.parties is None else self.parties
        if not roster:
            raise InvalidInputError(
                "this learner has no party yet: owners join by invitations, and are then confirmed, by parley-learner "
                "roster confirm NAME WORDS; parley-learner roster list shows who waits for it"
            )
        if not names or len(set(names)) != len(names):
            raise InvalidInputError("parties must name at least one party, and none twice")
        for field, named, allowed in (("parties", names, roster), ("budgets", self.budgets, names)):
            if unknown := sorted(set(named) - set(allowed)):
                there_are = f"{'there are' if field == 'parties' else 'the run has'} {first_names([*allowed])}"
                raise InvalidInputError(f"{field}: unknown parties: {', '.join(unknown[:5])}; {there_are}")
        return names


class ForecastRequest(RunRequest):
    """A run to forecast, and the owners that would take part: by default the parties of the roster, which are asked."""

    imagines_curator: ClassVar[bool] = True

    owners: Annotated[
        dict[Identifier, Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]] | None,
        Field(
            min_length=1,
            max_length=MOST_PARTIES,
            description="by name: how many examples each owner holds; then no party is asked",
        ),
    ] = None
    rows_per_person: Annotated[
        float,
        Field(
            ge=1,
            le=MOST_ROWS_OF_A_PERSON,
            description="a guess of how many rows a person has in the mean, where examples are persons: the time of a "
            "round is estimated by it. No party tells",
        ),
    ] = 1.0


class EvaluationRequest(Strict):
    """What the evaluation of a model may cost each party of its run; other terms are those of the run."""

    epsilon: Annotated[RunEpsilon, Field(description="what the evaluation may cost each party")]
    delta: Annotated[RunDelta, Field(description="what the evaluation may cost each party")]
    budgets: Annotated[
        dict[Identifier, Budget], Field(default_factory=dict, description="by party: other than the above")
    ]
    parameters: Annotated[
        dict[str, JsonValue], Field(default_factory=dict, description="of the algorithm `evaluate`: see /v1/algorithms")
    ]
    threshold: RuleText | None = None
    purpose: Purpose = ""

    def draft(self, run: Run, weights: PublicRows | None = None) -> RunSpec:
        """Draft the specification, without sizes, for a ``run`` that trained a model of these ``weights``, if any.

        Raises InvalidInputError that names what is unknown or out of range, or if no row is held out.
        """
        check_budget(self.epsilon, self.delta)
        spec = run.spec.among(run.members)
        if unknown := sorted(set(self.budgets) - set(spec.names)):
            raise InvalidInputError(f"budgets: unknown parties: {', '.join(unknown[:5])}")
        common = Budget(epsilon=self.epsilon, delta=self.delta)
        return evaluation_spec(spec, dict.fromkeys(spec.names, common) | self.budgets, self.parameters, weights)


class ThresholdRequest(Strict):
    """The rule for the threshold of a run's model."""

    rule: RuleText


def _read_rule(text: str | None) -> ThresholdRule | None:
    """Return a rule for a threshold, None for none; raises InvalidInputError for a text that is no rule."""
    return None if text is None or text.strip() == NO_RULE else ThresholdRule.read(text)


def read_rule(text: str | None, spec: RunSpec) -> ThresholdRule | None:
    """Return a rule for the threshold of a specification's model, None for none.

    Raises InvalidInputError for a text that is no rule, or if the run makes no model to which the rule applies.
    """
    if (rule := _read_rule(text)) is None:
        return None
    rule.check(spec.study)
    if not spec.build().trains:
        raise InvalidInputError(f"{spec.algorithm} makes no model that could have a threshold")
    return rule


class PredictionRequest(Strict):
    """Records {feature: value} to predict for; a category's value is text, and null is a missing value.

    For sparse features a record is {index: places, value: numbers}, by the study's names for them.
    """

    records: Annotated[tuple[dict[str, float | str | tuple[float, ...] | None], ...], Field(max_length=100_000)]
