"""``parley-party join`` and ``parley-party keyholder join``: from an invitation to a service that can start."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from common.encoding.spelling import so_many
from common.errors import InvalidInputError
from common.service.commands import Format, FormatOption, TableOption, print_next, print_result
from party.cli.output import quietly, read_text

if TYPE_CHECKING:
    from common.data.study import Study
    from common.files.sources import DataSource
    from common.service.http.proxy import ProxyAccess
    from common.wire.membership import Invitation, KnownKey
    from party.joining import Enrolment, Folder
    from party.settings import PartySettings

InvitationArgument = Annotated[Path, typer.Argument(metavar="INVITATION", help="The file that you were given.")]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words", help="The six words of the learner's key, as its operator reads them out; asked for if not given."
    ),
]
FolderOption = Annotated[
    Path | None, typer.Option("--out", help="The folder to make; the invitation's name if not given.")
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        envvar="PARLEY_PROXY",
        help="HTTP proxy on the way: http://host:port. One with a password, http://user:password@host:port, belongs "
        "into the environment, where others do not see it.",
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", help="Port on loopback, for health checks; a free one if not given.")
]

ComposeOption = Annotated[
    bool, typer.Option("--compose", help="Write a Compose file too, which runs the service in a container.")
]

_NO_TRAINING = (
    "only {} trains on such rows, and shows the learner each answer: as long as policy.require_secure_sum is true, no "
    "run trains"
)


def join_command(
    invitation: InvitationArgument,
    data: Annotated[
        str, typer.Option("--data", help="Your table: a file, folder/*.parquet, file.sqlite::table, or a query.")
    ],
    table: TableOption = None,
    words: WordsOption = None,
    out: FolderOption = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="What all runs together may cost.")] = 5.0,
    delta: Annotated[float, typer.Option("--delta", help="What all runs together may cost.")] = 1e-4,
    epsilon_per_run: Annotated[float, typer.Option("--epsilon-per-run", help="What one run may cost.")] = 1.0,
    delta_per_run: Annotated[float, typer.Option("--delta-per-run", help="What one run may cost.")] = 1e-5,
    by_policy: Annotated[
        bool, typer.Option("--by-policy", help="Take part in all runs that the policy allows, without asking you.")
    ] = False,
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip values beyond the study's bounds, rather than refuse the table.")
    ] = False,
    proxy: ProxyOption = None,
    port: PortOption = None,
    compose: ComposeOption = False,
    output: FormatOption = "text",
) -> None:
    """Join a learner: checks the study against your table, makes keys, settings and ledger, and registers.

    Your service will open its connections to the learner itself: no port of yours is opened to anybody. Compare words
    with the learner's operator by telephone, so that nobody is in between. After a failure, say the same again.
    """
    from common.secure_sum.session import Identity
    from party.data.owner_data import load_holding
    from party.joining import Enrolment
    from party.ledger.ledger import create_ledger, has_ledger
    from party.settings import PartySettings

    with quietly():
        invited = _opened(invitation, "party")
        _check_one_study(invited)
        source, on_the_way = _source(data, table), _proxy(proxy)
        _compare(words, invited)
        reads = _mounted(source, invited) if compose else None
        folder, enrolment = _folder(out, invited), Enrolment(invited, on_the_way)
        enrolment.check()
        folder.begin(invited)
        _write(folder.root / "study.json", invited.studies[0].model_dump_json(indent=1))  # as signed
        policy = (epsilon, delta, epsilon_per_run, delta_per_run)
        text = _party_toml(
            invited,
            folder,
            source,
            policy,
            clip=clip,
            trusts_policy=by_policy,
            proxy=on_the_way,
            port=port or _free_port(),
        )
        draft = folder.root / ".draft.toml"
        _write(draft, text)
        settings = PartySettings.load(draft)
        holding = load_holding(settings)
        agreed = invited.studies[0].study
        about = [f"  {words_of_study}" for words_of_study in (agreed.title, agreed.purpose) if words_of_study]
        told = [
            f"{data} fits {agreed.name}: {so_many(holding.n_examples, 'row')}",
            *about,
            *_warned(folder, settings, agreed, holding.n_examples),
        ]
        if not has_ledger(folder.state):
            create_ledger(folder.state, Identity(invited.name, folder.key()), settings.policy.adjacency)
        own_words = _register(invited, folder, enrolment, text, "party.toml")
        draft.unlink()
        _tell(output, invited, "party", folder.root / "party.toml", own_words, reads, told)


def join_key_holder_command(
    invitation: InvitationArgument,
    words: WordsOption = None,
    out: FolderOption = None,
    proxy: ProxyOption = None,
    port: PortOption = None,
    compose: ComposeOption = False,
    output: FormatOption = "text",
) -> None:
    """Join a learner as a key holder: makes keys, settings and journal, and registers.

    It must be run by somebody who does not collude with the learner.
    """
    from common.secure_sum.session import Identity
    from common.service.tokens import new_token
    from common.storage.keys import write_private
    from party.joining import Enrolment
    from party.keyholder.journal import create_journal, has_journal

    with quietly():
        invited, on_the_way = _opened(invitation, "key_holder"), _proxy(proxy)
        _compare(words, invited)
        reads = _mounted(None, invited) if compose else None
        folder, enrolment = _folder(out, invited), Enrolment(invited, on_the_way)
        enrolment.check()
        folder.begin(invited)
        write_private(folder.secrets / "vault.secret", new_token().encode())
        if not has_journal(folder.state):
            create_journal(folder.state, Identity(invited.name, folder.key()))
        own = f"secret_file = {_quoted(folder.secrets / 'vault.secret')}\n"
        text = _service_toml(invited, folder, own, on_the_way, port or _free_port())
        own_words = _register(invited, folder, enrolment, text, "keyholder.toml")
        _tell(output, invited, "key-holder", folder.root / "keyholder.toml", own_words, reads)


def _register(invited: Invitation, folder: Folder, enrolment: Enrolment, text: str, name: str) -> str:
    """Use the invitation, and keep what comes back; the words of the own key."""
    from common.encoding.key_words import words_of

    asked = folder.request(invited)
    folder.finish(invited, enrolment.join(asked), text, name)
    return " ".join(words_of(asked.public_key))


def _tell(
    output: Format,
    invited: Invitation,
    service: str,
    settings: Path,
    words: str,
    reads: tuple[Path, ...] | None,
    told: Sequence[str] = (),
) -> None:
    """Say who has joined whom, what to read out, and how the service is started."""
    command = ("parley-party", "keyholder") if service == "key-holder" else ("parley-party",)
    start = _start(service, command, settings, reads)
    lines = [*told, f"joined {invited.learner.name} as {invited.name}; read these words of your key to its operator:"]
    facts = {"learner": invited.learner.name, "name": invited.name, "words": words, "settings": str(settings)}
    print_result(output, "\n".join([*lines, f"  {words}"]), **facts, start=start)
    print_next(output, start)


def _warned(folder: Folder, settings: PartySettings, agreed: Study, n_examples: int) -> Iterator[str]:
    """What is to be known of settings; of what trains, of new ones alone: an owner who had some has chosen."""
    from party.policy.beginning import policy_cautions, refused_for_sums, trained_by_sums

    yield from (f"warning: {words}" for words in policy_cautions(settings.policy, n_examples))
    is_new = not (folder.root / "party.toml").exists()
    if is_new and settings.policy.require_secure_sum and not trained_by_sums(agreed):
        yield f"warning: {_NO_TRAINING.format(', '.join(refused_for_sums(agreed)))}"


def _opened(path: Path, role: str) -> Invitation:
    """The invitation of a file; raises InvalidInputError."""
    from common.wire.membership import Invitation

    invited = Invitation.opened(read_text(path), datetime.now(UTC))
    if invited.role != role:
        command = "parley-party keyholder join" if invited.role == "key_holder" else "parley-party join"
        raise InvalidInputError(f"the invitation is for a {invited.role.replace('_', ' ')}: {command}")
    return invited


def _check_one_study(invited: Invitation) -> None:
    """Raise InvalidInputError for an invitation to more studies than one table can be of."""
    if len(invited.studies) != 1:
        raise InvalidInputError("the invitation names more than one study: ask for one with the study of this table")


def _source(data: str, tables: Sequence[str] | None) -> DataSource:
    """What the options name, wherever the service will be started; raises InvalidInputError."""
    from common.files.sources import source_named

    return source_named(data, tables or ()).within(Path.cwd())


def _compare(words: str | None, invited: Invitation) -> None:
    """Have the owner say the learner's words."""
    from common.encoding.key_words import check_words

    if words is None:
        if not sys.stdin.isatty():
            raise InvalidInputError("--words: ask the learner's operator for the six words of its key, by telephone")
        typer.echo(f"Ask the operator of {invited.learner.name} for six words, by telephone.", err=True)
        words = typer.prompt("words", err=True)
    check_words(words, invited.learner.public_key, invited.learner.name)


