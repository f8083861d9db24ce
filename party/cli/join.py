"""``parley-party join`` and ``parley-party keyholder join``: from an invitation to a service that can start."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import so_many
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import (
    AsIsOption,
    CsvOption,
    Format,
    FormatOption,
    TableOption,
    ValueOption,
    print_next,
    print_result,
)
from parley.common.storage.handed_files import read_handed
from parley.party.cli.output import quietly, read_text

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.files.sources import DataSource
    from parley.common.service.http.proxy import ProxyAccess
    from parley.common.wire.membership import Invitation
    from parley.party.data.owner_data import Holding
    from parley.party.joining import Enrolment, Folder
    from parley.party.keyholder.settings import PinnedLearner
    from parley.party.settings import KnownLearner, PartySettings

InvitationArgument = Annotated[Path, typer.Argument(metavar="INVITATION", help="The file that you were given.")]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words", help="The six words of the learner's key, as its operator reads them out; asked for if not given."
    ),
]
KeyHolderWordsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key-holder-words",
        metavar="NAME=WORDS",
        help="The six words of a key holder's key, as its own operator reads them out; asked for if not given. Repeat.",
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
    csv: CsvOption = None,
    value: ValueOption = None,
    words: WordsOption = None,
    key_holder_words: KeyHolderWordsOption = None,
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
    as_is: AsIsOption = False,
    proxy: ProxyOption = None,
    port: PortOption = None,
    compose: ComposeOption = False,
    output: FormatOption = "text",
) -> None:
    """Join a learner: checks the study against your table, makes keys, settings and ledger, and registers.

    Your service will open its connections to the learner itself: no port of yours is opened to anybody. Compare words
    by telephone, so that nobody is in between: the learner's with its operator, each key holder's with its own. A key
    holder whose words you do not have yet opens no sum until parley-party pin has compared them; other owners' parties
    count as the learner's own until then. After a failure, say the same again.
    """
    from parley.party.data.owner_data import load_holding
    from parley.party.joining import Enrolment
    from parley.party.ledger.ledger import create_ledger, has_ledger
    from parley.party.settings import PartySettings

    with quietly():
        invited = _opened(invitation, "party")
        source, on_the_way, folder = _source(data, table, csv, value), _proxy(proxy), _folder(out, invited)
        _compare(words, invited)
        compared = _compare_key_holders(key_holder_words or (), invited, _known_key_holders(folder, invited))
        reads = _mounted(source, invited) if compose else None
        enrolment = Enrolment(invited, on_the_way)
        enrolment.check()
        folder.begin(invited)
        _write(folder.root / "study.json", invited.studies[0].model_dump_json(indent=1))  # as signed
        text = _party_toml(
            invited,
            folder,
            source,
            (epsilon, delta, epsilon_per_run, delta_per_run),
            compared=compared,
            clip=clip,
            trusts_policy=by_policy,
            proxy=on_the_way,
            port=port or _free_port(),
        )
        draft = folder.root / ".draft.toml"
        _write(draft, text)
        settings = PartySettings.load(draft)
        told = _fitting(
            folder, settings, data, _undoubted(load_holding(settings), as_is=as_is), invited.studies[0].study
        )
        own = settings.identity
        if not has_ledger(folder.state):
            create_ledger(folder.state, own, settings.policy.adjacency)
        own_words = _register(invited, folder, enrolment, text, "party.toml")
        draft.unlink()
        told += _pin(folder.root / "party.toml", invited, compared)
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
    from parley.common.secure_sum.session import Identity
    from parley.common.service.tokens import new_token
    from parley.common.storage.keys import write_private
    from parley.party.joining import Enrolment
    from parley.party.keyholder.journal import create_journal, has_journal
    from parley.party.keyholder.settings import KeyHolderSettings

    with quietly():
        invited, on_the_way = _opened(invitation, "key_holder"), _proxy(proxy)
        _compare(words, invited)
        reads = _mounted(None, invited) if compose else None
        folder, enrolment = _folder(out, invited), Enrolment(invited, on_the_way)
        if (path := folder.root / "keyholder.toml").exists():
            _check_learner(path, KeyHolderSettings.load(path).learners, invited)
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
    from parley.common.encoding.key_words import words_of

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


def _fitting(folder: Folder, settings: PartySettings, data: str, holding: Holding, agreed: Study) -> list[str]:
    """That an owner's table fits a study, what the study says that it is about, and what is to be known of settings."""
    about = [f"  {words}" for words in (agreed.title, agreed.purpose) if words]
    told = f"{data} fits {agreed.name}: {so_many(holding.n_examples, 'row')}"
    notes = [f"  {note}" for note in holding.loaded.notes]
    return [told, *notes, *about, *_warned(folder, settings, agreed, holding.n_examples)]


