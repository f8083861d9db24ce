"""Where the owner's page is, and the token that it asks for."""

from __future__ import annotations

from parley.common.errors import InvalidInputError
from parley.common.service.tokens import new_token
from parley.common.storage.keys import read_private, write_private
from parley.party.settings import PartySettings

HOST = "127.0.0.1"


def owner_token(settings: PartySettings) -> str:
    """The token that the page asks for, from a file of mode 0600 that is made when it is first needed.

    Raises OwnKeyError where the file cannot be read or others may read it.
    """
    path = settings.state / "owner.token"
    if not path.exists():
        write_private(path, new_token().encode())
    return read_private(path).decode().strip()


def owner_address(settings: PartySettings) -> str:
    """Where the page is, with the token in the fragment, which browsers do not send; InvalidInputError without one."""
    if not settings.owner.port:
        raise InvalidInputError("there is no owner's page: set port in [owner], and start the party anew")
    return f"http://{HOST}:{settings.owner.port}/#{owner_token(settings)}"
