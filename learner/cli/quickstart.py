"""``parley-learner quickstart``: from a table to a learner that serves, and an invitation for each owner."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parley.common.errors import ConflictError, InvalidInputError, UnavailableError
from parley.common.service.commands import CsvOption, Printer, TableOption, deferred
from parley.learner.api import routes
from parley.learner.cli.begin import (
    PlainHttpOption,
    environment_of,
    exported,
    make_learner,
    serve_line,
    url_of_learner,
)
from parley.learner.cli.options import HERE, SETTINGS
from parley.learner.cli.roster import WHOSE, data_options, person_option, unused_file, write_invitation
from parley.learner.cli.serve import serve_command
from parley.learner.cli.study import AuthorOptions, prompt, write_study

with deferred():
    from parley.common.client import peer
    from parley.common.encoding import key_words
    from parley.common.files import sources, studies
    from parley.common.secure_sum import envelope
    from parley.common.service import logs, prometheus
    from parley.learner import settings
    from parley.learner.api import membership, service
    from parley.learner.cli import client, drafting

if TYPE_CHECKING:
    from parley.learner.cli.study import Drafted
    from parley.learner.settings import LearnerSettings

QUICKSTARTS = (
    "Examples:\n\n"
    "parley-learner quickstart adult.csv --public --label income --owners hospital-a,hospital-b --serve\n\n"
    "parley-learner quickstart diabetes.csv --public --label readmitted --owners hospital-a,hospital-b   (a second "
    "study, at the same learner)"
)
"""The command's examples, for its help."""

HERE_ALONE = "https://127.0.0.1:8100"
"""The learner's URL unless another is said: no other machine reaches it."""

_HOURS = 72.0
_REPLACING = " (an earlier invitation counts no more: this one is for its studies too)"
_IS_PUBLIC = "is the table public or made up, so that all owners may see its values and ranges?"
_PRIVATE = (
    "then only names and kinds of its columns are read: say bounds and values that are public knowledge, never the "
    "least and largest of private rows: all owners see them"
)


def quickstart_command(
    data: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="a table with columns as the owners have them: an example of it that is public or made up, or rows of "
            "your own; a CSV or Parquet file, folder/*.parquet, file.sqlite::table, or a query",
        ),
    ],
    *,
    table: TableOption = None,
    csv: CsvOption = None,
    owners: Annotated[
        list[str] | None,
        typer.Option("--owners", metavar="NAME,NAME", help="the owners to invite, with commas between"),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help=f"where owners will reach this learner, https://host:port; {HERE_ALONE} if not given"
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="the learner's folder, which is made if it is not there")
    ] = HERE,
    start: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="start the learner here, until Ctrl-C; default: asked at a terminal"),
    ] = None,
    plain_http: PlainHttpOption = False,
    words: AuthorOptions,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="ask for what is missing; default: at a terminal")
    ] = None,
    out: Printer,
) -> None:
    """Begin with a table: make a study of it and a learner, invite the owners, and start the learner.

    Each question has an option, so that scripts need no terminal. At a learner that is there already, a further table
    becomes a further study, also while the learner runs.

    Unless the table is --public, only names and kinds of its columns are read: you give the bounds and values, which
    all owners will see, so they must be public knowledge, never taken from private rows.
    """
    is_asked = sys.stdin.isatty() if ask is None else ask
    root, source = folder.resolve(), sources.parse_source(data, table or (), csv)
    is_new = not (root / SETTINGS).exists()
    if is_asked and not words.public:
        words = replace(words, public=typer.confirm(_IS_PUBLIC, default=False, err=True))
        if not words.public:
            out.aside(_PRIVATE)
    drafted = words.draft(source, out, (_ask_least if words.public else prompt) if is_asked else None)
    file = root / "studies" / f"{drafted.study.name}.json"
    if file.exists() and studies.read_study(file) != drafted.study:
        raise ConflictError(
            f"{file} is another study of this name: say --name NAME; or invite more owners to that one: "
            f"parley-learner invite NAME --study {quote(drafted.study.name)}"
        )
    if is_new and url is None:
        url = _ask_url(plain_http=plain_http) if is_asked else HERE_ALONE
    if owners is None and is_asked:
        question = "owners to invite, with commas between"
        requests = drafting.until_valid(
            _ask_or_none, question, "", lambda names: _requests([names], drafted.study.name)
        )
    else:
        requests = _requests(owners or (), drafted.study.name)
    if is_new and url:
        _check_port(url)
        make_learner(root, url, "learner", None, plain_http=plain_http, compose=False)
    learner = LearnerHere.of(root, url)
    write_study(file, drafted.study)
    invited = learner.invite(requests)
    if start is None and is_asked and not learner.is_running():
        start = typer.confirm("start the learner now, until Ctrl-C?", default=True, err=True)
    _report(learner, drafted, file, invited, is_started=bool(start), out=out)
    if start and not learner.is_running():
        serve_command(root / SETTINGS)


