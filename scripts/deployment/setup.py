"""The container `setup` of docker-compose.yml: it makes a deployment before services first start, and keeps its keys.

    make [--parties N] [--tls]   make all that services read, and ledgers, once; then only settings are written again
    token                        print the bearer token of the learner's user
    authority                    print the certificate that users trust, under TLS
    prometheus                   print what Prometheus scrapes with `--profile watch`, tokens included
    renew                        make new certificates, which services read while they run

Each service has two volumes: one of what it reads, one of what it writes. A mark in the volume `setup` says which
federation they are of, and another that a ledger was begun: a ledger, a journal or a key that was lost is not made
again, and a volume of another federation is refused.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from parley.common.errors import ParleyError
from parley.common.storage.folders import locked
from parley.party.cli.main import party_app
from scripts.deployment.authority import expiry, renew
from scripts.deployment.deployment import Deployment, make_deployment, metrics_token_file, user_token_file
from scripts.deployment.files import is_draft, make_folder, write_file
from scripts.deployment.settings import AUTHORITY_FILE
from scripts.deployment.sites import (
    HOSPITALS,
    KEY_HOLDER,
    MOST_PARTIES,
    MOUNTED,
    SETUP,
    STATES,
    Site,
    container_site,
    hospitals,
    owners_ports,
    services_of,
)

_MARK, _COMPLETE = "federation.json", "complete.json"
_START_AGAIN = "docker compose --profile watch down -v removes all of a deployment, and up makes a new one"


def set_up(root: Path, states: Path, place: Callable[[str], Site], n_parties: int, *, tls: bool) -> None:
    """Make a deployment below ``root``, where ``place`` says, and ledgers below ``states``, or see that it is whole.

    What an earlier call left half made is completed. Raises SystemExit that names what is lost, or of others.
    """
    parties = hospitals(n_parties)
    _claim(root, states, services_of(parties), {"parties": n_parties, "tls": tls})
    complete = root / SETUP / _COMPLETE
    if complete.exists():
        lost = [name for name in json.loads(complete.read_text("utf-8")) if not (root / name).exists()]
        if lost:
            raise SystemExit(f"{lost[0]} is lost, and is not made again: put it back, or give up; {_START_AGAIN}")
    deployment = make_deployment(root, place, parties)
    _begin(deployment, root / SETUP, states)
    write_file(complete, json.dumps(sorted(map(str, _kept(root)))))


def _claim(root: Path, states: Path, names: Sequence[str], wanted: dict[str, object]) -> None:
    """Mark the volumes of a new deployment as its own; raise SystemExit if some are another's."""
    mark = root / SETUP / _MARK
    folders = {**{f"{name}-settings": root / name for name in names}, **{name: states / name for name in names}}
    if not mark.exists():
        for volume, folder in folders.items():
            if folder.exists() and not _is_empty(folder):
                raise SystemExit(
                    f"volume {volume} is of another federation, whose volume setup is lost; {_START_AGAIN}"
                )
        make_folder(mark.parent)
        write_file(mark, json.dumps({"federation": secrets.token_hex(8), **wanted}))
    text = mark.read_text("utf-8")
    made = json.loads(text)
    if {key: made[key] for key in wanted} != wanted:
        kind = f"{made['parties']} parties, {'with' if made['tls'] else 'without'} TLS"
        raise SystemExit(f"this deployment is of {kind}; {_START_AGAIN}, and -p NAME makes another beside it")
    is_complete = (root / SETUP / _COMPLETE).exists()
    for name in names:
        own = make_folder(root / name) / _MARK
        if not own.exists() and not is_complete and _is_empty(own.parent):
            write_file(own, text)
        elif not own.exists():
            raise SystemExit(f"volume {name}-settings is lost or another's, with {name}'s keys; {_START_AGAIN}")
        elif own.read_text("utf-8") != text:
            raise SystemExit(f"volume {name}-settings is of another federation; {_START_AGAIN}")


def _is_empty(folder: Path) -> bool:
    """Whether nothing in a folder was ever finished."""
    return all(map(is_draft, folder.iterdir()))


