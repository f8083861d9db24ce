"""``parley-party join``: makes a party that can start from an invitation, or adds a study to one that has settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import so_many, toml_value
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.service.commands import (
    AsIsOption,
    CsvOption,
    Printer,
    TableArgument,
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
    compare_learner,
    container_of,
    free_ports,
    open_invitation,
    read_proxy,
    register,
    report_joined,
    write_in_place,
)

with deferred():
    from parley.common import extras
    from parley.common.encoding import key_words
    from parley.common.files import sources, study_fit
    from parley.party import invited as invited_party
    from parley.party import membership, settings_text
    from parley.party import policy as party_policy
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.data import owner_data
    from parley.party.ledger import ledger

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.files.sources import DataSource
    from parley.common.runs.certificate import SignedStudy
    from parley.common.service.http.proxy import ProxyAccess
    from parley.common.wire.membership import Invitation
    from parley.party.data.owner_data import Holding
    from parley.party.invited import Addition, InvitedParty
    from parley.party.joining import Container
    from parley.party.settings import PartySettings, Policy, StudySettings

KeyHolderWordsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key-holder-words",
        metavar="NAME=WORDS",
        help="The six words of a key holder's key, as its own operator reads them out; asked for if not given. Repeat.",
    ),
]
ExistingConfig = Annotated[
    Path | None, typer.Option("--config", help="The settings to add to, instead of those in the invitation's folder.")
]

_NO_TRAINING = (
    "only {} trains on such rows, and shows the learner each answer: as long as policy.require_secure_sum is true, no "
    "run trains"
)


@dataclass(frozen=True, slots=True)
class OwnTable:
    """The owner's table, and how it is read."""

    argument: TableArgument = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[STUDY=]TABLE",
            help="Your table: a file, folder/*.parquet, file.sqlite::table, or a query. For several studies, one for "
            "all of them, or one each: --data STUDY=TABLE; those without are left for later.",
        ),
    ] = None
    table: TableOption = None
    csv: CsvOption = None
    value: ValueOption = None
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip values beyond the study's bounds, rather than refuse the table.")
    ] = False
    as_is: AsIsOption = False

    def sources(self, names: Collection[str]) -> dict[str, DataSource]:
        """Return the table for each of the named studies, with absolute paths, and by "" that for all others.

        Raises InvalidInputError, also for two tables of one study.
        """
        found: dict[str, DataSource] = {}
        for text in (*([self.argument] if self.argument else ()), *(self.data or ())):
            start, sign, rest = text.partition("=")
            name, where = (start, rest) if sign and start in names else ("", text)
            if name in found:
                whose = f"for {name}" if name else f"without a study: say --data STUDY=TABLE for {', '.join(names)}"
                raise InvalidInputError(f"--data: two tables {whose}")
            read = sources.parse_source(where, self.table or (), self.csv, self.value or ())
            found[name] = read.within(Path.cwd())
        return found


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """Which study the table is for, and what the owner says of it."""

    study: Annotated[
        str | None,
        typer.Option("--study", help="Join for this study alone, of those that the invitation names."),
    ] = None
    people: Annotated[
        str | None,
        typer.Option(
            "--people",
            metavar="WORDS",
            help="A name for the people in this table, only if you know that none of them is in a table of your other "
            "studies: they get an account of their own.",
        ),
    ] = None
    person: Annotated[
        str | None,
        typer.Option(
            "--person",
            metavar="COLUMN",
            help="The column of your table that says whose a row is, such as a patient's number, where a study hides "
            "all rows of a person at once: your word, which the study must have too.",
        ),
    ] = None
    share: Annotated[
        float | None,
        typer.Option("--share", help="The part of the account to set aside for this study, such as 0.25."),
    ] = None
    by_policy: Annotated[
        bool, typer.Option("--by-policy", help="Take part in all runs of this study that the policy allows, unasked.")
    ] = False


