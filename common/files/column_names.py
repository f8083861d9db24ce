"""What the names of a table's columns tell: whether they are names at all, and whether one says who somebody is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from parley.common.encoding.texts import shortened
from parley.common.errors import InvalidDataError

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_IDENTIFYING = frozenset({
    "address", "cellphone", "dob", "email", "fax", "firstname", "forename", "guid", "homephone", "iban", "id",
    "identifier", "imei", "ip", "lastname", "latitude", "longitude", "mail", "mobile", "mobilephone", "mrn", "name",
    "nino", "passport", "phone", "postcode", "ssn", "street", "surname", "telephone", "token", "username", "uuid",
    "vin", "workphone", "zip", "zipcode",
})  # fmt: skip
_ENDINGS = ("uuid", "guid", "email", "patientid", "personid", "customerid", "userid", "subjectid", "recordid")
"""With which no other word ends."""
_ABOUT = frozenset({
    "answered", "count", "has", "is", "kind", "length", "minutes", "opened", "plan", "received", "sent", "service",
    "support", "type", "usage", "valid", "verified", "was",
})  # fmt: skip
"""Beside one of these, an identifying word says what is told *of* the phone or the email, which is not told itself."""
_PEOPLE = frozenset({
    "client", "customer", "donor", "employee", "member", "participant", "patient", "person", "proband", "respondent",
    "student", "subject",
})  # fmt: skip
_CARRIERS = frozenset({
    "account", "case", "chart", "encounter", "hospital", "insurance", "nhs", "policy", "record", "registration",
    "specimen",
})  # fmt: skip
"""What has a number for each person, or for each stay of one."""
_NUMBERS = frozenset({"code", "id", "identifier", "key", "no", "nr", "num", "number"})
_SHARE = 0.3


def identifier_words(name: str) -> bool:
    """Whether a column's name says that it tells who somebody is: by its whole words, or two that stand together.

    >>> [identifier_words(name) for name in ("patient_id", "eMail", "SSN", "userid", "zip code", "homePhone")]
    [True, True, True, True, True, True]
    >>> [identifier_words(name) for name in ("valid", "phone_service", "sent_email", "headphones", "boss_name_length")]
    [False, False, False, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not _ABOUT.isdisjoint(words):
        return False
    parts = {*words, *(first + second for first, second in pairwise(words))}
    return not _IDENTIFYING.isdisjoint(parts) or any(word.endswith(_ENDINGS) for word in parts)


def person_words(name: str) -> bool:
    """Whether a column's name says that it numbers people, of whom some may have many rows: it says nothing else.

    >>> [person_words(name) for name in ("subject#", "Patient No", "record_number", "patientid")]
    [True, True, True, True]
    >>> [person_words(name) for name in ("patient_age", "record", "number", "customer_type", "case")]
    [False, False, False, False, False]
    """
    words = {word.lower() for word in _WORD.findall(name)}
    told = {word.removesuffix("id") for word in words - _NUMBERS}
    return bool(told) and (told <= _PEOPLE or (told <= _CARRIERS and told != words))


def near_name(name: str, names: Iterable[str]) -> str | None:
    """Which of some names differs from one by capitals and blanks around it alone; None where none does.

    >>> near_name("ill", ["age", " Ill"])
    ' Ill'
    """
    return next((each for each in names if _folded(each) == _folded(name)), None)


def columns_meant(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Which column of a table each of some names means: the one that is spelt alike, else but for capitals and blanks.

    A name that several columns resemble, or a column that several names do, is left out.

    >>> columns_meant(["age", " ILL ", "Dose", "DOSE"], ["age", "ill", "dose"])
    {'age': 'age', 'ill': ' ILL '}
    """
    names, wanted = list(names), list(wanted)
    exact = set(names) & set(wanted)
    columns = _by_folded(name for name in dict.fromkeys(names) if name not in exact)
    asked = _by_folded(name for name in dict.fromkeys(wanted) if name not in exact)
    meant = {}
    for name in wanted:
        if name in exact:
            meant[name] = name
        elif len(alike := columns.get(_folded(name), [])) == 1 and len(asked[_folded(name)]) == 1:
            meant[name] = alike[0]
    return meant


def renamed(meant: Mapping[str, str]) -> list[str]:
    """What to say of columns that are not spelt as the names that mean them."""
    return [f"column {shortened(column)!r} is read as {name!r}" for name, column in meant.items() if name != column]


def same_columns(path: Path, names: Collection[str], first: Path, first_names: Collection[str]) -> dict[str, str]:
    """Which column of a file each of the first file's names means, where all of them mean one and none is left.

    Raises InvalidDataError that names the file and a column, where both files have a line of names.

    >>> same_columns(Path("b.csv"), ["age", "dose"], Path("a.csv"), ["age", "ill"])
    Traceback (most recent call last):
    parley.common.errors.InvalidDataError: data file b.csv lacks column 'ill', which a.csv has
    """
    meant = columns_meant(names, first_names)
    if len(meant) == len(names) == len(first_names):
        return meant
    if not meant:
        raise InvalidDataError(f"data file {path} has none of the columns of {first}")
    for where, header in ((first, first_names), (path, names)):
        check_header(str(where), [name for name in header if name.strip()])
    if lacking := [name for name in first_names if name not in meant]:
        raise lacks(path, lacking[0], first)
    raise lacks(first, next(name for name in names if name not in meant.values()), path)


def lacks(path: Path, column: str, other: Path) -> InvalidDataError:
    """The error for a file without a column that another file of the same table has."""
    return InvalidDataError(f"data file {path} lacks column {shortened(column)!r}, which {other} has")


def same_wanted(path: Path, meant: Collection[str], first: Path, first_meant: Collection[str]) -> None:
    """Raise InvalidDataError where one of two files has a column that is wanted, and the other has not."""
    for name in first_meant:
        if name not in meant:
            raise lacks(path, name, first)
    for name in meant:
        if name not in first_meant:
            raise lacks(first, name, path)


def _by_folded(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_folded(name), []).append(name)
    return found


def _folded(name: str) -> str:
    """A name without what people vary: capitals, blanks around it, and how letters with marks are put together."""
    return unicodedata.normalize("NFC", name).strip().casefold()


def check_header(where: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a table whose first line names no columns. It repeats none: they may be values.

    Columns that are counted from 0 or 1 on are named.

    >>> check_header("adult.csv", ["39", "State-gov", "77516"])
    Traceback (most recent call last):
    parley.common.errors.InvalidDataError: data file adult.csv has no line of names: its first line looks like values
    """
    empty = [number for number, name in enumerate(names, 1) if not name.strip()]
    if empty:
        places = ", ".join(map(str, empty[:5]))
        told = f"{len(empty)} columns have no name, at place {places}"
        raise InvalidDataError(f"data file {where}: {told}: name them, or save the table without them")
    values = sum(_is_number(name) for place, name in enumerate(names) if name not in {str(place), str(place + 1)})
    if values > _SHARE * len(names):
        raise InvalidDataError(f"data file {where} has no line of names: its first line looks like values")


def _is_number(name: str) -> bool:
    """Whether a name spells a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True
