"""A study on disk: the JSON file that every owner and the learner agree on."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from common.data.study import Study
from common.errors import InvalidInputError


def read_study(path: Path) -> Study:
    """A study from a JSON file; raises InvalidInputError that names the file and the faulty fields."""
    try:
        return Study.model_validate_json(path.read_bytes())
    except OSError:
        raise InvalidInputError(f"study {path} cannot be read") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise InvalidInputError(f"study {path}: {faults}") from None
