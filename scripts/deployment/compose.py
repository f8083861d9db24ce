"""docker-compose.yml for a learner, a key holder and some parties: one document for Compose v1 (1.29) and v2.

The engine numbers about thirty networks by itself. Beyond so many parties, each network says which eight addresses are
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.deployment.sites import KEY_HOLDER

MOST_NUMBERED = 20
"""Most parties whose networks are left to the engine to number."""

_HEAD = """\
# Hospitals, a learner and a key holder on one machine; for Docker Compose v1 (1.29) and v2.
#
# scripts/make_deployment.py writes this file with all that the services read, and prints how to start them.
# Each service's part of deploy/ is mounted read-only; what a service writes lives in its own named volume.
# Parties and key holder share a network with the learner alone, each its own, so that none reaches another, nor
# anything outside; only the learner is published, on loopback. Services run as uid 10001, which must be able to read
# what is mounted. An image checks its service's health by a file that the service touches.
# PARLEY_DEPLOY names another folder than deploy/; PARLEY_PORT another port than 8100, 0 a free one; PARLEY_TAG other
# images than the latest; PARLEY_MEMORY how much each service may have, instead of 2g;
# PARLEY_EXTRAS="postgres tracing" builds images that read tables of PostgreSQL and send traces.

x-service: &service
  user: "10001:10001"
  init: true
  read_only: true
  tmpfs: ["/tmp:mode=1777,size=64m"]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  restart: unless-stopped
  stop_grace_period: 30s
  mem_limit: ${PARLEY_MEMORY:-2g}
  cpus: 1.0
  pids_limit: 256

x-party: &party
  <<: *service
  image: parley-party:${PARLEY_TAG:-latest}

services:
  learner:
    <<: *service
    image: parley-learner:${PARLEY_TAG:-latest}
    build:
      context: .
      target: learner
      args: &base
        BASE: ${BASE:-python:3.11-slim-bookworm}
        EXTRAS: ${PARLEY_EXTRAS:-}
"""

_LEARNER = """\
    ports: ["127.0.0.1:${PARLEY_PORT:-8100}:8000"]
    volumes:
      - ${PARLEY_DEPLOY:-./deploy}/config/learner.toml:/etc/parley/learner.toml:ro
      - ${PARLEY_DEPLOY:-./deploy}/data/learner:/data:ro
      - ${PARLEY_DEPLOY:-./deploy}/secrets/learner:/run/secrets:ro
      - learner:/var/lib/parley

  key-holder:
    <<: *party
    command: ["keyholder", "serve", "--config", "/etc/parley/keyholder.toml"]
    networks: [key-holder]
    volumes:
      - ${PARLEY_DEPLOY:-./deploy}/config/key-holder.toml:/etc/parley/keyholder.toml:ro
      - ${PARLEY_DEPLOY:-./deploy}/secrets/key-holder:/run/secrets:ro
      - key-holder:/var/lib/parley
"""

_BUILD = """\
    build:  # for all others too: builds of one image by several services get in each other's way
      context: .
      target: party
      args: *base
"""


def compose_yml(parties: Sequence[str]) -> str:
    """The document that runs a deployment of these parties."""
    private = (KEY_HOLDER, *parties)
    services = "".join(_party(name, "" if i else _BUILD) for i, name in enumerate(parties))
    volumes = "".join(f"  {name}:\n" for name in ("learner", *private))
    return (
        f"{_HEAD}    networks: [outside, {', '.join(private)}]\n{_LEARNER}{services}\n"
        f"networks:\n  outside:\n{_networks(private)}\nvolumes:\n{volumes}"
    )


def _party(name: str, build: str) -> str:
    """Return the Compose service of a party."""
    return f"""
  {name}:
    <<: *party
{build}    networks: [{name}]
    volumes:
      - ${{PARLEY_DEPLOY:-./deploy}}/config/{name}.toml:/etc/parley/party.toml:ro
      - ${{PARLEY_DEPLOY:-./deploy}}/data/{name}:/data:ro
      - ${{PARLEY_DEPLOY:-./deploy}}/secrets/{name}:/run/secrets:ro
      - {name}:/var/lib/parley
"""


def _networks(names: Sequence[str]) -> str:
    """A network for each name, without a way outside."""
    if len(names) <= MOST_NUMBERED + 1:
        first, *others = names
        return f"  {first}: &private\n    internal: true\n" + "".join(f"  {name}: *private\n" for name in others)
    blocks = (f"${{PARLEY_NETWORK:-10.213}}.{8 * i // 256}.{8 * i % 256}/29" for i in range(len(names)))
    return "".join(
        f'  {name}:\n    internal: true\n    ipam:\n      config: [{{subnet: "{block}"}}]\n'
        for name, block in zip(names, blocks, strict=True)
    )
