"""What the ``join`` commands of a party and of a key holder share: options, steps, settings, and the report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import toml_value
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import Printer, deferred
from parley.common.storage.handed_files import read_handed
from parley.party.commands import read_text

with deferred():
    import secrets
    import socket

    from parley.common.encoding import key_words
    from parley.common.service import compose
    from parley.common.service.http import proxy as http_proxy
    from parley.common.storage import keys as storage_keys
    from parley.common.wire import membership
    from parley.party import membership as party_membership

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from parley.common.service.compose import Written
    from parley.common.service.forward import Place
    from parley.common.service.http.proxy import ProxyAccess
    from parley.common.wire.membership import Invitation
    from parley.party.membership import Enrolment, Folder

_LASTING_PORTS = range(20_000, 32_768)
"""Ports for services: systems give those above to connections, which would take one while its service is stopped."""

InvitationArgument = Annotated[Path, typer.Argument(metavar="INVITATION", help="The file that you were given.")]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words", help="The six words of the learner's key, as its operator reads them out; asked for if not given."
    ),
]
FolderOption = Annotated[
    Path | None, typer.Option("--out", help="The folder to make; the invitation's name if not given.")
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        envvar="PARLEY_PROXY",
        help="HTTP proxy on the way: http://host:port. One with a password, http://user:password@host:port, belongs "
        "into the environment, where others do not see it.",
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", help="Port on loopback, for health checks; a free one if not given.")
]
ComposeOption = Annotated[
    bool,
    typer.Option(
        "--compose",
        help="Write a Compose file too, which runs the service in a container that reaches the learner alone, or the "
        "proxy on the way to it.",
    ),
]
ReachOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reach",
        metavar="HOST:PORT",
        help="With --compose: a place that the container may reach too, such as a query's database; repeat.",
    ),
]


def open_invitation(path: Path, role: str) -> Invitation:
    """Read the invitation in a file, for this role. Raises InvalidInputError."""
    invited = membership.Invitation.opened(read_text(path, read_handed), datetime.now(UTC))
    if invited.role != role:
        command = "parley-party keyholder join" if invited.role == "key_holder" else "parley-party join"
        raise InvalidInputError(f"the invitation is for a {invited.role.replace('_', ' ')}: {command}")
    if role == "party" and not invited.studies:
        raise InvalidInputError("the invitation names no study: ask for one with the study of your table")
    _check_keys(invited)
    return invited


def ask_words(request: str, *, optional: bool = False) -> str | None:
    """Print ``request`` and read six words from the terminal; None if standard input is no terminal.

    Where the words are optional, the answer may be empty.
    """
    if not _is_typed_at():
        return None
    typer.echo(request, err=True)
    words: str = typer.prompt("words", default="" if optional else None, show_default=False, err=True)
    return words.strip()


def _is_typed_at() -> bool:
    """Say whether standard input is a terminal."""
    return sys.stdin.isatty()


def _check_keys(invited: Invitation) -> None:
    """Raise InvalidInputError where two of the invitation's members share a name or key: the learner may be both."""
    others = (*invited.key_holders, *invited.parties)
    names, keys = [member.name for member in others], [member.public_key for member in others]
    if len({*names, invited.name}) <= len(names) or len({*keys, invited.learner.public_key}) <= len(keys):
        raise InvalidInputError(
            "the invitation has one key or one name for two of learner, key holders and owners: do not go on"
        )


def compare_learner(words: str | None, invited: Invitation) -> None:
    """Compare the learner's six words, which the owner types if they are not given. Raises InvalidInputError."""
    if words is None:
        words = ask_words(f"Ask the operator of {invited.learner.name} for six words, by telephone.")
    if words is None:
        raise InvalidInputError("--words: ask the learner's operator for the six words of its key, by telephone")
    key_words.check_words(words, invited.learner.public_key, invited.learner.name)


def check_learner(path: Path, keys: Collection[str | None], invited: Invitation) -> None:
    """Raise ConflictError where the settings at ``path``, with learners of these ``keys``, do not name this learner."""
    if invited.learner.public_key not in keys:
        raise ConflictError(f"{path} knows no learner with this key: choose another folder by --out")


def read_proxy(text: str | None) -> ProxyAccess | None:
    """Parse the ``--proxy`` option. Raises InvalidInputError."""
    return http_proxy.ProxyAccess.of(text) if text else None


def folder_for(out: Path | None, invited: Invitation) -> Folder:
    """Return a member's folder: ``out``, or one named as in the invitation."""
    return party_membership.Folder((out or Path(invited.name)).resolve())


def service_toml(
    invited: Invitation, folder: Folder, specific: str, proxy: ProxyAccess | None, ports: tuple[int, int]
) -> str:
    """Return the settings of a party or key holder: the common lines, around those ``specific`` to one of them.

    ``ports`` are the service's own and that of its metrics.
    """
    return f"""\
# {invited.name}: made by join on {datetime.now(UTC):%Y-%m-%d}, for {invited.learner.name} at {invited.url}
name = {toml_value(invited.name)}
host = "127.0.0.1"  # for this machine alone: the service opens its connections to the learner itself
port = {ports[0]}
state = {toml_value(folder.state)}
{specific}
[metrics]  # for your own monitor, which shows the token in {toml_value(folder.monitor_token)}
port = {ports[1]}
token_hash = "{folder.monitor_token_hash()}"

{learner_toml(invited, folder, invited.learner.name, proxy)}"""