@dataclass(frozen=True, slots=True)
class WrittenInvitation:
    """An invitation's file, the studies that it names, and whether it replaces an earlier one."""

    file: Path
    studies: Sequence[str]
    replaces: bool


@dataclass(frozen=True, slots=True)
class LearnerHere:
    """A learner in a folder of this machine, which may run or not."""

    root: Path
    settings: LearnerSettings
    environment: Mapping[str, str]

    @classmethod
    def of(cls, root: Path, url: str | None) -> LearnerHere:
        """Find the learner in a folder; raises InvalidInputError where it invites nobody, or has another URL."""
        found = settings.LearnerSettings.load(root / SETTINGS)
        if found.joining is None:
            raise InvalidInputError(f"{root / SETTINGS}: without [joining], this learner invites nobody")
        has = str(found.joining.url).rstrip("/")
        if url is not None and url.rstrip("/") != has:
            raise ConflictError(f"--url: the learner in {root} is at {has}; leave the option out, or say another --out")
        return cls(root, found, environment_of(root, has, plain_http=found.joining.authority is None))

    @property
    def words(self) -> str:
        """The six words of the learner's key."""
        return " ".join(key_words.words_of(envelope.public_hex(self.settings.signing_key())))

    def connect(self) -> client.LearnerClient:
        """Connect to the learner as its operator."""
        named = {name: Path(self.environment[name]) for name in self.environment if name != "PARLEY_URL"}
        return client.LearnerClient(
            self.environment["PARLEY_URL"], token_file=named["PARLEY_TOKEN_FILE"], ca=named.get("PARLEY_CA")
        )

    def roster(self) -> list[Mapping[str, Any]] | None:
        """Return the roster that the learner shows; None if it does not answer."""
        try:
            with self.connect() as connection:
                views: list[Mapping[str, Any]] = connection.ask(*routes.SHOW_ROSTER.to())
        except UnavailableError:
            return None
        return views

    def is_running(self) -> bool:
        """Say whether the learner answers."""
        return self.roster() is not None

    def members(self) -> set[str]:
        """Return the names of the owners who have joined and are confirmed, so that nobody compares words again."""
        return {view["name"] for view in self.views() if view["state"] == "member" and not view.get("unchecked")}

    def views(self) -> list[Mapping[str, Any]]:
        """Return the roster, whether the learner runs or not."""
        if (views := self.roster()) is None:
            with self._stopped() as members:
                return [view.model_dump() for view in members.views()]
        return views

    def invite(self, requests: Sequence[membership.InvitationRequest]) -> dict[str, WrittenInvitation]:
        """Write an invitation for each request, also to the studies of one that it replaces; returns them by name."""
        if not requests:
            return {}
        offered = {view["name"]: view.get("invited_to", ()) for view in self.views()}
        replaced = {owner.name: offered.get(owner.name, ()) for owner in requests}
        requests = [
            owner.model_copy(update={"studies": _together(replaced[owner.name], owner.studies)}) for owner in requests
        ]
        if self.is_running():
            with self.connect() as connection:
                texts = [
                    connection.ask(*routes.INVITE.to(), owner.model_dump(mode="json"))["text"] for owner in requests
                ]
        else:
            with self._stopped() as members:
                texts = [asyncio.run(members.invite(owner)).text for owner in requests]
        invited = {}
        for owner, text in zip(requests, texts, strict=True):
            invited[owner.name] = WrittenInvitation(
                unused_file(owner.name), owner.studies, replaces=bool(replaced[owner.name])
            )
            write_invitation(invited[owner.name].file, text)
        return invited

    @contextmanager
    def _stopped(self) -> Iterator[membership.LiveRoster]:
        """Open the roster of a learner that does not run."""
        logs.configure(self.settings.log_format, logging.WARNING)
        built = service.LearnerService.build(self.settings, peer.Line, prometheus.Metrics(all_public=True))
        with closing(built.store):
            yield built.members


def _ask_least(question: str, proposed: str) -> str:
    """Ask for the label, and for what a public table does not say; the rest is as the table has it."""
    return proposed if proposed and drafting.LABEL_QUESTION not in question else prompt(question, proposed)


def _ask_or_none(question: str, proposed: str) -> str:
    """Ask at the terminal; Enter takes what is proposed, which may be nothing."""
    answer: str = typer.prompt(question, default=proposed, show_default=False, err=True)
    return answer


def _ask_url(*, plain_http: bool) -> str:
    """Ask where owners will reach the learner, until it can be there."""

    def free(text: str) -> str:
        _check_port(url := url_of_learner(text, plain_http=plain_http))
        return url

    return drafting.until_valid(prompt, "where owners will reach this learner", HERE_ALONE, free)


