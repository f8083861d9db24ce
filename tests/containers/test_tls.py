"""The deployment under TLS: a secure sum trains a model, and certificates are renewed at work."""

from __future__ import annotations

import json
from pathlib import Path

from parley.learner.experiments.datasets import BIOPSIES
from scripts.deployment.settings import CERTIFICATE_FILE, KEY_FILE
from scripts.deployment.sites import KEY_HOLDER, LEARNER, hospitals
from tests.support.containers import Project, finish, model_by_two_requests, submit, wait_for

PARTIES = list(hospitals(3))
STRANGER = """
import http.client, json, ssl, sys

def attempt(name, own):
    if own == "plain":
        connection = http.client.HTTPConnection(name, 8000, timeout=10)
    else:
        context = ssl.create_default_context(cafile="secrets/authority.pem")
        if own == "certificate":
            context.load_cert_chain("secrets/tls.pem", "secrets/tls.key")
        connection = http.client.HTTPSConnection(name, 8000, timeout=10, context=context)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__

print(json.dumps({own: [attempt(name, own) for name in sys.argv[1:]] for own in ("certificate", "none", "plain")}))
"""


DIGESTS = """
import hashlib, json, pathlib
files = (path for path in pathlib.Path("/etc/parley").rglob("*") if path.is_file())
print(json.dumps({str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""


def digests(services: Project) -> dict[str, str]:
    """The digest of each file that was made for the services."""
    made: dict[str, str] = json.loads(services.compose("run", "--rm", "--entrypoint", "python", "setup", "-c", DIGESTS))
    return made


def test_a_fresh_clone_takes_one_command_and_two_requests_to_a_model_under_tls(secured: Project) -> None:
    assert secured.url.startswith("https://127.0.0.1:")
    model = model_by_two_requests(secured)
    assert model["contributors"] == PARTIES
    assert len(model["weights"]) == BIOPSIES.n_features


def test_a_client_without_a_certificate_is_refused(secured: Project) -> None:
    asked = [KEY_HOLDER, *PARTIES]
    heard = json.loads(secured.run(LEARNER, "python", "-c", STRANGER, *asked))
    assert heard["certificate"] == [200] * len(asked)
    assert not [status for way in ("none", "plain") for status in heard[way] if isinstance(status, int)]
    print(f"{len(asked)} services: asked with a certificate, without and in the clear: {json.dumps(heard)}")


def test_certificates_are_renewed_and_nothing_else_is_made_again(secured: Project) -> None:
    files = digests(secured)
    logs = {name: secured.owner(name, "log") for name in PARTIES}
    assert f"renewed {len(secured.services)} certificates" in secured.setup("renew")
    secured.compose("restart")
    secured.start()
    wait_for(lambda: all(map(secured.is_healthy, secured.services)))
    renewed = digests(secured)
    assert renewed.keys() == files.keys()
    assert {Path(path).name for path in files if renewed[path] != files[path]} == {CERTIFICATE_FILE, KEY_FILE}
    assert {name: secured.owner(name, "log") for name in PARTIES} == logs
    with secured.learner() as learner:
        run = submit(learner, n_rounds=3, secure_sum="paillier")
        assert finish(learner, run)["contributors"] == PARTIES
    print(f"{len(secured.services)} certificates renewed: all healthy, ledgers kept, run completed")