@dataclass(frozen=True, slots=True)
class FirstBudget:
    """What the runs of all studies may cost; for settings that are new. Their fields in the order of `BUDGET`."""

    epsilon: Annotated[float | None, typer.Option("--epsilon", help="What all runs together may cost; 5.")] = None
    delta: Annotated[
        float | None, typer.Option("--delta", help="What all runs together may cost; 0.00002, or less of many rows.")
    ] = None
    epsilon_per_run: Annotated[float | None, typer.Option("--epsilon-per-run", help="What one run may cost; 1.")] = None
    delta_per_run: Annotated[
        float | None, typer.Option("--delta-per-run", help="What one run may cost; 0.00001, or less.")
    ] = None

    def limits(self, settings: PartySettings | None, n_examples: int = 0) -> dict[str, float]:
        """Return the budget by the names of the settings; what is not said depends on the rows of the largest table.

        Raises InvalidInputError where settings have another.
        """
        usual, limits = invited_party.usual_budget(n_examples), {}
        for option, (name, value) in zip(fields(self), usual.items(), strict=True):
            present = value if settings is None else getattr(settings.policy, name)
            limits[name] = present if (said := getattr(self, option.name)) is None else said
            if settings is not None and limits[name] != present:
                raise InvalidInputError(
                    f"--{option.name.replace('_', '-')}: the account of all your studies is in your settings: change "
                    f"{name} in [policy] of {settings.source}"
                )
        return limits


def join_command(
    invitation: InvitationArgument,
    own: OwnTable,
    terms: StudyOptions,
    words: WordsOption = None,
    key_holder_words: KeyHolderWordsOption = None,
    target: FolderOption = None,
    config: ExistingConfig = None,
    *,
    budget: FirstBudget,
    proxy: ProxyOption = None,
    port: PortOption = None,
    compose: ComposeOption = False,
    reach: ReachOption = None,
    out: Printer,
) -> None:
    """Join a learner: checks the study against your table, makes keys, settings and ledger, and registers.

    Where you have settings, it adds the studies to them, and the learner if it is new to you: a service that runs takes
    both up by itself. All studies share one account. Of several studies you may join some now, and others later by the
    same invitation.

    Your service opens its connections to the learner itself: no port of yours is opened to anybody. Compare words
    by telephone, so that nobody is in between: the learner's with its operator, each key holder's with its own. A key
    holder whose words you do not have yet opens no sum until parley-party pin has compared them; other owners' parties
    count as the learner's own until then. After a failure, say the same again.
    """
    with quietly():
        invited = open_invitation(invitation, "party")
        joining = invited_party.InvitedParty.find(invited, target, config)
        in_container = compose or (joining.config.parent / "docker-compose.party.yml").exists()
        check_contained(reach, in_container=in_container)
        budget.limits(before := joining.settings)
        chosen = _chosen(joining, own, terms, port)
        if words is not None or not joining.knows_learner:
            compare_learner(words, invited)
        other_keys = joining.other_keys()
        compared = _compare_key_holders(key_holder_words or (), invited, before.key_holder_pins if before else {})
        on_the_way = joining.proxy(read_proxy(proxy))
        tables = [source for _, source in chosen if source]
        container = _container(joining, tables, on_the_way, reach) if in_container else None
        enrolment = membership.Enrolment(invited, on_the_way)
        enrolment.check()
        examined = [_examined(joining, signed, source, own, terms) for signed, source in chosen]
        additions = [addition for addition, _ in examined]
        joining.folder.begin(invited, keeps_tokens=bool(additions))
        if joining.settings is None:
            text = joining.first_text(
                additions, budget.limits(None, _most_rows(examined)), compared, on_the_way, _ports(port)
            )
        else:
            text = joining.changed_text(additions, compared, on_the_way)
        settings, notes = _prepared(joining, examined, text)
        member = register(invited, joining.folder, enrolment, settings.signing_key(), joining.config, text)
        cautions = joining.cautions(other_keys)
        notes += [*_pin(member.settings, invited, compared), *(f"caution: {caution}" for caution in cautions)]
        studies = [addition.signed.study.name for addition in additions if joining.knows_learner]
        report_joined(out, member, container, settings.side_ports, notes, studies=studies, has_run=before is not None)


def _most_rows(examined: Sequence[tuple[Addition, Holding | None]]) -> int:
    """Return the number of rows of the largest table, 0 without any."""
    return max((holding.n_examples for _, holding in examined if holding), default=0)


