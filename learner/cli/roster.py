"""``parley-learner invite`` and ``parley-learner roster``: owners join, are confirmed, get new keys, are removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import CommandLine, Printer, deferred
from parley.learner.api import routes
from parley.learner.cli.options import LearnerOptions

with deferred():
    from parley.learner.cli import display
    from parley.learner.client import progress

INVITATIONS = "Example: parley-learner invite hospital-b --study wdbc   (writes hospital-b.invitation.json)"
"""The command's example, for its help."""

roster_app = CommandLine(
    help="Who takes part: list, confirm, remove, rotate.",
    epilog="Example: parley-learner roster confirm hospital-b perfect armor candy few goddess hobby",
)
_NAME_AND_WORDS = 7
MemberArgument = Annotated[str, typer.Argument(metavar="NAME", help="a party or key holder")]
StudiesOption = Annotated[
    list[str] | None, typer.Option("--study", help="a study whose rows the party will hold; repeat for more")
]
HoursOption = Annotated[float, typer.Option("--hours", help="how long the invitation is valid")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="the file to write, if not NAME.invitation.json, or NAME-2 and so on")
]


def invite_command(
    name: MemberArgument,
    study: StudiesOption = None,
    key_holder: Annotated[bool, typer.Option("--key-holder", help="invite a key holder, not a party")] = False,
    hours: HoursOption = 72.0,
    file: OutOption = None,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Write an invitation for an owner. It holds a secret, and counts once: hand it over as a password is.

    The owner runs "parley-party join FILE --data TABLE", and both of you compare six words by telephone. For several
    studies, it says --data STUDY=TABLE for each that it has rows of; for one that hides persons, --person COLUMN too,
    which says whose a row is. A member is invited in the same way to further studies, which its running party takes up.
    """
    if not study and not key_holder:
        study = [_only_study(learner)]
    _invite(name, "key_holder" if key_holder else "party", study or [], hours, file, learner, out)


def _only_study(learner: LearnerOptions) -> str:
    """Return the name of the learner's study; raises InvalidInputError, which names them, unless there is just one."""
    with learner.open() as client:
        names = [study["name"] for study in client.ask(*routes.LIST_STUDIES.to())]
    if len(names) != 1:
        raise InvalidInputError(f"--study: say which one the party will hold rows for; there are {', '.join(names)}")
    return str(names[0])


@roster_app.command("list")
def list_command(
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """List who is invited, who has joined, and who is connected. Only the owner of a key reads out its words."""
    with learner.open() as client:
        members = client.ask(*routes.SHOW_ROSTER.to())
    out.result(members, lambda: display.show_members(members, progress.terminal()))


@roster_app.command("confirm")
def confirm_command(
    name: MemberArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="the six words that its owner reads out; then the next name and words, if there are more"),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="compare no words, in a trial on one machine: anybody may be behind the name, as the "
            "roster says from then on",
        ),
    ] = False,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Let parties or key holders that have joined take part, if each owner reads out the words of its key.

    Only the owner's own tools print them: at its end of join, and by parley-party identity.
    """
    if bool(words) == unchecked:
        raise typer.BadParameter("say the six words that the owner reads out (or --unchecked, in a trial)")
    said = " ".join([name, *(words or ())]).split()
    if len(said) > _NAME_AND_WORDS and len(said) % _NAME_AND_WORDS:
        raise InvalidInputError("say a name and its six words, and so on for each: there are words too many or too few")
    note = "; nobody has compared the words of its key" if unchecked else ""
    with learner.open() as client:
        for start in range(0, len(said), _NAME_AND_WORDS):
            member, *read_out = said[start : start + _NAME_AND_WORDS]
            body = {"unchecked": True} if unchecked else {"words": " ".join(read_out)}
            client.ask(*routes.CONFIRM_MEMBER.to(name=member), body)
            more = {"unchecked": True} if unchecked else {}
            out.done(f"{member} takes part{note}", name=member, state="member", **more)


@roster_app.command("remove")
def remove_command(
    name: MemberArgument,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Remove a member or withdraw an invitation. What a member's ledger holds stays there."""
    with learner.open() as client:
        client.ask(*routes.REMOVE_MEMBER.to(name=name))
    out.done(f"{name} is removed", name=name, state="removed")


