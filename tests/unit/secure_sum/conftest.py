"""Fixed test keys, sessions in this process, and a short way to say why something must be refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from phe import PaillierPrivateKey

from parley.common.errors import SecureSumError
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.paillier import private_key

VECTORS = Path(__file__).parents[2] / "vectors" / "secure_sum"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("*.json")}


@pytest.fixture(scope="session")
def keys(vectors: dict[str, Any]) -> list[PaillierPrivateKey]:
    """Two Paillier keys of 2048 bits."""
    return [private_key(int(key["p"], 16), int(key["q"], 16)) for key in vectors["keys"].values()]


@pytest.fixture
def start(keys: list[PaillierPrivateKey]) -> Callable[..., LocalSession]:
    """Starts sessions of any size."""

    def make(
        parties: int = 3, d: int = 5, minimum_contributors: int = 2, key_holders: int = 1, seed: int = 0
    ) -> LocalSession:
        return LocalSession.start(keys[:key_holders], parties, d, minimum_contributors, random.Random(seed).randbytes)

    return make


@pytest.fixture
def refused() -> Callable[[Reason], AbstractContextManager[object]]:
    """A context: what happens inside must be refused, for this reason."""

    def expect(reason: Reason) -> AbstractContextManager[object]:
        return pytest.raises(SecureSumError, check=lambda error: error.reason == reason)

    return expect
