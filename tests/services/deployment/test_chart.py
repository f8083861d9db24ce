"""The Helm chart: linted, rendered for every role, valid for Kubernetes, and as confined as the Compose files."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from parley.learner.cli.main import learner_app

helm = pytest.importorskip("helm_python", reason="bundled for Linux on x86_64 alone")

CHART = Path(__file__).parents[3] / "deployments" / "helm" / "parley"
ROLES = ("party", "keyholder", "learner")
VERSIONS = ("1.29", "1.33", "1.37")
MEMBER = """
name = "hospital-b"
host = "127.0.0.1"
port = 8123
state = "/home/ann/b/state"
%s
[[learners]]
name = "learner"
token_hash = "sha256:00"

[[outbound]]
name = "learner"
url = "https://learner.example.org:8100"
token_file = "/home/ann/b/secrets/connect.token"
"""
PARTY = MEMBER % 'study = "/home/ann/b/study.json"\n[data]\nsource = "/home/ann/loans.csv"\n[policy]\nepsilon = 5\n'
KEY_HOLDER = MEMBER % 'secret_file = "/home/ann/b/secrets/vault.secret"'
Values = dict[str, Any]
Manifests = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def values_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Values]:
    """What an owner of each role gives; a learner's settings are those that its command makes."""
    out = tmp_path_factory.mktemp("made") / "learner"
    done = CliRunner().invoke(learner_app, ["init", "https://learner.example.org:8100", "--out", str(out)])
    assert done.exit_code == 0, done.output
    image = {"name": "registry.example.org/parley", "digest": f"sha256:{'a' * 64}"}
    reaches = [{"peer": {"ipBlock": {"cidr": "203.0.113.7/32"}}, "port": 8100}]
    data = {"claim": "loans", "path": "/home/ann/loans.csv", "subPath": "loans.csv"}
    outbound = {"image": image, "reaches": reaches}
    return {
        "party": {"role": "party", "settings": PARTY, "study": "{}", "data": data, **outbound},
        "keyholder": {"role": "keyholder", "settings": KEY_HOLDER, **outbound},
        "learner": {
            "role": "learner",
            "settings": (out / "learner.toml").read_text(),
            "studies": {"loans": "{}"},
            "image": image,
        },
    }


def rendered(values: Values) -> Manifests:
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="hospital-b", namespace="parley")
    documents = [yaml.safe_load(text) for name, text in files.items() if name.endswith(".yaml")]
    return {document["kind"]: document for document in documents if document}


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(values_of: dict[str, Values], role: str) -> Manifests:
    return rendered(values_of[role])


def pod_of(made: Manifests) -> dict[str, Any]:
    spec: dict[str, Any] = made["StatefulSet"]["spec"]["template"]["spec"]
    return spec


def containers(made: Manifests) -> Iterator[dict[str, Any]]:
    yield from (*pod_of(made)["initContainers"], *pod_of(made)["containers"])


def test_it_is_linted(values_of: dict[str, Values], role: str) -> None:
    report = helm.lint(str(CHART), values=values_of[role], strict=True)
    messages = [message for message in report["messages"] if "icon is recommended" not in str(message)]
    assert messages == []


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_rendered_is_valid(made: Manifests, role: str, version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kinds = {"ConfigMap", "NetworkPolicy", "StatefulSet"} | ({"Service"} if role == "learner" else set())
    assert set(made) == kinds
    for manifest in made.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_one_pod_has_the_ledger_and_it_outlives_the_release(made: Manifests) -> None:
    spec = made["StatefulSet"]["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (1, "OrderedReady")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


def test_a_pod_is_confined_as_by_compose(made: Manifests) -> None:
    pod = pod_of(made)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] == 30
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, 10001, 10001)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["fsGroupChangePolicy"] == "OnRootMismatch"
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    for container in containers(made):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["image"] == f"registry.example.org/parley@sha256:{'a' * 64}"
        assert container["resources"]["limits"] == {"cpu": "1", "memory": "2Gi"}
        assert container["resources"]["requests"]["memory"] == "2Gi"
        assert not {"env", "envFrom"} & set(container)


def test_a_service_writes_to_its_state_and_scratch_alone(
    made: Manifests, values_of: dict[str, Values], role: str
) -> None:
    (service,) = pod_of(made)["containers"]
    writes = {mount["mountPath"] for mount in service["volumeMounts"] if not mount.get("readOnly")}
    folder = folder_of(values_of[role])
    assert writes == {"/tmp", f"{folder}/state"}  # noqa: S108 -- the container's own
    kinds = {next(iter(set(volume) - {"name"})) for volume in pod_of(made)["volumes"]}
    assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}