def _proxy(text: str | None) -> ProxyAccess | None:
    """The proxy on the way; raises InvalidInputError."""
    from common.service.http.proxy import ProxyAccess

    return ProxyAccess.of(text) if text else None


def _folder(out: Path | None, invited: Invitation) -> Folder:
    from party.joining import Folder

    return Folder((out or Path(invited.name)).resolve())


def _party_toml(
    invited: Invitation,
    folder: Folder,
    data: DataSource,
    policy: tuple[float, float, float, float],
    *,
    clip: bool,
    trusts_policy: bool,
    proxy: ProxyAccess | None,
    port: int,
) -> str:
    """A party's settings."""
    from party.policy.beginning import first_algorithms, refused_for_sums

    epsilon, delta, epsilon_per_run, delta_per_run = policy
    agreed = invited.studies[0].study
    refused = ", ".join(refused_for_sums(agreed))
    pins = _pins("secure_sum.key_holders", invited.key_holders)
    pins += _pins("secure_sum.parties", invited.parties) if pins else ""
    own = f"""\
study = {_quoted(folder.root / "study.json")}

[data]
source = {_quoted(data.source)}
out_of_bounds = "{"clip" if clip else "refuse"}"
{_tables(data)}
[policy]  # all that runs may do; change what you like, and start the service again
epsilon = {epsilon!r}
delta = {delta!r}
max_epsilon_per_run = {epsilon_per_run!r}
max_delta_per_run = {delta_per_run!r}
algorithms = {json.dumps(first_algorithms(agreed))}
minimum_contributors = 2
approval = "{"policy" if trusts_policy else "manual"}"  # manual: runs wait for your word: parley-party pending
require_secure_sum = {f"true  # so {refused} is refused: it shows the learner each answer" if pins else "false"}
"""
    return _service_toml(invited, folder, own, proxy, port) + pins