@roster_app.command("rotate")
def rotate_command(
    name: MemberArgument,
    hours: HoursOption = 72.0,
    file: OutOption = None,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Invite a member again, who joins in its own folder: new tokens, a new certificate, the same key and ledger."""
    with learner.open() as client:
        members = {member["name"]: member for member in client.ask(*routes.SHOW_ROSTER.to())}
    if name not in members or members[name]["state"] not in {"member", "unconfirmed"}:
        raise InvalidInputError(f"nobody has joined as {name}")
    _invite(name, members[name]["role"], members[name]["studies"], hours, file, learner, out)


def data_options(studies: Sequence[str]) -> str:
    """Return the options of `join` that name an owner's tables for these studies."""
    if len(studies) == 1:
        return " --data TABLE"
    return "".join(f" --data {quote(study)}=TABLE" for study in studies)


WHOSE = "COLUMN is the one of its table that says whose a row is: each owner's own word"
"""What `person_option` leaves open."""


def person_option(persons: bool) -> str:
    """Return the option of `join` by which an owner says whose a row is, if one of its studies hides ``persons``."""
    return " --person COLUMN" if persons else ""


def unused_file(name: str) -> Path:
    """Return a name for an invitation's file that is not taken: a member may be invited again and again."""
    numbers = chain([""], (f"-{number}" for number in count(2)))
    return next(file for number in numbers if not (file := Path(f"{name}{number}.invitation.json")).exists())


def _invite(
    name: str, role: str, studies: list[str], hours: float, file: Path | None, learner: LearnerOptions, out: Printer
) -> None:
    """Write an invitation and print what to do with it; for a member, it renews the member's tokens and certificate."""
    file = file or unused_file(name)
    if file.exists():
        raise ConflictError(f"{file} is there already: move it, or say --out")
    with learner.open() as client:
        members = {member["name"]: member for member in client.ask(*routes.SHOW_ROSTER.to())}
        made = client.ask(*routes.INVITE.to(), {"name": name, "role": role, "studies": studies, "hours": hours})
        is_member = members.get(name, {}).get("state") == "member"
        new = [study for study in studies if not is_member or study not in members[name]["studies"]]
        units = {study["name"]: study["unit"] for study in client.ask(*routes.LIST_STUDIES.to())} if new else {}
    write_invitation(file, made["text"])
    command = "parley-party keyholder join" if role == "key_holder" else "parley-party join"
    whose = person_option("person" in map(units.get, new))
    table = data_options(studies) + whose if new else ""
    words = " ".join(made["words"])
    compared = "" if is_member else f"\n  read these words out by telephone: {words}"
    text = f"""\
{file} is for {name} alone: it holds a secret, and counts once, for {hours:g} hours{compared}
  they run: {command} {quote(file.name)}{table}"""
    text += f"\n  {WHOSE}" if whose else ""
    if lost := [study for study in members.get(name, {}).get("invited_to", ()) if study not in studies]:
        both = " ".join(f"--study {quote(study)}" for study in (*lost, *studies))
        text += f"""
  an earlier invitation, to {", ".join(lost)}, counts no more: to invite to all, parley-learner invite {name} {both}"""
    if is_member and new:
        text += f"""
  {name} is a member: in its own folder, it adds {", ".join(new)}; its key and tokens stay, and its party may run"""
    elif is_member:
        text += f"""
  {name} is a member: in its own folder, it gets new tokens and, under TLS, a certificate; its key stays"""
    renews = is_member and not new
    out.done(text, file=str(file), name=name, role=role, words=words, hours=hours, renews=renews)
    for holder in _holders_to_come(members.values()) if role == "party" else ():
        out.aside(
            f"the key holder {holder} yet, so the invitation does not name it: the party insists on no secure sums "
            f"with it unless you invite {name} again once it has joined and is confirmed"
        )
    if not is_member:
        out.next(f"parley-learner roster confirm {name} WORDS   (the six that they read to you)")


def _holders_to_come(members: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield of each key holder on the roster that no invitation names yet what it lacks for that."""
    lacks = {"invited": "has not joined", "unconfirmed": "is not confirmed"}
    for member in members:
        if member.get("role") == "key_holder" and member["state"] in lacks:
            yield f"{member['name']} {lacks[member['state']]}"


def write_invitation(file: Path, text: str) -> None:
    """Write an invitation's file, for its owner's eyes alone; raises InvalidInputError if it cannot be written."""
    try:
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as target:  # noqa: PTH123
            target.write(text)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from None
