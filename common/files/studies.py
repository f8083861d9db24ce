"""A study on disk: the JSON file that every owner and the learner agree on."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from common.data.study import Study
from common.errors import InvalidInputError
from common.strict import faults


def read_study(path: Path) -> Study:
    """A study from a JSON file; raises InvalidInputError that names the file and the faulty fields."""
    try:
        return Study.model_validate_json(path.read_bytes())
    except OSError:
        raise InvalidInputError(f"study {path} cannot be read") from None
    except ValidationError as error:
        raise InvalidInputError(f"study {path}: {faults(error)}") from None