def learner_toml(invited: Invitation, folder: Folder, name: str, proxy: ProxyAccess | None) -> str:
    """Return the settings of a learner that the service connects to; they call it ``name``."""
    text = f"""\
[[learners]]
name = {toml_value(name)}
token_hash = "{folder.learner_token_hash()}"
public_key = "{invited.learner.public_key}"

[[outbound]]
name = {toml_value(name)}
url = {toml_value(invited.url)}
token_file = {toml_value(folder.secret("connect.token"))}
"""
    if invited.authority:
        files = {
            "ca": folder.secret("authority.pem"),
            "certificate": folder.certificate,
            "key": folder.secret("tls.key"),
        }
        text += "".join(f"{name} = {toml_value(file)}\n" for name, file in files.items())
    if proxy:
        text += f"proxy = {toml_value(proxy.url)}\n"
        if proxy.password:
            write_in_place(folder.secret("proxy.password"), proxy.password)
            text += f"proxy_password_file = {toml_value(folder.secret('proxy.password'))}\n"
    return text


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member of a learner: its invitation, its settings file, and the six words of its key."""

    invited: Invitation
    settings: Path
    words: str

    @property
    def service(self) -> tuple[str, ...]:
        """The command that runs the service."""
        return ("parley-party", "keyholder") if self.invited.role == "key_holder" else ("parley-party",)


def register(  # noqa: PLR0913, PLR0917 -- what is sent, and what is written
    invited: Invitation, folder: Folder, enrolment: Enrolment, key: Ed25519PrivateKey, settings: Path, text: str
) -> NewMember:
    """Use the invitation up, signed with the member's key; store the learner's reply, and settings of this text."""
    request = folder.request(invited, key)
    folder.finish(invited, enrolment.join(request), settings, text)
    return NewMember(invited, settings, " ".join(key_words.words_of(request.public_key)))


@dataclass(frozen=True, slots=True)
class Container:
    """What a container may read beside its folder, and which places it may reach."""

    reads: tuple[Path, ...]
    reaches: tuple[Place, ...]


def container_of(
    invited: Invitation,
    proxy: ProxyAccess | None,
    reach: Sequence[str] | None,
    reads: tuple[Path, ...] = (),
    others: Sequence[str] = (),
) -> Container:
    """Return the container of a service that reads these paths, and connects to ``others`` too, which are URLs.

    Raises InvalidInputError if it could not work.
    """
    return Container(reads, compose.reached_places([proxy.url if proxy else invited.url, *others], reach or ()))


def check_contained(reach: Sequence[str] | None, *, in_container: bool) -> None:
    """Raise InvalidInputError for the option ``--reach`` without ``--compose``."""
    if reach and not in_container:
        raise InvalidInputError("--reach: goes with --compose: outside a container nothing limits what is reached")


def report_joined(  # noqa: PLR0913 -- what was done, and how it goes on
    out: Printer,
    member: NewMember,
    container: Container | None,
    listeners: Mapping[str, int],
    notes: Sequence[str] = (),
    *,
    studies: Sequence[str] = (),
    has_run: bool = False,
) -> None:
    """Print who has joined which learner, the words to read out, and the command that starts the service.

    ``listeners`` are the ports that its container publishes on this machine, if it is to run in one. ``studies`` are
    those that a member has added, which reads out no words again. A service that ``has_run`` may be running.
    """
    written, learner, name = _start(member, container, listeners), member.invited.learner.name, member.invited.name
    start, notes = written.start, [*notes, *written.notes]
    lines = [*notes, f"joined {learner} as {name}; read these words of your key to its operator:", f"  {member.words}"]
    if studies:
        are = "is" if len(studies) == 1 else "are"
        lines = [*notes, f"{', '.join(studies)} {are} added to {member.settings}, for {learner}"]
    settings = str(member.settings)
    facts = {"learner": learner, "name": name, "words": member.words, "settings": settings, "studies": [*studies]}
    out.done("\n".join(lines), **facts, start=start)
    out.next(
        f"a service that runs takes this up by itself; otherwise {start}" if has_run and container is None else start
    )


def _start(member: NewMember, container: Container | None, listeners: Mapping[str, int]) -> Written:
    """Return the command that starts the service; for a container, write a Compose file, which the command uses."""
    if container is None:
        return compose.Written(f"{' '.join(member.service)} serve --config {quote(str(member.settings))}")
    name = "key-holder" if member.invited.role == "key_holder" else "party"
    return compose.ContainerService(
        name, member.service, member.settings, container.reads, reaches=container.reaches, listeners=listeners
    ).write()


def write_in_place(path: Path, text: str) -> None:
    """Replace a file, which its owner alone may read. Raises UnavailableError."""
    with storage_keys.writing(path):
        storage_keys.replace_private(path, text.encode())


def free_ports(count: int) -> list[int]:
    """Return so many ports of loopback that nobody listens on now, and that no connection takes."""
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.choice(_LASTING_PORTS)
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            ports.add(port)
    return sorted(ports)
