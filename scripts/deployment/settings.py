"""The settings files of a deployment's services: hashes of tokens and public keys, never a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.learner.experiments.datasets import BIOPSIES
from scripts.deployment.sites import KEY_HOLDER, LEARNER, Site

AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE = "authority.pem", "tls.pem", "tls.key"
"""The files in a service's folder of secrets under TLS."""

MINIMUM_CONTRIBUTORS, MINIMUM_ROWS = 3, 50
"""The policy of a hospital, for so many hospitals and rows."""


def party_toml(
    site: Site, learner_token_hash: str, keys: Mapping[str, str], n_rows: int, metrics_token_hash: str
) -> str:
    """The settings file of a hospital with ``n_rows``; ``keys`` are all public keys, by name."""
    others = [name for name in keys if name not in {LEARNER, KEY_HOLDER, site.name}]
    return f"""\
# {site.name}: what it holds, whom it answers, whom it trusts with opening sums, and what its owner allows.
{_service_toml(site)}
study = "{site.data}/study.json"

[data]
source = "{site.data}/biopsies.csv"
out_of_bounds = "clip"  # the study's bounds are one typical spread wide

[policy]  # room for a demonstration on public data: psgd's claimed epsilon = 1 costs 8.5 once all rounds are counted
epsilon = 20.0
delta = 1e-3
max_epsilon_per_run = 10.0
max_delta_per_run = 1e-4
view = "transcript"
algorithms = [  # gradients; models by their owners, and their votes; exact sums
  "dp_gd", "psgd", "wu_subgradient", "wu_strongly_convex",
  "average", "local_average", "release", "feature", "ensemble_vote", "ensemble_soft", "evaluate", "describe",
]
minimum_contributors = {min(MINIMUM_CONTRIBUTORS, len(others) + 1)}
minimum_rows = {min(MINIMUM_ROWS, n_rows)}

[[learners]]
name = "{LEARNER}"
token_hash = "{learner_token_hash}"
public_key = "{keys[LEARNER]}"
{_pins("secure_sum.key_holders", [KEY_HOLDER], keys)}{_pins("secure_sum.parties", others, keys)}\
{_listeners_toml(site, metrics_token_hash)}"""


def keyholder_toml(site: Site, learner_token_hash: str, keys: Mapping[str, str], metrics_token_hash: str) -> str:
    """The key holder's settings file; ``keys`` are everybody's public keys."""
    return f"""\
# {site.name}: whose sums it opens. Its operator must not collude with the learner.
{_service_toml(site)}
secret_file = "{site.secrets}/secret"

[[learners]]
name = "{LEARNER}"
token_hash = "{learner_token_hash}"
public_key = "{keys[LEARNER]}"
{_listeners_toml(site, metrics_token_hash)}"""


def learner_toml(sites: Mapping[str, Site], user_token_hash: str, keys: Mapping[str, str]) -> str:
    """The learner's settings file; ``keys`` are everybody's public keys."""
    site = sites[LEARNER]
    others = [name for name in sites if name != LEARNER]
    roster = "".join(_peer_toml(site, sites[name], keys[name]) for name in sorted(others, key=KEY_HOLDER.__eq__))
    return f"""\
# The learner: who takes part, who may ask, and the public examples that it measures rounds on.
{_service_toml(site)}
studies = "{site.data}/studies"
deadline_seconds = 5.0

[public_data]
{BIOPSIES.name} = "{site.data}/{BIOPSIES.name}.csv"

[[users]]
name = "analyst"
token_hash = "{user_token_hash}"
{roster}"""


def _peer_toml(learner: Site, peer: Site, key: str) -> str:
    """Whom the learner asks, where, and by what it knows that one and is known."""
    secrets = learner.secrets
    text = f"""
[[{"key_holders" if peer.name == KEY_HOLDER else "parties"}]]
name = "{peer.name}"
url = "{peer.url}"
{"" if peer.tls or peer.host == "127.0.0.1" else "plain_http = true"}
token_file = "{secrets}/{peer.name}.token"
public_key = "{key}"
"""
    if peer.tls:
        text += f"""\
ca = "{secrets}/{AUTHORITY_FILE}"
certificate = "{secrets}/{CERTIFICATE_FILE}"
key = "{secrets}/{KEY_FILE}"
"""
    return text


def _pins(table: str, names: Sequence[str], keys: Mapping[str, str]) -> str:
    """An array of tables that say whose public key is which: who makes a deployment has made all of its keys."""
    return "".join(f'\n[[{table}]]\nname = "{name}"\npublic_key = "{keys[name]}"\ncompared = true\n' for name in names)


def _listeners_toml(site: Site, metrics_token_hash: str) -> str:
    """The listeners of a service's metrics and of its owner's page, where its site has ports for them."""
    where = f'host = "{site.listens}"\nplain_http = true  # for its own machine'
    metrics = f'\n[metrics]\nport = {site.metrics_port}\n{where}\ntoken_hash = "{metrics_token_hash}"\n'
    page = f"\n[owner]\nport = {site.page_port}\n{where}\n"
    return (metrics if site.metrics_port else "") + (page if site.page_port else "")


def _service_toml(site: Site) -> str:
    """The settings that all services share; the learner's clients are users, and need no certificate."""
    text = f"""\
name = "{site.name}"
host = "{site.listens}"
port = {site.port}
{"" if site.tls or site.listens == "127.0.0.1" else "plain_http = true  # between containers of one host"}
state = "{site.state}"
identity_key_file = "{site.secrets}/identity.key\""""
    if site.tls:
        files = {"certificate": CERTIFICATE_FILE, "key": KEY_FILE}
        if site.name != LEARNER:
            files["client_ca"] = AUTHORITY_FILE
        text += "\ntls = { " + ", ".join(f'{name} = "{site.secrets}/{file}"' for name, file in files.items()) + " }"
    return text
