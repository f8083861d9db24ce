"""What the names of a table's columns tell: whether they are names at all, and whether one says who somebody is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from common.errors import InvalidDataError

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_IDENTIFYING = frozenset({
    "address", "dob", "email", "fax", "firstname", "forename", "guid", "iban", "id", "identifier", "imei", "ip",
    "lastname", "latitude", "longitude", "mail", "mobile", "mrn", "name", "nino", "passport", "phone", "postcode",
    "ssn", "street", "surname", "telephone", "token", "username", "uuid", "vin", "zip", "zipcode",
})  # fmt: skip
_ENDINGS = ("uuid", "guid", "mrn", "ssn", "email", "phone", "patientid", "personid", "customerid", "userid")
_SHARE = 0.3


def identifier_words(name: str) -> bool:
    """Whether a column's name says that it tells who somebody is.

    >>> [identifier_words(name) for name in ("patient_id", "eMail", "SSN", "userid", "valid", "width", "age")]
    [True, True, True, True, False, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return not _IDENTIFYING.isdisjoint(words) or joined in _IDENTIFYING or joined.endswith(_ENDINGS)


def check_header(where: str, names: Sequence[str]) -> None:
    """Raise InvalidDataError for a table whose first line names no columns. It repeats none: they may be values.

    Columns that are counted from 0 or 1 on are named.

    >>> check_header("adult.csv", ["39", "State-gov", "77516"])
    Traceback (most recent call last):
    common.errors.InvalidDataError: data file adult.csv has no line of names: its first line looks like values
    """
    empty = [number for number, name in enumerate(names, 1) if not name.strip()]
    if empty:
        places = ", ".join(map(str, empty[:5]))
        raise InvalidDataError(f"data file {where}: {len(empty)} columns have no name, at place {places}")
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
