"""A model's document in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.errors import InvalidInputError


def read_model_file(path: Path) -> Any:  # noqa: ANN401 -- it is checked when it is read
    """The JSON object in a file; raises InvalidInputError for what cannot be read, or is none."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"model {path} cannot be read ({type(error).__name__})") from None
    except ValueError:
        raise InvalidInputError(f"model {path} is not a model's document: it is not JSON, or cut short") from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"model {path} is not a model's document")
    return document
