"""Edits the text of a party's settings, so that what its owner wrote there, comments too, stays as it is.

Each edit is verified: the new text must mean what the old one meant, and the change. It does not where the settings
spell something in another way than ``join`` does, such as ``learners = [...]`` for ``[[learners]]``. Then an
InvalidInputError says so, and nothing is written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from parley.common.encoding.texts import toml_value
from parley.common.errors import InvalidInputError
from parley.common.storage.keys import replace_private, writing
from parley.common.wire.membership import KnownKey

if TYPE_CHECKING:
    from parley.common.files.sources import DataSource
    from parley.party.settings import Data, PartySettings, StudySettings

_TABLES = re.compile(r"(?m)^(?=[ \t]*\[)")
_AFTER_LAST_LINE = re.compile(r"(?m)(?:^[ \t]*(?:#.*)?\n?)*\Z")  # comments and blank lines at the end
_LEARNERS, _STUDY = re.compile(r"\s*learners\s*="), re.compile(r"(?m)^\s*study\s*=.*\n")
_DATA = re.compile(r"\[\s*data")
_BY_HAND = "the settings spell {} in another way than commands do, who write {}: spell it so, and say the same again"


# ── reading and writing ──────────────────────────────────────────────────────


def settings_of(config: Path, text: str) -> PartySettings:
    """Return the settings that a text means as the file ``config``, if a party can start with them.

    Raises InvalidInputError, UnavailableError, and OwnKeyError where the party's own key cannot be read.
    """
    from parley.party.settings import PartySettings  # noqa: PLC0415 -- without it, help starts faster

    draft = config.resolve().with_name(f".{config.name}.draft")
    with writing(config):
        replace_private(draft, text.encode())
        try:
            settings = PartySettings.load(draft)
            _ = settings.identity
        except InvalidInputError as error:
            raise InvalidInputError(error.detail.replace(str(draft), str(config))) from None
        finally:
            draft.unlink()
    return settings


def save_settings(config: Path, text: str) -> None:
    """Replace the settings file if a party can start with the new text. Raises what `settings_of` raises."""
    settings_of(config, text)
    with writing(config):
        replace_private(config.resolve(), text.encode())


# ── tables ───────────────────────────────────────────────────────────────────


def appended(text: str, tables: str) -> str:
    """Return settings with ``tables`` at their end, such as ``[[studies]]``. Raises InvalidInputError."""
    expected = _merged(tomllib.loads(text), tomllib.loads(tables))
    names = " and ".join(tomllib.loads(tables))
    return _checked(f"{text.rstrip()}\n\n{tables.strip()}\n", expected, names, tables.strip().partition("\n")[0])


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of two texts, one after the other: of lists, both parts."""
    merged = dict(values)
    for name, value in more.items():
        before = values.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = _merged(before, value)
        else:
            merged[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value
    return merged


def _checked(text: str, expected: Mapping[str, Any], what: str, spelling: str) -> str:
    """Return a text that means what is expected. Raises InvalidInputError, which says how to spell ``what``."""
    if not _means(text, expected):
        raise InvalidInputError(_BY_HAND.format(what, spelling))
    return text


def _means(text: str, expected: Mapping[str, Any]) -> bool:
    """Say whether a text is TOML, and means what is expected."""
    try:
        return tomllib.loads(text) == expected
    except tomllib.TOMLDecodeError:
        return False


def _parts(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the parts of settings, from one table's head to the next, each with its table's keys."""
    for part in _TABLES.split(text):
        yield part, _keys_of(part.lstrip().partition("\n")[0])


def _keys_of(head: str) -> tuple[str, ...]:
    """Return the keys of a table by its head; none for a line that is no head.

    >>> _keys_of("[[studies]]  # the first"), _keys_of("[studies.data]"), _keys_of("port = 1")
    (('studies',), ('studies', 'data'), ())
    """
    keys: list[str] = []
    try:
        tables: Any = tomllib.loads(head) if head.startswith("[") else {}
    except tomllib.TOMLDecodeError:
        return ()
    while tables:
        ((key, inner),) = tables.items()
        keys.append(key)
        tables = inner[0] if isinstance(inner, list) else inner
    return tuple(keys)


def _split_end(part: str) -> tuple[str, str]:
    """Split a part into its lines, and the comments at its end, which are most likely about the table after it."""
    end = _AFTER_LAST_LINE.search(part)
    at = end.start() if end else len(part)
    return part[:at], part[at:]


# ── studies ──────────────────────────────────────────────────────────────────


def spell_study(entry: StudySettings) -> str:
    """Return a study, its data and what differs in its policy, as TOML."""
    people = f"people = {toml_value(entry.people)}\n" if entry.people is not None else ""
    policy = entry.policy.model_dump(exclude_none=True)
    rules = "".join(f"{name} = {toml_value(value)}\n" for name, value in policy.items())
    return f"""\
[[studies]]
name = {toml_value(entry.name)}
study = {toml_value(entry.study)}
{people}
[studies.data]
source = {toml_value(entry.data.source)}
out_of_bounds = "{entry.data.out_of_bounds}"
{_person(entry.data)}{_csv(entry.data)}{_values(entry.data)}{_query_tables(entry.data)}
[studies.policy]  # what differs from [policy] for this study
{rules}"""


def _person(data: Data) -> str:
    """Return the setting of the column that says whose a row is, if the owner pins one."""
    return "" if data.person is None else f"person = {toml_value(data.person)}\n"


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


def _query_tables(data: DataSource) -> str:
    """Return the settings of a query's tables, if the source is a query."""
    lines = [
        f"{name} = {toml_value(at)}\n"
        if isinstance(at, str)
        else f"{name} = {{postgres = {toml_value(at.postgres)}, table = {toml_value(at.table)}}}\n"
        for name, at in data.tables.items()
    ]
    return "".join(["\n[studies.data.tables]\n", *lines]) if lines else ""


def in_long_form(text: str, name: str) -> str:
    """Return settings in which the study of the short form, ``study`` and ``[data]``, is one of ``[[studies]]``.

    ``name`` is the study's own. Settings without the short form stay. Raises InvalidInputError.
    """
    expected = tomllib.loads(text)
    if "study" not in expected or "data" not in expected:
        return text
    entry = {"name": name, "study": expected.pop("study"), "data": expected.pop("data")}
    expected.setdefault("studies", []).append(entry)
    (first, _), *others = _parts(text)
    line = _STUDY.search(first)
    left = [_STUDY.sub("", first)]
    moved = [f"[[studies]]\nname = {toml_value(name)}\n{line[0].lstrip() if line else ''}"]
    for part, keys in others:
        lines, end = _split_end(part) if keys[:1] == ("data",) else ("", part)
        left.append(end)
        moved.append(_DATA.sub("[studies.data", lines, count=1))
    spelt = "".join(left).rstrip() + "\n\n" + "\n".join(filter(None, map(str.strip, moved))) + "\n"
    return _checked(spelt, expected, "study and data", 'study = "FILE" and [data]')


def with_learners(text: str, study: str, learners: Sequence[str]) -> str:
    """Return settings in which these learners alone may ask about one of ``[[studies]]``. Raises InvalidInputError."""
    expected, place = deepcopy(tomllib.loads(text)), _place_of(text, study)
    expected["studies"][place].setdefault("policy", {})["learners"] = list(learners)
    line = f"learners = {toml_value(list(learners))}\n"
    parts = [*_by_study(text)]
    own = [number for number, (_, _, at) in enumerate(parts) if at == place]
    spelt = [part for part, _, _ in parts]
    policy = next((number for number in own if parts[number][1] == ("studies", "policy")), None)
    if policy is not None:
        head, *lines = spelt[policy].splitlines(keepends=True)
        others = (each for each in lines if not _LEARNERS.match(each))
        spelt[policy] = "".join([f"{head.rstrip()}\n", line, *others])
    elif own:
        lines_before, end = _split_end(spelt[own[-1]])
        spelt[own[-1]] = f"{lines_before.rstrip()}\n\n[studies.policy]\n{line}\n{end.lstrip()}"
    return _checked("".join(spelt), expected, "studies", "[[studies]] and [studies.policy]")


def without_study(text: str, study: str) -> str:
    """Return settings without one of ``[[studies]]``. Raises InvalidInputError."""
    expected, place = deepcopy(tomllib.loads(text)), _place_of(text, study)
    del expected["studies"][place]
    if not expected["studies"]:
        del expected["studies"]
    spelt = "".join(_split_end(part)[1] if at == place else part for part, _, at in _by_study(text))
    return _checked(spelt, expected, "studies", "[[studies]]")


def _place_of(text: str, study: str) -> int:
    """Return the place of a study in ``[[studies]]``."""
    return [entry["name"] for entry in tomllib.loads(text)["studies"]].index(study)


def _by_study(text: str) -> Iterator[tuple[str, tuple[str, ...], int | None]]:
    """Yield the parts of settings with their keys, and the study that they belong to, by its place; None for others."""
    study = -1
    for part, keys in _parts(text):
        study += keys == ("studies",)
        yield part, keys, study if keys[:1] == ("studies",) else None


# ── pins of keys ─────────────────────────────────────────────────────────────

Table = Literal["key_holders", "parties"]
"""The arrays of ``[secure_sum]``."""

_PUBLIC_KEY, _COMPARED = re.compile(r"\s*public_key\s*="), re.compile(r"\s*compared\s*=")


def spell_pins(
    table: Table, keys: Iterable[KnownKey], compared: Iterable[str], learners: Sequence[str] | None = None
) -> str:
    """Return pins as TOML, which count for these ``learners``, for all if None.

    ``compared`` are the names of those that the owner has compared.
    """
    whose = "" if learners is None else f"learners = {toml_value(list(learners))}\n"
    return "".join(
        f'\n[[secure_sum.{table}]]\nname = "{key.name}"\n{whose}{_spell(key, compared=key.name in compared)}'
        for key in keys
    )


def with_pins_for(text: str, earlier: Sequence[str], learner: str, keys: Collection[str]) -> str:
    """Return settings whose pins count for the ``earlier`` learners, and for another one if it knows the key too.

    ``keys`` are the public keys that the other one knows. Pins that name their learners keep them. Raises
    InvalidInputError where the pins are not written as arrays of tables.
    """

    def learners_of(pin: Mapping[str, Any]) -> list[str]:
        return list(dict.fromkeys([*pin.get("learners", earlier), *([learner] if pin["public_key"] in keys else [])]))

    expected = deepcopy(tomllib.loads(text))
    for table in ("key_holders", "parties"):
        for pin in expected.get("secure_sum", {}).get(table, []):
            pin["learners"] = learners_of(pin)
    spelt: list[str] = []
    for part, keys_of_table in _parts(text):
        if pin := _pin_in(part, keys_of_table):
            head, *lines = part.splitlines(keepends=True)
            others = [line for line in lines if not _LEARNERS.match(line)]
            spelt += [f"{head.rstrip()}\n", f"learners = {toml_value(learners_of(pin))}\n", *others]
        else:
            spelt.append(part)
    return _checked("".join(spelt), expected, "secure_sum", "[[secure_sum.key_holders]] and [[secure_sum.parties]]")


def with_pin(text: str, table: Table, key: KnownKey, learners: Sequence[str] | None = None) -> str:
    """Return the text of settings with this key marked as compared: in its pin, or in a new one at the end.

    A new one counts for these ``learners``, for all if None.

    Raises InvalidInputError where the pins are not written as arrays of tables.
    """
    expected = deepcopy(tomllib.loads(text))
    pins = expected.setdefault("secure_sum", {}).setdefault(table, [])
    compared = {"name": key.name, "public_key": key.public_key, "compared": True}
    if pin_before := next((pin for pin in pins if pin.get("name") == key.name), None):
        pin_before |= compared
        pinned = "".join(_marked(part, _pin_in(part, keys, table), key) for part, keys in _parts(text))
    else:
        pins.append(compared | ({} if learners is None else {"learners": list(learners)}))
        pinned = text.rstrip("\n") + "\n" + spell_pins(table, [key], [key.name], learners)
    if _means(pinned, expected):
        return pinned
    by_hand = f'{{ name = "{key.name}", public_key = "{key.public_key}", compared = true }}'
    raise InvalidInputError(f"secure_sum is not spelt as [[secure_sum.{table}]]: write the pin by hand: {by_hand}")


def _spell(key: KnownKey, *, compared: bool) -> str:
    """Return the lines of a pin that say its key and whether it was compared."""
    counts = "true" if compared else "false  # until you say: parley-party pin NAME WORDS"
    return f'public_key = "{key.public_key}"\ncompared = {counts}\n'


def _pin_in(part: str, keys: tuple[str, ...], *tables: Table) -> Mapping[str, Any] | None:
    """Return the pin that a part of settings spells, with its table's keys; None if that is no array of ``tables``.

    Without ``tables``, of either.
    """
    if keys not in {("secure_sum", table) for table in tables or get_args(Table)} or not part.lstrip().startswith("[["):
        return None
    try:
        (pin,) = tomllib.loads(part)["secure_sum"][keys[1]]
    except tomllib.TOMLDecodeError:
        return None
    return cast("Mapping[str, Any]", pin)


def _marked(part: str, pin: Mapping[str, Any] | None, key: KnownKey) -> str:
    """Return a part of settings; if it spells a ``pin`` of this name, with the key, as compared."""
    if pin is None or pin.get("name") != key.name:
        return part
    lines = (line for line in part.splitlines(keepends=True) if not _COMPARED.match(line))
    return "".join(_spell(key, compared=True) if _PUBLIC_KEY.match(line) else line for line in lines)