def _undoubted(holding: Holding, *, as_is: bool) -> Holding:
    """The data; raises InvalidInputError if some is most likely read wrongly, unless its owner takes it as it is."""
    if holding.loaded.doubts and not as_is:
        told = "; ".join(doubt.words for doubt in holding.loaded.doubts)
        raise InvalidInputError(f"some of the table is most likely read wrongly: {told}. Or take it --as-is")
    return holding


def _warned(folder: Folder, settings: PartySettings, agreed: Study, n_examples: int) -> Iterator[str]:
    """What is to be known of settings; of what trains, of new ones alone: an owner who had some has chosen."""
    from parley.party.policy.approval import policy_cautions, refused_for_sums, trained_by_sums

    yield from (f"warning: {words}" for words in policy_cautions(settings.policy, n_examples))
    is_new = not (folder.root / "party.toml").exists()
    if is_new and settings.policy.require_secure_sum and not trained_by_sums(agreed):
        yield f"warning: {_NO_TRAINING.format(', '.join(refused_for_sums(agreed)))}"


def _opened(path: Path, role: str) -> Invitation:
    """The invitation of a file; raises InvalidInputError."""
    from parley.common.wire.membership import Invitation

    invited = Invitation.opened(read_text(path, read_handed), datetime.now(UTC))
    if invited.role != role:
        command = "parley-party keyholder join" if invited.role == "key_holder" else "parley-party join"
        raise InvalidInputError(f"the invitation is for a {invited.role.replace('_', ' ')}: {command}")
    if role == "party" and len(invited.studies) != 1:  # one table cannot be of more
        raise InvalidInputError("the invitation names more than one study: ask for one with the study of this table")
    _check_keys(invited)
    return invited


def _is_asked_by_hand() -> bool:
    """Whether somebody types the answers."""
    return sys.stdin.isatty()


def _check_keys(invited: Invitation) -> None:
    """Raise InvalidInputError where the invitation has one key, or one name, for two: the learner, perhaps."""
    others = (*invited.key_holders, *invited.parties)
    names, keys = [each.name for each in others], [each.public_key for each in others]
    if len({*names, invited.name}) <= len(names) or len({*keys, invited.learner.public_key}) <= len(keys):
        raise InvalidInputError(
            "the invitation has one key or one name for two of learner, key holders and owners: do not go on"
        )


def _source(data: str, tables: Sequence[str] | None, csv: str | None, values: Sequence[str] | None) -> DataSource:
    """What the options name, wherever the service will be started; raises InvalidInputError."""
    from parley.common.files.sources import source_named

    return source_named(data, tables or (), csv, values or ()).within(Path.cwd())


def _compare(words: str | None, invited: Invitation) -> None:
    """Have the owner say the learner's words."""
    from parley.common.encoding.key_words import check_words

    if words is None:
        if not _is_asked_by_hand():
            raise InvalidInputError("--words: ask the learner's operator for the six words of its key, by telephone")
        typer.echo(f"Ask the operator of {invited.learner.name} for six words, by telephone.", err=True)
        words = typer.prompt("words", err=True)
    check_words(words, invited.learner.public_key, invited.learner.name)


def _known_key_holders(folder: Folder, invited: Invitation) -> dict[str, str]:
    """The key holders, by name, that the settings of a folder have as compared; none where there are no settings.

    Raises ConflictError where they are another learner's.
    """
    from parley.party.settings import PartySettings

    path = folder.root / "party.toml"
    if not path.exists():
        return {}
    settings = PartySettings.load(path)
    _check_learner(path, settings.learners, invited)
    for holder in invited.key_holders:
        if settings.key_holder_pins.get(holder.name, holder.public_key) != holder.public_key:
            raise ConflictError(
                f"the invitation has another key of {holder.name} than you have compared: ask its operator; if that is "
                f"right, take its pin out of {path} and say the same again"
            )
    return settings.key_holder_pins


def _check_learner(path: Path, learners: Sequence[KnownLearner | PinnedLearner], invited: Invitation) -> None:
    """Raise ConflictError where settings that are there are of other learners than the one who invites."""
    if invited.learner.public_key not in {learner.public_key for learner in learners}:
        raise ConflictError(f"{path} knows no learner with this key: choose another folder by --out")