def _service_toml(invited: Invitation, folder: Folder, own: str, proxy: ProxyAccess | None, port: int) -> str:
    """What the settings of both begin and end with, around their ``own``."""
    secrets = folder.secrets
    text = f"""\
# {invited.name}: made by join on {datetime.now(UTC):%Y-%m-%d}, for {invited.learner.name} at {invited.url}
name = {_quoted(invited.name)}
host = "127.0.0.1"  # for this machine alone: the service opens its connections to the learner itself
port = {port}
state = {_quoted(folder.state)}
{own}
[[learners]]
name = {_quoted(invited.learner.name)}
token_hash = "{folder.learner_token_hash()}"
public_key = "{invited.learner.public_key}"

[[outbound]]
name = {_quoted(invited.learner.name)}
url = {_quoted(invited.url)}
token_file = {_quoted(secrets / "connect.token")}
"""
    if invited.authority:
        files = {"ca": secrets / "authority.pem", "certificate": folder.certificate, "key": secrets / "tls.key"}
        text += "".join(f"{name} = {_quoted(file)}\n" for name, file in files.items())
    if proxy:
        text += f"proxy = {_quoted(proxy.url)}\n"
        if proxy.password:
            _write(secrets / "proxy.password", proxy.password)
            text += f"proxy_password_file = {_quoted(secrets / 'proxy.password')}\n"
    return text


def _tables(data: DataSource) -> str:
    """The tables of a query, if it is one."""
    lines = [
        f"{name} = {_quoted(at)}\n"
        if isinstance(at, str)
        else f"{name} = {{postgres = {_quoted(at.postgres)}, table = {_quoted(at.table)}}}\n"
        for name, at in data.tables.items()
    ]
    return "".join(["[data.tables]\n", *lines]) if lines else ""


def _mounted(data: DataSource | None, invited: Invitation) -> tuple[Path, ...]:
    """What a container is to see beside its folder; raises InvalidInputError where it would be of no use."""
    from common.service.compose import check_reachable, data_folder

    check_reachable(invited.url)
    if data is None:
        return ()
    places = list(data.tables.values()) if data.is_query else [data.source]
    files = [at for at in places if isinstance(at, str)]
    secrets = [at.postgres.partition(":") for at in places if not isinstance(at, str)]
    if "env" in {kind for kind, _, _ in secrets}:
        raise InvalidInputError(
            "--compose: the container is given no variable: put the connection string into a file that others cannot "
            "read, and say --table NAME=file:PATH::TABLE"
        )
    if secrets:
        typer.echo("parley-party: the image has to be built with --build-arg EXTRAS=postgres", err=True)
    return tuple(dict.fromkeys([*map(data_folder, files), *(Path(path) for _, _, path in secrets)]))


def _start(name: str, command: tuple[str, ...], settings: Path, reads: tuple[Path, ...] | None) -> str:
    """How the service is started: by itself, or in a container that sees what it ``reads``, by a Compose file."""
    from common.service.compose import ContainerService

    if reads is None:
        return f"{' '.join(command)} serve --config {quote(str(settings))}"
    return ContainerService(name, command, settings, reads).write()


def _pins(table: str, keys: Sequence[KnownKey]) -> str:
    """An array of tables that say whose public key is which."""
    return "".join(f'\n[[{table}]]\nname = {_quoted(key.name)}\npublic_key = "{key.public_key}"\n' for key in keys)


def _quoted(text: object) -> str:
    """A TOML string: JSON's spelling is one of TOML's."""
    return json.dumps(str(text), ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    from common.storage.keys import replace_private, writing

    with writing(path):
        replace_private(path, text.encode())


def _free_port() -> int:
    """A port of loopback that nobody listens on now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
