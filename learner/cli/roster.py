"""``parley-learner invite`` and ``parley-learner roster``: owners join, are confirmed, get new keys, are removed."""
# ruff: noqa: PLC0415

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import Format, FormatOption, print_json_line, print_next, print_result
from parley.learner.cli.options import DEFAULT_URL, CaOption, TokenFileOption, UrlOption, open_client

INVITATIONS = "Example: parley-learner invite hospital-b --study wdbc   (writes hospital-b.invitation.json)"
"""How the command is used."""

roster_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Who takes part: list, confirm, remove, rotate.",
    epilog="Example: parley-learner roster confirm hospital-b perfect armor candy few goddess hobby",
)
MemberArgument = Annotated[str, typer.Argument(metavar="NAME", help="a party or key holder")]
StudiesOption = Annotated[list[str] | None, typer.Option("--study", help="a study that the party is to hold rows of")]
HoursOption = Annotated[float, typer.Option("--hours", help="how long the invitation counts")]
OutOption = Annotated[Path | None, typer.Option("--out", help="the file to write, if not NAME.invitation.json")]


def invite_command(
    name: MemberArgument,
    study: StudiesOption = None,
    key_holder: Annotated[bool, typer.Option("--key-holder", help="invite a key holder, not a party")] = False,
    hours: HoursOption = 72.0,
    out: OutOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Write an invitation for an owner. It holds a secret, and counts once: hand it over as a password is.

    The owner runs "parley-party join FILE --data TABLE", and both of you compare six words by telephone.
    """
    _invite(name, "key_holder" if key_holder else "party", study or [], hours, out, (url, token_file, ca), output)


@roster_app.command("list")
def list_command(
    output: FormatOption = "text",
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
) -> None:
    """Who is invited, who has joined, and whether they are connected. The words of a key its owner alone reads out."""
    with open_client(url, token_file, ca) as client:
        members = client.ask("GET", "/v1/roster")
    if output == "json":
        print_json_line(members)
        return
    from parley.learner.cli.display import new_table
    from parley.learner.client.progress import terminal

    table = new_table("name", "role", "state", "connected", left=4)
    for each in members:
        connected = {True: "yes", False: "no", None: "-"}[each["connected"]]
        table.add_row(each["name"], each["role"], each["state"], connected)
    terminal().print(table)


@roster_app.command("confirm")
def confirm_command(
    name: MemberArgument,
    words: Annotated[list[str], typer.Argument(help="the six words that its owner reads out")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Have who has joined take part, if the words that its owner reads out are those of its key."""
    with open_client(url, token_file, ca) as client:
        client.ask("POST", f"/v1/roster/{name}/confirmation", {"words": " ".join(words)})
    print_result(output, f"{name} takes part", name=name, state="member")


@roster_app.command("remove")
def remove_command(
    name: MemberArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Have a member, or an invitation, count no more. What its ledger holds stays there."""
    with open_client(url, token_file, ca) as client:
        client.ask("DELETE", f"/v1/roster/{name}")
    print_result(output, f"{name} is removed", name=name, state="removed")


@roster_app.command("rotate")
def rotate_command(
    name: MemberArgument,
    study: StudiesOption = None,
    hours: HoursOption = 72.0,
    out: OutOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Invite a member again, who joins in its own folder: new tokens, a new certificate, the same key and ledger."""
    with open_client(url, token_file, ca) as client:
        known = {each["name"]: each for each in client.ask("GET", "/v1/roster")}
    if name not in known or known[name]["state"] not in {"member", "unconfirmed"}:
        raise InvalidInputError(f"nobody has joined as {name}")
    studies = study or known[name]["studies"]
    _invite(name, known[name]["role"], studies, hours, out, (url, token_file, ca), output)


def _invite(
    name: str, role: str, studies: list[str], hours: float, out: Path | None, learner: tuple[Any, ...], output: Format
) -> None:
    """Write an invitation, and say what to do with it: of a member's name, it renews what the member has."""
    out = out or Path(f"{name}.invitation.json")
    if out.exists():
        raise ConflictError(f"{out} is there already: move it, or say --out")
    with open_client(*learner) as client:
        renews = any((each["name"], each["state"]) == (name, "member") for each in client.ask("GET", "/v1/roster"))
        made = client.ask("POST", "/v1/invitations", {"name": name, "role": role, "studies": studies, "hours": hours})
    try:
        with open(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(made["text"])
    except OSError as error:
        raise InvalidInputError(f"{out} cannot be written: {error.strerror}") from None
    command = "parley-party keyholder join" if role == "key_holder" else "parley-party join"
    words = " ".join(made["words"])
    text = f"""\
{out} is for {name} alone: it holds a secret, and counts once, for {hours:g} hours
  read these words out by telephone: {words}
  they run: {command} {quote(out.name)}{" --data TABLE" if role == "party" else ""}"""
    if renews:
        text += f"""
  {name} is a member: in its own folder, it gets new tokens and, under TLS, a certificate; its key stays"""
    print_result(output, text, file=str(out), name=name, role=role, words=words, hours=hours, renews=renews)
    if not renews:
        print_next(output, f"parley-learner roster confirm {name} WORDS   (the six that they read to you)")