def _compare_key_holders(typed: Sequence[str], invited: Invitation, known: Mapping[str, str]) -> tuple[str, ...]:
    """Have the owner say each key holder's words, or leave it for later; the names of those that were compared.

    Those ``known``, by name, with the invitation's key are not asked for again. Raises InvalidInputError.
    """
    from parley.common.encoding.key_words import check_words, named_words

    words = dict(named_words(each, "--key-holder-words") for each in typed)
    if unknown := sorted(words.keys() - {holder.name for holder in invited.key_holders}):
        raise InvalidInputError(f"--key-holder-words: the invitation names no key holder {', '.join(unknown)}")
    for holder in invited.key_holders:
        if holder.name not in words and known.get(holder.name) != holder.public_key and _is_asked_by_hand():
            typer.echo(
                f"Ask the operator of the key holder {holder.name}, not the learner's, for six words, by telephone; "
                "Enter leaves it for later.",
                err=True,
            )
            if said := typer.prompt("words", default="", show_default=False, err=True).strip():
                words[holder.name] = said
        if holder.name in words:
            check_words(words[holder.name], holder.public_key, holder.name)
    return tuple(words)


def _pin(config: Path, invited: Invitation, compared: Sequence[str]) -> list[str]:
    """Have settings that were there before know the key holders that were compared now; what is not compared yet."""
    from parley.party.pins import key_cautions, save_settings, with_pin
    from parley.party.settings import PartySettings

    known = PartySettings.load(config).key_holder_pins
    for holder in invited.key_holders:
        if holder.name in compared and known.get(holder.name) != holder.public_key:
            save_settings(config, with_pin(read_text(config), "key_holders", holder))
    settings = PartySettings.load(config)
    others = {holder.name for holder in invited.key_holders} - {*settings.key_holder_pins, *settings.uncompared}
    return [f"caution: {caution}" for caution in key_cautions(settings, others)]


def _proxy(text: str | None) -> ProxyAccess | None:
    """The proxy on the way; raises InvalidInputError."""
    from parley.common.service.http.proxy import ProxyAccess

    return ProxyAccess.of(text) if text else None


def _folder(out: Path | None, invited: Invitation) -> Folder:
    from parley.party.joining import Folder

    return Folder((out or Path(invited.name)).resolve())


def _party_toml(
    invited: Invitation,
    folder: Folder,
    data: DataSource,
    policy: tuple[float, float, float, float],
    *,
    compared: Collection[str] = (),
    clip: bool,
    trusts_policy: bool,
    proxy: ProxyAccess | None,
    port: int,
) -> str:
    """A party's settings; ``compared`` are the key holders whose keys the owner has compared."""
    from parley.party.pins import spell_pins
    from parley.party.policy.approval import first_algorithms, refused_for_sums

    epsilon, delta, epsilon_per_run, delta_per_run = policy
    agreed = invited.studies[0].study
    refused = ", ".join(refused_for_sums(agreed))
    pins = spell_pins("key_holders", invited.key_holders, compared)
    pins += spell_pins("parties", invited.parties, ()) if pins else ""
    own = f"""\
study = {_quoted(folder.root / "study.json")}

[data]
source = {_quoted(data.source)}
out_of_bounds = "{"clip" if clip else "refuse"}"
{_csv(data)}{_values(data)}{_tables(data)}
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


def _csv(data: DataSource) -> str:
    """How the CSV files are written, if that was said."""
    said = data.csv.model_dump(exclude_defaults=True) if data.csv else {}
    values = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in said.items())
    return f"csv = {{{', '.join(values)}}}\n" if said else ""


def _values(data: DataSource) -> str:
    """What values mean, if that was said."""
    columns = (
        f"{json.dumps(name, ensure_ascii=False)} = {_inline(meanings)}" for name, meanings in data.values.items()
    )
    return f"values = {{{', '.join(columns)}}}\n" if data.values else ""


def _inline(meanings: Mapping[str, str]) -> str:
    """An inline table of texts."""
    spelt = (json.dumps(each, ensure_ascii=False) for pair in meanings.items() for each in pair)
    return "{" + ", ".join(f"{value} = {meaning}" for value, meaning in zip(spelt, spelt, strict=True)) + "}"


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
    from parley.common.service.compose import check_reachable, data_folder

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
    from parley.common.service.compose import ContainerService

    if reads is None:
        return f"{' '.join(command)} serve --config {quote(str(settings))}"
    return ContainerService(name, command, settings, reads).write()


def _quoted(text: object) -> str:
    """A TOML string: JSON's spelling is one of TOML's."""
    return json.dumps(str(text), ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    from parley.common.storage.keys import replace_private, writing

    with writing(path):
        replace_private(path, text.encode())


def _free_port() -> int:
    """A port of loopback that nobody listens on now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
