"""The options of ``parley-learner``, each declared once, and the groups in which its commands take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from parley.common.errors import InvalidInputError
from parley.common.service.commands import deferred, read_budgets, read_class_weights, read_parameters

with deferred():
    from parley.common.files import studies
    from parley.learner import settings
    from parley.learner.cli import client
    from parley.learner.client import token

if TYPE_CHECKING:
    from parley.learner.cli.client import LearnerClient

_AUTO = "auto"
DEFAULT_URL = "http://127.0.0.1:8000"
HERE = Path("learner")
"""The folder in which a learner is made, and looked for, unless another is said."""
SETTINGS, OPERATOR_TOKEN, AUTHORITY = "learner.toml", "secrets/operator.token", "secrets/authority.pem"
"""The files of a learner's folder that its commands need."""


def _found_settings(given: Path | None) -> Path | None:
    """Return the settings file that is given, or that of the learner in the folder here; None if there is neither."""
    return given or (HERE / SETTINGS if (HERE / SETTINGS).exists() else None)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_found_settings,
        help="settings file; PARLEY_LEARNER_* variables override it; if not given, learner/learner.toml where it is",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="PARLEY_URL",
        help=f"where the learner listens; if neither that nor a token is given, the learner in the folder "
        f"{HERE} here, or {DEFAULT_URL}",
    ),
]
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
UsersProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        help="HTTP proxy on the way: http://host:port. One with a password, http://user:password@host:port, belongs "
        "into PARLEY_PROXY, where others do not see it.",
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="the run's identifier, as submit prints it, or its beginning")
]
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
        help="evaluate the model by this share of the budget, on what the owners hold out; 0: none; auto: a "
        "tenth, if that tells enough",
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        metavar="RULE",
        help="for two classes, where the model says yes: balanced, f1, recall=.9, cost=1:20 (of a false positive and a "
        "false negative), chosen by its evaluation; probability=.1, prevalence, from public facts",
    ),
]
StudyArgument = Annotated[str, typer.Argument(help="a study that the learner knows, or a study's JSON file")]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="what the run may cost each party")]
DeltaOption = Annotated[float, typer.Option("--delta", help="what the run may cost each party")]
AlgorithmOption = Annotated[
    str, typer.Option("--algorithm", help="dp_gd, psgd, local_average, wu_subgradient ...; auto: by forecasts")
]
PartyOption = Annotated[
    list[str] | None,
    typer.Option("--party", help="a party to ask, or several with commas between; default: all that hold the study"),
]
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
    Literal["replace_one", "person", "whole_party"],
    typer.Option(
        "--adjacency",
        help="what the run must hide at least: one record, all rows of a person with an owner, or all the data of a "
        "party; a run about a study that names persons hides persons without being told",
    ),
]
OverlapOption = Annotated[
    int,
    typer.Option(
        "--overlap", min=1, help="with how many of the owners the same person may be: it is hidden at all of them"
    ),
]
PublicOption = Annotated[
    str | None, typer.Option("--public", metavar="DIGEST", help="the public rows to ask about, as `public` names them")
]
ClassWeightsOption = Annotated[
    str | None,
    typer.Option(
        "--class-weights",
        metavar="CLASS=WEIGHT,...",
        help="how much a row of each class counts in training, from 0 to 1, such as no=0.1; or balanced, by the shares "
        "that the study states",
    ),
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

    url: UrlOption = None
    token_file: TokenFileOption = None
    ca: CaOption = None
    proxy: UsersProxyOption = None

    def open(self) -> LearnerClient:
        """Connect as the user whose token the file or the environment holds; raises InvalidInputError without one."""
        url, token_file, ca = self.place
        learner = client.LearnerClient(url, token_file=token_file, ca=ca, proxy=self.proxy)
        if (file := token.others_read(token_file)) is not None:
            typer.echo(f"parley-learner: warning: others can read your token: chmod 600 {file}", err=True)
        return learner

    @property
    def place(self) -> tuple[str, Path | None, Path | None]:
        """The learner's URL, the file of the user's token, and that of the learner's authority.

        Where neither a URL nor a token is given, they are those of the learner in the folder here, and its operator's:
        a token that is given goes to no learner but one that is given too.
        """
        is_given = self.url is not None or self.token_file is not None or token.has_token()
        if is_given or not (HERE / SETTINGS).exists():
            return self.url or DEFAULT_URL, self.token_file, self.ca
        joining = settings.LearnerSettings.load(HERE / SETTINGS).joining
        if joining is None:
            return DEFAULT_URL, None, self.ca
        return str(joining.url).rstrip("/"), HERE / OPERATOR_TOKEN, self.ca or (joining.authority and HERE / AUTHORITY)


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
    overlap: OverlapOption = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions(AnyRunOptions):
    """The terms of a run that trains a model."""

    algorithm: AlgorithmOption = "dp_gd"
    parameters: ParameterOption = None
    answer_every: AnswerEveryOption = 1
    adjacency: AdjacencyOption = "replace_one"
    public: PublicOption = None
    class_weights: ClassWeightsOption = None
    evaluate: EvaluateOption = _AUTO
    threshold: ThresholdOption = None
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


def _split_names(texts: list[str] | None) -> list[str] | None:
    """Split what was given for an option of names, which may have commas between them."""
    return texts and [name.strip() for text in texts for name in text.split(",") if name.strip()]


_READERS: Mapping[str, Callable[[Any], object]] = {
    "study": study_argument,
    "parties": _split_names,
    "parameters": read_parameters,
    "budgets": read_budgets,
    "class_weights": read_class_weights,
    "evaluate": read_share,
}
"""The functions that read options whose text is not what the API takes."""
