"""``parley-party join``: makes a party that can start from an invitation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import so_many, toml_value
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import (
    AsIsOption,
    CsvOption,
    Printer,
    TableOption,
    ValueOption,
    deferred,
)
from parley.party.commands import quietly, read_text
from parley.party.joining import (
    ComposeOption,
    FolderOption,
    InvitationArgument,
    PortOption,
    ProxyOption,
    ReachOption,
    WordsOption,
    ask_words,
    check_contained,
    check_learner,
    compare_learner,
    container_of,
    folder_for,
    free_ports,
    open_invitation,
    read_proxy,
    register,
    report_joined,
    service_toml,
    write_in_place,
)

with deferred():
    from parley.common.encoding import key_words
    from parley.common.files import sources
    from parley.party import membership
    from parley.party import policy as party_policy
    from parley.party import settings as party_settings
    from parley.party.data import owner_data
    from parley.party.ledger import ledger

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.files.sources import DataSource
    from parley.common.service.http.proxy import ProxyAccess
    from parley.common.wire.membership import Invitation
    from parley.party.data.owner_data import Holding
    from parley.party.membership import Folder
    from parley.party.settings import PartySettings

KeyHolderWordsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key-holder-words",
        metavar="NAME=WORDS",
        help="The six words of a key holder's key, as its own operator reads them out; asked for if not given. Repeat.",
    ),
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
    target: FolderOption = None,
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
    reach: ReachOption = None,
    *,
    out: Printer,
) -> None:
    """Join a learner: checks the study against your table, makes keys, settings and ledger, and registers.

    Your service will open its connections to the learner itself: no port of yours is opened to anybody. Compare words
    by telephone, so that nobody is in between: the learner's with its operator, each key holder's with its own. A key
    holder whose words you do not have yet opens no sum until parley-party pin has compared them; other owners' parties
    count as the learner's own until then. After a failure, say the same again.
    """
    with quietly():
        invited = open_invitation(invitation, "party")
        source, on_the_way, folder = _source(data, table, csv, value), read_proxy(proxy), folder_for(target, invited)
        compare_learner(words, invited)
        compared = _compare_key_holders(key_holder_words or (), invited, _known_key_holders(folder, invited))
        check_contained(reach, in_container=compose)
        container = container_of(invited, on_the_way, reach, _mounted(source, reach)) if compose else None
        enrolment = membership.Enrolment(invited, on_the_way)
        enrolment.check()
        folder.begin(invited)
        write_in_place(folder.root / "study.json", invited.studies[0].model_dump_json(indent=1))  # as signed
        free, for_metrics, for_page = free_ports(3)
        text = _party_toml(
            invited,
            folder,
            source,
            (epsilon, delta, epsilon_per_run, delta_per_run),
            compared=compared,
            clip=clip,
            trusts_policy=by_policy,
            proxy=on_the_way,
            ports=(port or free, for_metrics, for_page),
        )
        draft = folder.root / ".draft.toml"
        write_in_place(draft, text)
        settings = party_settings.PartySettings.load(draft)
        notes = _fitting(
            folder, settings, data, _undoubted(owner_data.load_holding(settings), as_is=as_is), invited.studies[0].study
        )
        identity = settings.identity
        if not ledger.has_ledger(folder.state):
            ledger.create_ledger(folder.state, identity, settings.policy.adjacency)
        member = register(invited, folder, enrolment, text, "party.toml")
        draft.unlink()
        notes += _pin(member.settings, invited, compared)
        report_joined(out, member, container, party_settings.PartySettings.load(member.settings).side_ports, notes)


def _fitting(folder: Folder, settings: PartySettings, data: str, holding: Holding, agreed: Study) -> list[str]:
    """Say that the table fits the study, how it was read, what the study is about, and what settings to look at."""
    about = [f"  {words}" for words in (agreed.title, agreed.purpose) if words]
    summary = f"{data} fits {agreed.name}: {so_many(holding.n_examples, 'row')}"
    notes = [f"  {note}" for note in holding.loaded.notes]
    return [summary, *notes, *about, *_warned(folder, settings, agreed, holding.n_examples)]


def _undoubted(holding: Holding, *, as_is: bool) -> Holding:
    """Return the data. Raises InvalidInputError if a part is most likely read wrongly, unless the owner says as is."""
    if holding.loaded.doubts and not as_is:
        doubts = "; ".join(doubt.words for doubt in holding.loaded.doubts)
        raise InvalidInputError(f"some of the table is most likely read wrongly: {doubts}. Or take it --as-is")
    return holding


def _warned(folder: Folder, settings: PartySettings, agreed: Study, n_examples: int) -> Iterator[str]:
    """Yield warnings about settings; the one about training only for new settings, which the owner did not choose."""
    yield from (f"warning: {words}" for words in party_policy.policy_cautions(settings.policy, n_examples))
    is_new = not (folder.root / "party.toml").exists()
    if is_new and settings.policy.require_secure_sum and not party_policy.trained_by_sums(agreed):
        yield f"warning: {_NO_TRAINING.format(', '.join(party_policy.refused_for_sums(agreed)))}"


def _source(data: str, tables: Sequence[str] | None, csv: str | None, values: Sequence[str] | None) -> DataSource:
    """Return the source that the options name, with absolute paths. Raises InvalidInputError."""
    return sources.parse_source(data, tables or (), csv, values or ()).within(Path.cwd())


def _known_key_holders(folder: Folder, invited: Invitation) -> dict[str, str]:
    """Return the compared keys of key holders in a folder's settings, by name; none if there are no settings.

    Raises ConflictError if the settings are for another learner, or the invitation has another key of one of them.
    """
    path = folder.root / "party.toml"
    if not path.exists():
        return {}
    settings = party_settings.PartySettings.load(path)
    check_learner(path, {learner.public_key for learner in settings.learners}, invited)
    for holder in invited.key_holders:
        if settings.key_holder_pins.get(holder.name, holder.public_key) != holder.public_key:
            raise ConflictError(
                f"the invitation has another key of {holder.name} than you have compared: ask its operator; if that is "
                f"right, take its pin out of {path} and say the same again"
            )
    return settings.key_holder_pins


def _compare_key_holders(typed: Sequence[str], invited: Invitation, compared: Mapping[str, str]) -> tuple[str, ...]:
    """Compare each key holder's words, which the owner gives or leaves for later; return the names of those compared.

    Keys in ``compared``, by name, that are the invitation's are not compared again. Raises InvalidInputError.
    """
    words = dict(key_words.named_words(text, "--key-holder-words") for text in typed)
    if unknown := sorted(words.keys() - {holder.name for holder in invited.key_holders}):
        raise InvalidInputError(f"--key-holder-words: the invitation names no key holder {', '.join(unknown)}")
    for holder in invited.key_holders:
        if holder.name not in words and compared.get(holder.name) != holder.public_key:
            request = (
                f"Ask the operator of the key holder {holder.name}, not the learner's, for six words, by telephone; "
                "Enter leaves it for later."
            )
            if typed_words := ask_words(request, optional=True):
                words[holder.name] = typed_words
        if holder.name in words:
            key_words.check_words(words[holder.name], holder.public_key, holder.name)
    return tuple(words)


def _pin(config: Path, invited: Invitation, compared: Sequence[str]) -> list[str]:
    """Pin the key holders that were compared now, also in older settings; return cautions about all other keys."""
    pins_before = party_settings.PartySettings.load(config).key_holder_pins
    for holder in invited.key_holders:
        if holder.name in compared and pins_before.get(holder.name) != holder.public_key:
            membership.save_settings(config, membership.with_pin(read_text(config), "key_holders", holder))
    settings = party_settings.PartySettings.load(config)
    others = {holder.name for holder in invited.key_holders} - {*settings.key_holder_pins, *settings.uncompared}
    return [f"caution: {caution}" for caution in party_policy.key_cautions(settings, others)]


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
    ports: tuple[int, int, int],
) -> str:
    """Return a party's settings; ``compared`` are the key holders whose keys the owner has compared.

    ``ports`` are those of the service, of its metrics and of the owner's page.
    """
    epsilon, delta, epsilon_per_run, delta_per_run = policy
    agreed = invited.studies[0].study
    refused = ", ".join(party_policy.refused_for_sums(agreed))
    pins = membership.spell_pins("key_holders", invited.key_holders, compared)
    pins += membership.spell_pins("parties", invited.parties, ()) if pins else ""
    specific = f"""\