def _requests(texts: Sequence[str], study: str) -> list[membership.InvitationRequest]:
    """Return the requests to invite owners, whose names have commas between, to a study.

    Raises InvalidInputError for a name that cannot be one.
    """
    names = dict.fromkeys(_split(texts))
    try:
        return [membership.InvitationRequest(name=name, studies=(study,), hours=_HOURS) for name in names]
    except ValueError:
        raise InvalidInputError(
            "--owners: names have letters, digits, '.', '_' and '-', and begin with a letter or digit"
        ) from None


def _together(earlier: Sequence[str], studies: Sequence[str]) -> tuple[str, ...]:
    """Return the studies of an earlier invitation, and those of a new one."""
    return tuple(dict.fromkeys((*earlier, *studies)))


def _split(texts: Sequence[str]) -> list[str]:
    """Split texts into the names that they have, with commas between."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _check_port(url: str) -> None:
    """Raise ConflictError where another program listens at a loopback URL: the learner could not start."""
    where = urlsplit(url)
    if not _is_here_alone(url) or where.port is None:
        return
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", where.port)) == 0:
            other = f"{where.scheme}://{where.hostname}:{where.port + 1}"
            raise ConflictError(f"another program listens at {url}: say another port, such as --url {other}")


def _is_here_alone(url: str) -> bool:
    """Say whether no other machine reaches a URL."""
    return urlsplit(url).hostname in {"127.0.0.1", "localhost"}


def _report(
    learner: LearnerHere,
    drafted: Drafted,
    file: Path,
    invited: Mapping[str, WrittenInvitation],
    *,
    is_started: bool,
    out: Printer,
) -> None:
    """Print what was made, what to send each owner, the words to read out, and what comes next."""
    study, url = drafted.study.name, learner.environment["PARLEY_URL"]
    serving = serve_line(learner.root / SETTINGS)
    export = exported(learner.environment)
    members = learner.members() if invited else set()
    strangers = [name for name in invited if name not in members]
    lines = [f"a learner in {learner.root}, at {url}", f"{file}: {drafted.summary}"]
    if invited:
        lines += ["send each owner its file, as you would a password: it counts once, for 72 hours"]
        lines += [f"  {name}: {each.file}{_REPLACING if each.replaces else ''}" for name, each in invited.items()]
        if strangers:
            lines += ["read these words out to each by telephone; they type them:", f"  {learner.words}"]
        installed = ", with Parley and its extra files installed" if strangers else "; a party that runs takes it up"
        lines += [f"each owner then runs, where its table is{installed}:"]
        lines += _joining(learner, drafted, invited, strangers)
        lines += ["with --by-policy, runs that an owner's policy allows do not wait for its word: parley-party pending"]
    following = [
        *([] if is_started or learner.is_running() else [serving]),
        *(f"parley-learner roster confirm {name} WORDS   (the six that its owner reads to you)" for name in strangers),
        *([] if invited else [f"parley-learner invite NAME --study {quote(study)}"]),
        f"parley-learner forecast {quote(study)} --epsilon 1 --delta 1e-5",
        f"parley-learner submit {quote(study)} --epsilon 1 --delta 1e-5 --watch",
    ]
    out.done(
        "\n".join(lines),
        folder=str(learner.root),
        url=url,
        study=study,
        file=str(file),
        words=learner.words,
        invitations={name: str(each.file) for name, each in invited.items()},
        start=serving,
        environment=dict(learner.environment),
        next=following,
    )
    drafted.print_notes(out)
    if _is_here_alone(url):
        out.aside(f"note: owners on other machines do not reach {url}; for them, begin with --url https://HOST:PORT")
    where = f" in another terminal, from {Path.cwd()}" if is_started else ""
    if learner.root != HERE.resolve():
        where += f", after: {export}"
    out.aside("\n".join([f"next{where}:", *(f"  {line}" for line in following)]))
    sys.stdout.flush()


def _joining(
    learner: LearnerHere, drafted: Drafted, invited: Mapping[str, WrittenInvitation], strangers: Sequence[str]
) -> Iterator[str]:
    """Yield what each owner runs, with the options that the studies of its invitation need."""
    studies = settings.load_studies(learner.settings.studies)
    of_persons = {name for name, study in studies.items() if study.person is not None}
    options = {name: person_option(not of_persons.isdisjoint(each.studies)) for name, each in invited.items()}
    for name, each in invited.items():
        of_one = len(each.studies) == 1
        tables = data_options(each.studies) + (drafted.owners_options if of_one else drafted.clip_option)
        serves = f"; parley-party serve --config {quote(name)}/party.toml" if name in strangers else ""
        yield f"  parley-party join {quote(each.file.name)}{tables}{options[name]}{serves}"
    if any(options.values()):
        yield WHOSE
