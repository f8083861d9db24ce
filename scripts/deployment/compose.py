"""docker-compose.yml for a learner, a key holder and some parties: one document for Compose v1 (1.29) and v2.

The engine numbers about thirty networks by itself. Beyond so many parties, each network says which eight addresses are
its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from scripts.deployment.sites import KEY_HOLDER, LEARNER, MOUNTED, SETUP, STATE, STATES, owners_ports, services_of

MOST_NUMBERED = 20
"""Most parties whose networks are left to the engine to number."""

_HEAD = """\
# Hospitals, a learner and a key holder on one machine; for Docker Compose v1 (1.29) and v2. To start them:
#   docker compose up
#
# The service `setup` makes data, settings, keys and ledgers before the others start, once, and prints where the page is
# and where the token. Each service has a volume of what it reads, which nobody else mounts, and one of what it writes.
# Parties and key holder share a network with the learner alone, each its own, so that none reaches another, nor
# anything outside, nor the machine itself; only the learner is published, on loopback. Services run as uid 10001. An
# image checks its service's health by a file that the service touches.
# `docker compose --profile watch down -v` removes all of it.
# With `--profile watch` another container publishes on loopback what is an owner's: its page, its service's metrics.
# PARLEY_PORT names another port than 8100, 0 a free one; PARLEY_TAG other images than the latest; PARLEY_MEMORY how
# much each service may have, instead of 2g; PARLEY_EXTRAS="postgres tracing" builds images that read tables of
# PostgreSQL and send traces. The environment of a service changes its settings: see docker-compose.override.yml in
# docs/how-to/containers.md.
# scripts/make_deployment.py writes this file, for other numbers of hospitals and under TLS too.

x-contained: &contained
  user: "10001:10001"
  init: true
  read_only: true
  tmpfs: ["/tmp:mode=1777,size=64m"]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  mem_limit: ${PARLEY_MEMORY:-2g}
  cpus: 1.0
  pids_limit: 256
  logging: {driver: json-file, options: {max-size: 10m, max-file: "3"}}

x-service: &service
  <<: *contained
  restart: unless-stopped
  stop_grace_period: 30s
  depends_on:
    setup: {condition: service_completed_successfully}

x-party: &party
  <<: *service
  image: parley-party:${PARLEY_TAG:-latest}
  pull_policy: never  # one of them builds it

services:
"""

_SETUP = """\
  setup:
    <<: *contained
    tmpfs: ["/tmp:mode=1777,size=64m", "{state}:mode=0700,size=1m"]
    image: parley-setup:${{PARLEY_TAG:-latest}}
    build:
      context: .
      target: setup
      args: &base
        BASE: ${{BASE:-python:3.11-slim-bookworm}}
        EXTRAS: ${{PARLEY_EXTRAS:-}}
    command: {command}
    environment: {{PARLEY_PORT: "${{PARLEY_PORT:-8100}}"}}
    network_mode: none
    volumes:
      - {mounted}
"""

_LEARNER = """
  learner:
    <<: *service
    image: parley-learner:${{PARLEY_TAG:-latest}}
    build:
      context: .
      target: learner
      args: *base
    command: ["serve", "--config", "learner.toml"]
    working_dir: {folder}
    networks: [outside, {networks}]
    ports: ["127.0.0.1:${{PARLEY_PORT:-8100}}:8000"]
    volumes:
      - {volumes}
"""

_PARTY = """
  {name}:
    <<: *party
{build}    command: {command}
    working_dir: {folder}
    networks: [{name}]
    volumes:
      - {volumes}
"""

_WATCH = """
  watch:
    <<: *party
    profiles: [watch]
    tmpfs: ["/tmp:mode=1777,size=1m", "{state}:mode=0700,size=1m"]
    healthcheck: {{disable: true}}
    command: {command}
    networks:
      outside: {{aliases: [{at}]}}  # where alone it listens: no owner reaches another's by it
{networks}    ports: {ports}
"""

_BUILD = """\
    build:  # for all others too: builds of one image by several services get in each other's way
      context: .
      target: party
      args: *base
"""


def compose_yml(parties: Sequence[str], *, tls: bool = False) -> str:
    """The document that runs a deployment of these parties."""
    names, private = services_of(parties), (KEY_HOLDER, *parties)
    command = ["make", "--parties", str(len(parties)), *(["--tls"] if tls else [])]
    mounted = [f"{SETUP}:{MOUNTED / SETUP}"]
    for name in names:
        mounted += [f"{name}-settings:{MOUNTED / name}", f"{name}:{STATES / name}"]
    volumes = "".join(f"  {each.partition(':')[0]}:\n" for each in mounted)
    return (
        _HEAD
        + _SETUP.format(state=STATE, command=_quoted(command), mounted="\n      - ".join(mounted))
        + _LEARNER.format(folder=MOUNTED / LEARNER, networks=", ".join(private), volumes=_volumes(LEARNER))
        + "".join(_party(name, "" if i else _BUILD) for i, name in enumerate(private))
        + _watch(private)
        + f"\nnetworks:\n  outside:\n{_networks(private)}\nvolumes:\n{volumes}"
    )


def _party(name: str, build: str) -> str:
    """Return the Compose service of a party, or of the key holder."""
    words = (
        ["keyholder", "serve", "--config", "keyholder.toml"]
        if name == KEY_HOLDER
        else ["serve", "--config", "party.toml"]
    )
    return _PARTY.format(name=name, build=build, command=_quoted(words), folder=MOUNTED / name, volumes=_volumes(name))


def _watch(names: Sequence[str]) -> str:
    """Return the Compose service that publishes the owners' pages and their services' metrics."""
    at = "watch.outside"
    ports = [(name, port) for name in names for port in owners_ports(name) if port]
    return _WATCH.format(
        state=STATE,
        command=_quoted(["forward", "--at", at, *(f"{port}:{name}:{port}" for name, port in ports)]),
        at=at,
        networks="".join(f"      {name}:\n" for name in names),
        ports=_quoted([f"127.0.0.1:{port}:{port}" for _, port in ports]),
    )


def _volumes(name: str) -> str:
    """Return the two volumes of a service; the first keeps the owner that it has in the image of `setup`."""
    return f"{name}-settings:{MOUNTED / name}:ro,nocopy\n      - {name}:{STATE}"


def _quoted(words: Sequence[str]) -> str:
    """Return words as a YAML list."""
    return json.dumps(list(words))


def _networks(names: Sequence[str]) -> str:
    """A network for each name, without a way outside, nor to the machine: its bridge has no address there."""
    confined = 'internal: true\n    driver_opts: {com.docker.network.bridge.inhibit_ipv4: "true"}\n'
    if len(names) <= MOST_NUMBERED + 1:
        first, *others = names
        return f"  {first}: &private\n    {confined}" + "".join(f"  {name}: *private\n" for name in others)
    blocks = (f"${{PARLEY_NETWORK:-10.213}}.{8 * i // 256}.{8 * i % 256}/29" for i in range(len(names)))
    return "".join(
        f'  {name}:\n    {confined}    ipam:\n      config: [{{subnet: "{block}"}}]\n'
        for name, block in zip(names, blocks, strict=True)
    )