def folder_of(values: Values) -> str:
    (state,) = [line.split('"')[1] for line in values["settings"].splitlines() if line.startswith("state")]
    return str(state).removesuffix("/state")


def test_every_path_of_the_settings_is_mounted(made: Manifests, values_of: dict[str, Values], role: str) -> None:
    (service,) = pod_of(made)["containers"]
    mounted = [mount["mountPath"] for mount in service["volumeMounts"]]
    folder, words = folder_of(values_of[role]), values_of[role]["settings"].split('"')
    named = [word for word in words[1::2] if word.startswith("/") and word != f"{folder}/studies"]
    assert len(named) >= 3
    for path in (*named, service["command"][-1]):
        assert any(path == place or path.startswith(f"{place}/") for place in mounted), path


def test_health_is_asked_as_by_the_images(made: Manifests, role: str) -> None:
    (service,) = pod_of(made)["containers"]
    program = {"party": ["parley-party"], "keyholder": ["parley-party", "keyholder"], "learner": ["parley-learner"]}[
        role
    ]
    file = service["command"][-1]
    assert service["command"] == [*program, "serve", "--config", file]
    for probe, state in (("startupProbe", "alive"), ("readinessProbe", "ready"), ("livenessProbe", "alive")):
        assert service[probe]["exec"]["command"] == ["parley-is", state]
        assert service[probe]["timeoutSeconds"] == 30


def test_nobody_reaches_a_member_and_it_reaches_the_learner_and_names_alone(made: Manifests, role: str) -> None:
    policy = made["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"] == made["StatefulSet"]["spec"]["selector"]["matchLabels"]
    if role == "learner":
        assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8100}]}]
        assert policy["egress"] == []
        assert made["Service"]["spec"]["ports"][0]["port"] == 8100
        return
    assert policy["ingress"] == []
    names, learner = policy["egress"]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert learner == {
        "to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}],
        "ports": [{"protocol": "TCP", "port": 8100}],
    }


def test_no_secret_is_in_a_manifest(made: Manifests) -> None:
    assert "Secret" not in made
    secrets = {volume["secret"]["secretName"] for volume in pod_of(made)["volumes"] if "secret" in volume}
    assert secrets == {"hospital-b", "hospital-b-begin"}
    assert "PRIVATE KEY" not in json.dumps(made)


def test_new_settings_restart_the_pod(values_of: dict[str, Values]) -> None:
    changed = values_of["party"] | {"settings": PARTY.replace("epsilon = 5", "epsilon = 4")}
    both = [rendered(values)["StatefulSet"]["spec"]["template"]["metadata"] for values in (values_of["party"], changed)]
    assert both[0]["annotations"] != both[1]["annotations"]


def test_a_learner_on_a_low_port_may_listen_there(values_of: dict[str, Values]) -> None:
    values = values_of["learner"] | {"settings": values_of["learner"]["settings"].replace("port = 8100", "port = 443")}
    (allowed,) = pod_of(rendered(values))["securityContext"]["sysctls"]
    assert allowed == {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}


WATCHED = {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}]}
LISTENER = '\n[metrics]\nport = 9464\ntoken_hash = "sha256:00"\n'


def test_metrics_are_reached_by_those_who_are_named_alone(values_of: dict[str, Values], role: str) -> None:
    values = values_of[role] | {"settings": values_of[role]["settings"] + LISTENER}
    values["metrics"] = WATCHED | {"podMonitor": {"enabled": True, "labels": {"release": "watch"}}}
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="hospital-b", namespace="parley")
    (text,) = (text for name, text in files.items() if name.endswith("/metrics.yaml"))
    service, policy, monitor = yaml.safe_load_all(text)
    assert service["spec"]["ports"][0]["port"] == 9464
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"from": WATCHED["from"], "ports": [{"protocol": "TCP", "port": 9464}]}]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "hospital-b", "key": "metrics.token"}}
    assert (endpoint["port"], monitor["metadata"]["labels"]["release"]) == ("metrics", "watch")
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest, version in product((service, policy), VERSIONS):
        kubernetes_validate.validate(manifest, version, strict=True)
    (pod,) = pod_of(rendered(values | {"metrics": {"enabled": True}}))["containers"]
    assert {"name": "metrics", "containerPort": 9464} in pod["ports"]
    prefix = f"PARLEY_{role.upper()}_METRICS__"
    assert {each["name"]: each["value"] for each in pod["env"]} == {
        f"{prefix}HOST": "0.0.0.0",  # noqa: S104 -- of the pod
        f"{prefix}PLAIN_HTTP": "true",
    }