def _prepared(
    joining: InvitedParty, examined: Sequence[tuple[Addition, Holding | None]], text: str
) -> tuple[PartySettings, list[str]]:
    """Write what settings of this text need: studies' files, and for a new party its ledger; return them, and notes.

    Raises InvalidInputError where no party could start with them.
    """
    settings, notes = settings_text.settings_of(joining.config, text), list[str]()
    for addition, holding in examined:
        signed, entry = addition.signed, addition.entry
        if entry and holding:
            write_in_place(entry.study, signed.model_dump_json(indent=1))  # as signed
            notes += _fitting(settings, entry, entry.data.source, holding)
        else:
            notes.append(
                f"{joining.learner} may ask about {signed.study.name} too, by the rules that it has for others"
            )
    if joining.settings is None and not ledger.has_ledger(settings.state):
        ledger.create_ledger(settings.state, settings.identity, settings.policy.adjacency)
    if any(addition.entry and addition.entry.data.person for addition, _ in examined):
        charged = party.charged_adjacency(settings)
        notes += [f"warning: {caution}" for caution in party_policy.person_cautions(settings, charged)]
    return settings, notes


def _chosen(
    joining: InvitedParty, own: OwnTable, terms: StudyOptions, port: int | None
) -> list[tuple[SignedStudy, DataSource | None]]:
    """Return the studies to add, without those that the settings have, and the table for each, if it needs one.

    Raises InvalidInputError where the options do not say what is needed, or another than what settings say.
    """
    if joining.settings is not None and port not in {None, joining.settings.port}:
        raise InvalidInputError(f"--port: the service has its port already: change port in {joining.config}")
    offered = [signed.study.name for signed in joining.invitation.studies]
    tables = own.sources(offered)
    with_tables = [name for name in offered if name in tables]
    names = [name for name in offered if name not in joining.agreed or len(offered) == 1] or offered
    if terms.study:
        names = [terms.study]
    elif with_tables and "" not in tables:
        names = with_tables
    if terms.person is not None and all(
        signed.study.person is None for signed in joining.invitation.studies if signed.study.name in names
    ):
        raise InvalidInputError(f"--person: {', '.join(names)} hides one record each, and names no person")
    if extra := [name for name in with_tables if name not in names]:
        raise InvalidInputError(f"--study: it names {terms.study} alone, and --data a table for {', '.join(extra)}")
    chosen: list[tuple[SignedStudy, DataSource | None]] = []
    for name in names:
        signed, source = joining.choose(name), tables.get(name, tables.get(""))
        _check_agreed(joining, name, source, terms)
        if signed is not None:
            chosen.append((signed, None if name in joining.agreed else source))
    if missing := [
        signed.study.name for signed, source in chosen if source is None and signed.study.name not in joining.agreed
    ]:
        each = "" if len(missing) == 1 else f": {' '.join(f'--data {name}=TABLE' for name in missing)}, or some of them"
        raise InvalidInputError(f"--data: name your table for {', '.join(missing)}{each}")
    return chosen


def _check_agreed(joining: InvitedParty, name: str, source: DataSource | None, terms: StudyOptions) -> None:
    """Raise InvalidInputError where the options say of a study another than the settings that have it."""
    if (stated := joining.agreed.get(name)) is None:
        return
    if source is not None and (source.source, source.tables) != (stated.data.source, stated.data.tables):
        raise InvalidInputError(
            f"--data: {joining.config} has {name} with other data: change [studies.data] there, and say parley-party "
            "accept-data"
        )
    if terms.person not in {None, stated.data.person}:
        raise InvalidInputError(
            f"--person: {joining.config} has {name} already: change person in its [studies.data] there"
        )
    if terms.people not in {None, stated.people} or terms.share not in {None, stated.policy.share}:
        raise InvalidInputError(
            f"--people, --share: {joining.config} has {name} already: change its people or share there"
        )