study = {toml_value(folder.root / "study.json")}

[data]
source = {toml_value(data.source)}
out_of_bounds = "{"clip" if clip else "refuse"}"
{_csv(data)}{_values(data)}{_tables(data)}
[policy]  # all that runs may do; change what you like, and start the service again
epsilon = {epsilon!r}
delta = {delta!r}
max_epsilon_per_run = {epsilon_per_run!r}
max_delta_per_run = {delta_per_run!r}
algorithms = {toml_value(party_policy.first_algorithms(agreed))}
minimum_contributors = 2
approval = "{"policy" if trusts_policy else "manual"}"  # manual: runs wait for your word: parley-party pending
require_secure_sum = {f"true  # so {refused} is refused: it shows the learner each answer" if pins else "false"}

[owner]  # your page, where runs wait for your word: parley-party owner prints its address
port = {ports[2]}
"""
    return service_toml(invited, folder, specific, proxy, ports[:2]) + pins


def _csv(data: DataSource) -> str:
    """Return the setting of how the CSV files are written, if the options say it."""
    options = data.csv.model_dump(exclude_defaults=True) if data.csv else {}
    values = (f"{key} = {toml_value(value)}" for key, value in options.items())
    return f"csv = {{{', '.join(values)}}}\n" if options else ""


def _values(data: DataSource) -> str:
    """Return the setting of what values mean, if the options say it."""
    columns = (f"{toml_value(name)} = {_inline(meanings)}" for name, meanings in data.values.items())
    return f"values = {{{', '.join(columns)}}}\n" if data.values else ""


def _inline(meanings: Mapping[str, str]) -> str:
    """Return an inline table of texts."""
    spelt = (toml_value(text) for pair in meanings.items() for text in pair)
    return "{" + ", ".join(f"{value} = {meaning}" for value, meaning in zip(spelt, spelt, strict=True)) + "}"


def _tables(data: DataSource) -> str:
    """Return the settings of a query's tables, if the source is a query."""
    lines = [
        f"{name} = {toml_value(at)}\n"
        if isinstance(at, str)
        else f"{name} = {{postgres = {toml_value(at.postgres)}, table = {toml_value(at.table)}}}\n"
        for name, at in data.tables.items()
    ]
    return "".join(["[data.tables]\n", *lines]) if lines else ""


def _mounted(data: DataSource, reach: Sequence[str] | None) -> tuple[Path, ...]:
    """Return the paths that a container must see beside its folder. Raises InvalidInputError if it could not work."""
    strings = [at for at in data.tables.values() if not isinstance(at, str)]
    if any(at.secret_file is None for at in strings):
        raise InvalidInputError(
            "--compose: the container is given no variable: put the connection string into a file that others cannot "
            "read, and say --table NAME=file:PATH::TABLE"
        )
    if strings and not reach:
        raise InvalidInputError("--compose: say --reach HOST:PORT of the database, as the connection string names it")
    if strings:
        typer.echo("parley-party: the image has to be built with --build-arg EXTRAS=postgres", err=True)
    return data.paths
