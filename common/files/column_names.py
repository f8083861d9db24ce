"""The names of a table's columns: whether they are names at all, which match a study's, and which identify people."""

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
"""Endings that no other word has."""
_ABOUT = frozenset({
    "answered", "count", "has", "is", "kind", "length", "minutes", "opened", "plan", "received", "sent", "service",
    "support", "type", "usage", "valid", "verified", "was",
})  # fmt: skip
"""Beside one of these, an identifying word names a fact about the phone or the email, not the phone number itself."""
_PEOPLE = frozenset({
    "client", "customer", "donor", "employee", "member", "participant", "patient", "person", "proband", "respondent",
    "student", "subject",
})  # fmt: skip
_CARRIERS = frozenset({
    "account", "case", "chart", "encounter", "hospital", "insurance", "nhs", "policy", "record", "registration",
    "specimen",
})  # fmt: skip
"""Things that are numbered once for each person, or for each stay of a person."""
_NUMBERS = frozenset({"code", "id", "identifier", "key", "nbr", "no", "nr", "num", "number"})
_GAPS = re.compile(r"[\s_.-]+")
"""What programs write between the words of a name: blanks, underscores, dots, hyphens."""
_MOST_NUMERIC = 0.3
"""The largest share of a line of names that may be numbers."""


def names_identifier(name: str) -> bool:
    """Return whether a column's name says that it identifies a person: by a whole word, or two adjacent ones.

    >>> [names_identifier(name) for name in ("patient_id", "eMail", "SSN", "userid", "zip code", "homePhone")]
    [True, True, True, True, True, True]
    >>> [names_identifier(name) for name in ("valid", "phone_service", "sent_email", "headphones", "boss_name_length")]
    [False, False, False, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not _ABOUT.isdisjoint(words):
        return False
    parts = {*words, *(first + second for first, second in pairwise(words))}
    return not _IDENTIFYING.isdisjoint(parts) or any(word.endswith(_ENDINGS) for word in parts)


def numbers_people(name: str) -> bool:
    """Return whether a column's name says only that it numbers people; each of them may have many rows.

    >>> [numbers_people(name) for name in ("subject#", "Patient No", "record_number", "patientid")]
    [True, True, True, True]
    >>> [numbers_people(name) for name in ("patient_age", "record", "number", "customer_type", "case")]
    [False, False, False, False, False]
    """
    words = {word.lower() for word in _WORD.findall(name)}
    subjects = {word.removesuffix("id") for word in words - _NUMBERS}
    return bool(subjects) and (subjects <= _PEOPLE or (subjects <= _CARRIERS and subjects != words))


def numbers_something(name: str) -> bool:
    """Return whether a column's name ends in a word for a number by which something is known.

    >>> [numbers_something(name) for name in ("patient_nbr", "CaseNo", "num_visits", "numbers", "id")]
    [True, True, False, False, True]
    """
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _NUMBERS - {"code", "key", "num"}


def similar_name(name: str, names: Iterable[str]) -> str | None:
    """Return the first of some names that equals one but for capitals and surrounding blanks; None where there is none.

    >>> similar_name("ill", ["age", " Ill"])
    ' Ill'
    """
    return next((other for other in names if _folded(other) == _folded(name)), None)


def match_columns(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Match each name that is wanted with a column: one spelt the same, or the same but for capitals and gaps.

    Gaps are surrounding blanks, and the blanks, underscores, dots and hyphens between words.

    A name that several columns resemble, or a column that several names resemble, is left out.

    >>> match_columns(["age", " ILL ", "Dose", "DOSE", "Days in-bed"], ["age", "ill", "dose", "days_in_bed"])
    {'age': 'age', 'ill': ' ILL ', 'days_in_bed': 'Days in-bed'}
    """
    names, wanted = list(names), list(wanted)
    exact = set(names) & set(wanted)
    columns_by_folded = _group_by_folded(name for name in dict.fromkeys(names) if name not in exact)
    wanted_by_folded = _group_by_folded(name for name in dict.fromkeys(wanted) if name not in exact)
    meant = {}
    for name in wanted:
        if name in exact:
            meant[name] = name
        elif (
            len(similar := columns_by_folded.get(_folded(name), [])) == 1 and len(wanted_by_folded[_folded(name)]) == 1
        ):
            meant[name] = similar[0]
    return meant


def renaming_notes(meant: Mapping[str, str]) -> list[str]:
    """Return lines that say which columns are read by a name that is spelt differently."""
    return [f"column {shortened(column)!r} is read as {name!r}" for name, column in meant.items() if name != column]


def match_all_columns(path: Path, names: Collection[str], first: Path, first_names: Collection[str]) -> dict[str, str]:
    """Match each of the first file's names with a column of another file; all columns of both files must match.

    Raises InvalidDataError that names the file and a column, where both files have a line of names.

    >>> match_all_columns(Path("b.csv"), ["age", "dose"], Path("a.csv"), ["age", "ill"])
    Traceback (most recent call last):
    parley.common.errors.InvalidDataError: data file b.csv lacks column 'ill', which a.csv has
    """
    meant = match_columns(names, first_names)
    if len(meant) == len(names) == len(first_names):
        return meant
    if not meant:
        raise InvalidDataError(f"data file {path} has none of the columns of {first}")
    for where, header in ((first, first_names), (path, names)):
        check_header(str(where), [name for name in header if name.strip()])
    if lacking := [name for name in first_names if name not in meant]:
        raise missing_column_error(path, lacking[0], first)
    raise missing_column_error(first, next(name for name in names if name not in meant.values()), path)


def missing_column_error(path: Path, column: str, other: Path) -> InvalidDataError:
    """Return the error for a file without a column that another file of the same table has."""
    return InvalidDataError(f"data file {path} lacks column {shortened(column)!r}, which {other} has")


def check_same_columns(path: Path, meant: Collection[str], first: Path, first_meant: Collection[str]) -> None:
    """Raise InvalidDataError where one of two files has a wanted column that the other lacks."""
    for name in first_meant:
        if name not in meant:
            raise missing_column_error(path, name, first)
    for name in meant:
        if name not in first_meant:
            raise missing_column_error(first, name, path)


def _group_by_folded(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_folded(name), []).append(name)
    return groups


def _folded(name: str) -> str:
    """Return a name without capitals, differences in how accented letters are composed, and kinds of gaps in it."""
    return _GAPS.sub("_", unicodedata.normalize("NFC", name).strip().casefold())


def check_header(where: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a table whose first line does not name columns. It quotes none: they may be values.

    Names that count columns from 0 or 1 on are accepted.

    >>> check_header("adult.csv", ["39", "State-gov", "77516"])
    Traceback (most recent call last):
    parley.common.errors.InvalidDataError: data file adult.csv has no line of names: its first line looks like values
    """
    empty = [number for number, name in enumerate(names, 1) if not name.strip()]
    if empty:
        places = ", ".join(map(str, empty[:5]))
        unnamed = f"{len(empty)} columns have no name, at place {places}"
        raise InvalidDataError(f"data file {where}: {unnamed}: name them, or save the table without them")
    values = sum(_is_number(name) for place, name in enumerate(names) if name not in {str(place), str(place + 1)})
    if values > _MOST_NUMERIC * len(names):
        raise InvalidDataError(f"data file {where} has no line of names: its first line looks like values")


def _is_number(name: str) -> bool:
    """Return whether a name spells a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True