BAD: dict[str, tuple[str, Values, str]] = {
    "metrics without a port": ("party", {"metrics": {"enabled": True}}, "the settings have no [metrics]"),
    "a misspelt switch of metrics": ("party", {"metrics": {"enable": True}}, "enable"),
    "all pods as monitors": ("party", {"metrics": {"from": [{"podSelector": {}}]}}, "podSelector"),
    "two replicas": ("party", {"replicas": 2}, "replicas"),
    "a token": ("party", {"token": "secret-value"}, "token"),
    "an unknown role": ("party", {"role": "hospital"}, "role"),
    "an image by tag": ("party", {"image": {"name": "parley-party", "digest": "latest"}}, "digest"),
    "no image": ("party", {"image": {"name": "", "digest": ""}}, "image"),
    "the whole internet": ("party", {"reaches": [{"peer": {"ipBlock": {"cidr": "0.0.0.0/0"}}, "port": 443}]}, "cidr"),
    "anybody of the cluster": ("party", {"reaches": [{"peer": {"podSelector": {}}, "port": 443}]}, "podSelector"),
    "no learner": ("party", {"reaches": []}, "reaches: name the learner"),
    "no table": ("party", {"data": {"claim": ""}}, "data: a party needs claim"),
    "another table": ("party", {"data": {"claim": "a", "path": "/mnt"}}, "source is not in /mnt"),
    "the folder in the table's": ("party", {"data": {"claim": "a", "path": "/home/ann"}}, "own folder"),
    "no study": ("party", {"study": ""}, "study: give the file"),
    "no TOML": ("party", {"settings": "name = "}, "not a TOML file"),
    "another role's settings": ("keyholder", {"settings": PARTY}, "not a keyholder's"),
    "a learner's for a party": ("party", {"settings": 'name="l"\nstate="/l/state"\nport=1\n'}, "not a party's"),
    "a secret": ("keyholder", {"settings": f'secret = "secret-value"\n{KEY_HOLDER}'}, "a secret in them"),
    "a token in a table": ("party", {"settings": f'{PARTY}\ntoken = "secret-value"'}, "a secret in them"),
    "a key": ("party", {"settings": f"{PARTY}\n# BEGIN PRIVATE KEY secret-value"}, "a secret in them"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_without_its_value(values_of: dict[str, Values], case: str) -> None:
    role, change, words = BAD[case]
    with pytest.raises((helm.HelmValuesError, helm.HelmRenderError, helm.HelmChartInvalidError)) as refused:
        rendered(values_of[role] | change)
    print(refused.value)
    assert words in str(refused.value)
    assert "secret-value" not in str(refused.value)


def prepare(root: Path) -> subprocess.CompletedProcess[str]:
    folders = [root / name for name in ("given", "secrets", "begin", "state")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    command = [sys.executable, str(CHART / "files" / "prepare.py"), *map(str, folders)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


def mounted(folder: Path, files: dict[str, str]) -> None:
    """Files as a mounted Secret has them: links to links, readable by the group."""
    version = folder / "..2026"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, text in files.items():
        (version / name).write_text(text)
        (version / name).chmod(0o440)
        (folder / name).symlink_to(f"..data/{name}")


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_secrets_become_private_and_state_begins_once(tmp_path: Path) -> None:
    first = {"identity.key": "key", "ledger.db": "old", "ledger.head": "head"}
    mounted(tmp_path / "given", {"tls.key": "tls"})
    mounted(tmp_path / "begin", first)
    (tmp_path / "state" / "lost+found").mkdir(parents=True)
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "secrets") == {"tls.key": "tls"}
    assert texts(tmp_path / "state") == first
    for path in (tmp_path / "secrets" / "tls.key", tmp_path / "state" / "identity.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "state" / "ledger.db").write_text("newer")
    (tmp_path / "state" / "identity.key").unlink()
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {"ledger.db": "newer", "ledger.head": "head"}, "an old ledger came back"


@pytest.mark.parametrize("left", [{"ledger.db.begin": "ol"}, {"ledger.db": "old", "all.begin": ""}])
def test_an_interrupted_beginning_begins_again(tmp_path: Path, left: dict[str, str]) -> None:
    (tmp_path / "state").mkdir()
    for name, text in left.items():
        (tmp_path / "state" / name).write_text(text)
    gone = prepare(tmp_path)
    assert gone.returncode == 1
    assert "was begun and not finished" in gone.stderr
    mounted(tmp_path / "begin2", {"ledger.db": "old", "ledger.head": "head"})
    (tmp_path / "begin").rmdir()
    (tmp_path / "begin2").rename(tmp_path / "begin")
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {"ledger.db": "old", "ledger.head": "head"}


def test_without_anything_to_begin_with_the_volume_stays_empty(tmp_path: Path) -> None:
    assert prepare(tmp_path).returncode == 0
    assert texts(tmp_path / "state") == {}