def _begin(deployment: Deployment, marks: Path, states: Path) -> None:
    """Have services make ledger or journal that have never made it; what they began and did not end is begun again."""
    for name, service in deployment.services.items():
        begun = marks / f"{name}.begun"
        if service.first and not begun.exists():
            state = make_folder(states / name)
            for entry in state.iterdir():  # no service has started on it
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            os.environ["PARLEY_KEYHOLDER_STATE" if name == KEY_HOLDER else "PARLEY_PARTY_STATE"] = str(state)
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
                status = party_app([*service.first[1:], "--config", str(service.config)], standalone_mode=False)
            if status:
                raise SystemExit(f"{name}: {errors.getvalue().strip()}")
            write_file(begun, "")


def _kept(root: Path) -> Iterator[Path]:
    """Yield the files that are made once, as paths below the root."""
    for file in (*root.glob("*/secrets/*"), user_token_file(root)):
        if not is_draft(file):
            yield file.relative_to(root)


def scrape_configs(root: Path, port: str) -> str:
    """Return Prometheus' configuration for all services of a deployment, whose learner is at a port of this machine."""
    made = json.loads((root / SETUP / _MARK).read_text("utf-8"))
    tls = {"scheme": "https", "tls_config": {"ca_file": AUTHORITY_FILE}} if made["tls"] else {}
    jobs: list[dict[str, object]] = [{"job_name": "parley-learner", "static_configs": _target(port), **tls}]
    for name in services_of(hospitals(made["parties"]))[1:]:
        token = metrics_token_file(root, name).read_text("ascii").strip()
        how = {"static_configs": _target(owners_ports(name)[0]), "authorization": {"credentials": token}}
        jobs.append({"job_name": f"parley-{name}", **how})
    return json.dumps({"rule_files": ["alerts.yml"], "scrape_configs": jobs}, indent=2)


def _target(port: object) -> list[dict[str, list[str]]]:
    return [{"targets": [f"127.0.0.1:{port}"]}]


def say(n_parties: int, port: str, *, tls: bool) -> None:
    """Print where the page is, and where the token."""
    scheme = "https" if tls else "http"
    page = f"{scheme}://127.0.0.1:{port}/" if port != "0" else "the port that `docker compose port learner 8000` prints"
    print(f"{n_parties} parties, a key holder and a learner are set up, and start now.")
    print(f"page:  {page}")
    print("token: docker compose run --rm setup token")
    if tls:
        print(f"certificates end on {expiry(MOUNTED):%Y-%m-%d}; docker compose run --rm setup renew makes new ones")
        print("trust them by: docker compose run --rm setup authority > authority.pem")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Make and keep the deployment of docker-compose.yml.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make what services read, and ledgers, once")
    make.add_argument("--parties", type=int, default=len(HOSPITALS), choices=range(1, MOST_PARTIES + 1), metavar="N")
    make.add_argument("--tls", action="store_true")
    for name, help_text in (
        ("token", "print the bearer token of the learner's user"),
        ("authority", "print the certificate that users trust, under TLS"),
        ("prometheus", "print what Prometheus scrapes, tokens included"),
        ("renew", "make new certificates"),
    ):
        commands.add_parser(name, help=help_text)
    options = parser.parse_args()
    try:
        match options.command:
            case "make":
                place = partial(container_site, tls=options.tls)
                with locked(make_folder(MOUNTED / SETUP)):
                    set_up(MOUNTED, STATES, place, options.parties, tls=options.tls)
                say(options.parties, os.environ.get("PARLEY_PORT", "8100"), tls=options.tls)
            case "token":
                print(user_token_file(MOUNTED).read_text("ascii").strip())
            case "authority":
                print((MOUNTED / SETUP / AUTHORITY_FILE).read_text("ascii").strip())
            case "prometheus":
                print(scrape_configs(MOUNTED, os.environ.get("PARLEY_PORT", "8100")))
            case _:
                with locked(make_folder(MOUNTED / SETUP)):
                    print(f"renewed {renew(MOUNTED)} certificates, which services read while they run")
                print(f"they end on {expiry(MOUNTED):%Y-%m-%d}")
    except FileNotFoundError as error:
        raise SystemExit(f"{error.filename} is not there: docker compose up makes it") from None
    except ParleyError as error:
        raise SystemExit(error.detail) from None


if __name__ == "__main__":
    main()