def _examined(
    joining: InvitedParty, signed: SignedStudy, source: DataSource | None, own: OwnTable, terms: StudyOptions
) -> tuple[Addition, Holding | None]:
    """Return a study that is added, with its settings and its data, which fit it. Nothing is written.

    Raises InvalidInputError, which names what does not fit, also if a part is most likely read wrongly, unless the
    owner says as is; InvalidDataError for fewer rows than the policy wants.
    """
    if source is None:
        return invited_party.Addition(signed, None), None
    approval = "policy" if terms.by_policy else None
    person = _pinned_person(signed.study, terms)
    entry = joining.entry(
        signed.study, source, clip=own.clip, people=terms.people, person=person, share=terms.share, approval=approval
    )
    extras.require_extra("files", "reading a party's data")
    try:
        holding = owner_data.Holding(signed.study, owner_data.load_here(entry.data, signed.study))
    except InvalidInputError as error:
        if len(joining.invitation.studies) > 1:
            error.detail = f"{signed.study.name}: {error.detail}"
        raise
    if holding.loaded.doubts and not own.as_is:
        doubts = "; ".join(doubt.words for doubt in holding.loaded.doubts)
        raise InvalidInputError(f"some of the table is most likely read wrongly: {doubts}. Or take it --as-is")
    if joining.settings and holding.n_examples < (least := joining.settings.policy.minimum_rows):
        units = "persons" if signed.study.person else "rows"
        raise InvalidDataError(f"the data has fewer {units} than policy.minimum_rows = {least}")
    if joining.settings and ledger.has_ledger(joining.settings.state):
        party.check_addition(joining.settings, entry, holding)
    return invited_party.Addition(signed, entry), holding


def _pinned_person(study: Study, terms: StudyOptions) -> str | None:
    """Return the column that the owner says is the one that a study takes for whose a row is; None for records.

    Raises InvalidInputError where the owner does not say it, or says another.
    """
    if study.person is None:
        return None
    if (column := study.person.column) != terms.person:
        raise InvalidInputError(
            f"--person: {study.name} hides all rows with one {column!r} at once. If that says whose a row of your "
            f"table is, as a patient's number does and a visit's does not, say --person {toml_value(column)}"
        )
    return column


def _fitting(settings: PartySettings, entry: StudySettings, data: str, holding: Holding) -> list[str]:
    """Say that the table fits the study, what that is about, what to know of the table, and of the settings."""
    agreed, policy = holding.study, entry.policy.over(settings.policy)
    about = [f"  {words}" for words in (agreed.title, agreed.purpose) if words]
    summary = f"{data} fits {agreed.name}: {so_many(holding.n_examples, 'person' if agreed.person else 'row')}"
    remarks = study_fit.fit_of_loaded(agreed, holding.loaded, as_is=True).remarks()  # a doubt has been said yes to
    return [summary, *about, *remarks, *_warned(policy, agreed, entry.data.person, holding.n_examples)]


def _warned(policy: Policy, agreed: Study, person: str | None, n_examples: int) -> Iterator[str]:
    """Yield warnings about the policy for a study, whose table has the column ``person`` for whose a row is."""
    yield from (f"warning: {words}" for words in party_policy.study_cautions(policy, agreed, person, n_examples))
    if policy.require_secure_sum and not party_policy.trained_by_sums(agreed):
        yield f"warning: {_NO_TRAINING.format(', '.join(party_policy.refused_for_sums(agreed)))}"


def _ports(port: int | None) -> tuple[int, int, int]:
    """Return ports for the service, its metrics and the owner's page; free ones, unless that of the service is said."""
    free, for_metrics, for_page = free_ports(3)
    return port or free, for_metrics, for_page


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
            settings_text.save_settings(config, settings_text.with_pin(read_text(config), "key_holders", holder))
    settings = party_settings.PartySettings.load(config)
    others = {holder.name for holder in invited.key_holders} - {*settings.key_holder_pins, *settings.uncompared}
    return [f"caution: {caution}" for caution in party_policy.key_cautions(settings, others)]


def _container(
    joining: InvitedParty, tables: Sequence[DataSource], proxy: ProxyAccess | None, reach: Sequence[str] | None
) -> Container:
    """Return the container of the service: it reads the data of all studies, and reaches all learners.

    Raises InvalidInputError if it could not work.
    """
    seen = [path for agreed in joining.agreed.values() for path in agreed.data.paths]
    reads = dict.fromkeys([*seen, *(path for source in tables for path in _mounted(source, reach))])
    addresses = joining.settings.outbound if joining.settings else ()
    others = [str(address.proxy or address.url) for address in addresses if address.name != joining.learner]
    return container_of(joining.invitation, proxy, reach, tuple(reads), others)


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
