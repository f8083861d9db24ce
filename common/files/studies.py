"""Read a study from disk: the JSON file that every owner and the learner agree on, plain or signed by the learner."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.storage.handed_files import read_handed_json
from parley.common.strict import faults

if TYPE_CHECKING:
    from parley.common.runs.certificate import SignedStudy


def read_study(path: Path, keys: Collection[str] = ()) -> Study:
    """Read a study from a JSON file; raises InvalidInputError that names the file and the faulty fields.

    The signature of a signed study must verify, and be by one of the ``keys`` unless there are none.
    """
    study, signed = read_study_file(path)
    if signed is not None and keys and signed.public_key not in keys:
        raise InvalidInputError(f"study {path}: {signed.learner} signed it with a key that none of your learners has")
    return study


def describe_signer(signed: SignedStudy | None) -> str:
    """Say who signed a study, for people; never the words of the key: the owner compares these with its operator."""
    if signed is None:
        return "not signed: whether it is the learner's is for you to find out"
    return f"signed by {signed.learner}, by its own word: parley-party join compares its key with its operator"


def read_study_file(path: Path) -> tuple[Study, SignedStudy | None]:
    """Read a study and its verified signature, None for a plain one; raises InvalidInputError as `read_study` does."""
    try:
        content = read_handed_json(path)
    except OSError as error:
        raise InvalidInputError(f"study {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"study {path} cannot be read: it is not UTF-8") from None
    fields = _fields(content)
    if "invitation" in fields:
        raise InvalidInputError(
            f"{path} is an invitation, not a study: parley-party join checks tables against its studies before it joins"
        )
    try:
        if "signature" not in fields:
            return Study.model_validate_json(content), None
        from parley.common.runs.certificate import SignedStudy  # noqa: PLC0415 -- what checks signatures takes memory

        signed = SignedStudy.model_validate_json(content)
        signed.verify()
    except ValidationError as error:
        order = "; is it the table? The study's JSON file comes first" if path.suffix != ".json" else ""
        raise InvalidInputError(f"study {path}: {faults(error)}{order}") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return signed.study, signed


def _fields(content: bytes) -> frozenset[str]:
    """Return the names of the fields of a JSON object, none of what is no such object."""
    try:
        return frozenset(json.loads(content))
    except (ValueError, TypeError, RecursionError):  # validation says what is wrong with it
        return frozenset()
