"""The options of ``parley-learner``, each declared once, and the groups in which its commands take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from parley.common.errors import InvalidInputError
from parley.common.service.commands import deferred, read_budgets, read_parameters

with deferred():
    from parley.common.files import studies
    from parley.learner.cli import client
    from parley.learner.client import token

if TYPE_CHECKING:
    from parley.learner.cli.client import LearnerClient

_AUTO = "auto"
DEFAULT_URL = "http://127.0.0.1:8000"

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="settings file; PARLEY_LEARNER_* variables override it")
]
UrlOption = Annotated[str, typer.Option("--url", envvar="PARLEY_URL", help="where the learner listens")]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="PARLEY_CA", help="file with the authority of an https learner, if this machine does not know it"
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="file with your bearer token; if not given, PARLEY_TOKEN or the file that PARLEY_TOKEN_FILE names",
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="the run's identifier, as submit prints it")]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="a parameter of the algorithm; repeat for more"),
]
PurposeOption = Annotated[str, typer.Option("--purpose", help="what the model is for, as owners read in their logs")]
KeyOption = Annotated[str | None, typer.Option("--idempotency-key", help="repeat a submission without a second run")]
WatchOption = Annotated[bool, typer.Option("--watch", help="stay and watch the run")]
EvaluateOption = Annotated[
    str,
    typer.Option(
        "--evaluate",
        metavar="SHARE",
        help="keep this share of the budget to evaluate the model on rows that the owners hold out; 0: none; auto: a "
        "tenth, if that tells enough",
    ),
]
StudyArgument = Annotated[str, typer.Argument(help="a study that the learner knows, or a study's JSON file")]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="what the run may cost each party")]
DeltaOption = Annotated[float, typer.Option("--delta", help="what the run may cost each party")]
AlgorithmOption = Annotated[
    str, typer.Option("--algorithm", help="dp_gd, psgd, local_average, wu_subgradient ...; auto: by forecasts")
]
PartyOption = Annotated[list[str] | None, typer.Option("--party", help="a party to ask; repeat; all if not given")]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="PARTY=EPSILON,DELTA", help="another budget for one party; repeat"),
]
MinimumOption = Annotated[
    int | None,
    typer.Option(
        "--minimum-contributors", help="the least number of parties in each sum; other silent parties are dropped"
    ),
]
CohortOption = Annotated[
    str | None,
    typer.Option(
        "--cohort",
        metavar="LEAST[,MOST[,SECONDS[,HOURS]]]",
        help="run among the parties that answer within SECONDS: LEAST or more, and MOST are drawn if more answer; "
        "wait HOURS for owners to consent",
    ),
]
AnswerEveryOption = Annotated[
    int,
    typer.Option(
        "--answer-every", min=1, help="above 1: asynchronous rounds, which drop a party that misses so many in a row"
    ),
]
AdjacencyOption = Annotated[
    Literal["replace_one", "whole_party"],
    typer.Option("--adjacency", help="what the run must hide: one record, or all the data of a party"),
]
PublicOption = Annotated[
    str | None, typer.Option("--public", metavar="DIGEST", help="the public rows to ask about, as `public` names them")
]
ColludersOption = Annotated[
    int | None,
    typer.Option(
        "--colluders",
        min=0,
        help="parties that may collude, whose noise does not count; if not given, 1 in a secure sum: a party can "
        "subtract its own noise from the sums that the models reveal",
    ),
]
SecureSumOption = Annotated[
    Literal["paillier", "none"],
    typer.Option("--secure-sum", help="paillier: the learner sees sums alone, and noise comes in shares"),
]


SecondsOption = Annotated[
    float, typer.Option("--seconds", min=0.001, help="how long the rounds may take, unless you say how many")
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="say which parameters were chosen, why, and what to expect of them")
]


def read_share(text: str) -> float | str:
    """Parse the share of a budget that evaluates a run's model, or "auto"; raises InvalidInputError.

    >>> read_share("0.1")
    0.1
    """
    if text == _AUTO:
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"--evaluate {text}: say a share of the budget such as 0.1, 0 for none, or auto"
        ) from None


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """Where the learner is that a command asks, and which user asks it."""

    url: UrlOption = DEFAULT_URL
    token_file: TokenFileOption = None
    ca: CaOption = None

    def open(self) -> LearnerClient:
        """Connect as the user whose token the file or the environment holds; raises InvalidInputError without one."""
        learner = client.LearnerClient(self.url, token_file=self.token_file, ca=self.ca)
        if (file := token.others_read(self.token_file)) is not None:
            typer.echo(f"parley-learner: warning: others can read your token: chmod 600 {file}", err=True)
        return learner


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """The price of a run. Its fields, and those of its subclasses, are the API's, each with its option."""

    epsilon: EpsilonOption
    delta: DeltaOption
    budgets: BudgetOption = None

    def body(self, **more: object) -> dict[str, Any]:
        """Return the body of a request: all fields as the API takes them, and ``more`` fields."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: _READERS[name](value) if name in _READERS else value for name, value in values.items()} | more


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyRunOptions(BudgetOptions):
    """The terms of any run: its study, its price, and who takes part."""

    study: StudyArgument
    parties: PartyOption = None
    minimum_contributors: MinimumOption = None
    colluders: ColludersOption = None
    secure_sum: SecureSumOption = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions(AnyRunOptions):
    """The terms of a run that trains a model."""

    algorithm: AlgorithmOption = "dp_gd"
    parameters: ParameterOption = None
    answer_every: AnswerEveryOption = 1
    adjacency: AdjacencyOption = "replace_one"
    public: PublicOption = None
    seconds: SecondsOption = 60.0


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """How a command asks for a run, and whether it stays to watch it."""

    purpose: PurposeOption = ""
    idempotency_key: KeyOption = None
    watch: WatchOption = False


def study_argument(text: str) -> Any:  # noqa: ANN401 -- a JSON value
    """Return the name of a study, or the content of a study's JSON file."""
    return studies.read_study(Path(text)).model_dump(mode="json") if text.endswith(".json") else text


_READERS: Mapping[str, Callable[[Any], object]] = {
    "study": study_argument,
    "parameters": read_parameters,
    "budgets": read_budgets,
}
"""The functions that read options whose text is not what the API takes."""
