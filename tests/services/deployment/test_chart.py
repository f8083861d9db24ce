"""The Helm chart: linted, rendered for every role, valid for Kubernetes, and as confined as the Compose files."""

from __future__ import annotations

import json
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
    assert (spec["replicas"], spec["podManagementPolicy"]) == (1, "Parallel"), "a pod that is not ready is replaced"
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
    ready = "alive" if role == "learner" else "ready"  # with a full disk a learner still serves pages and models
    for probe, state in (("startupProbe", "alive"), ("readinessProbe", ready), ("livenessProbe", "alive")):
        assert service[probe]["exec"] == {"command": ["parley-is", state]}, "no connection, no interpreter's libraries"
        assert service[probe]["timeoutSeconds"] == 30
    assert min(service[probe]["periodSeconds"] for probe in ("readinessProbe", "livenessProbe")) >= 30


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


CLUSTER: Values = {
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "parley", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "parley"}},
        }
    ],
    "priorityClassName": "steady",
    "serviceAccountName": "parley",
}
OBJECTS: Values = {
    "labels": {"team": "research"},
    "annotations": {"example.org/owner": "ann"},
    "podLabels": {"team": "pods"},
    "podAnnotations": {"example.org/scrape": "no"},
    "service": {"type": "LoadBalancer", "annotations": {"example.org/internal": "true"}},
    "updateStrategy": "OnDelete",
}
HEADERS = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "collector", "key": "headers"}}}
VOLUMES: Values = {
    "env": [HEADERS, {"name": "TZ", "value": "UTC"}],
    "envFrom": [{"configMapRef": {"name": "proxies", "optional": True}}],
    "volumes": [{"name": "spill", "emptyDir": {"sizeLimit": "5Gi"}}],
    "volumeMounts": [{"name": "spill", "mountPath": "/spill"}],
    "resources": {"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"cpu": 2, "memory": "4Gi"}},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_real_clusters_want_is_valid_and_passed_on(values_of: dict[str, Values], role: str, version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    manifests = rendered(values_of[role] | CLUSTER | OBJECTS | VOLUMES)
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)
        assert manifest["metadata"]["labels"]["team"] == "research"
        assert manifest["metadata"]["annotations"]["example.org/owner"] == "ann"
    pod, (service,) = pod_of(manifests), pod_of(manifests)["containers"]
    assert {key: pod[key] for key in CLUSTER} == CLUSTER
    assert pod["volumes"][-1] == VOLUMES["volumes"][0]
    assert service["volumeMounts"][-1] == VOLUMES["volumeMounts"][0]
    assert {key: service[key] for key in ("env", "envFrom", "resources")} == {
        key: VOLUMES[key] for key in ("env", "envFrom", "resources")
    }
    template = manifests["StatefulSet"]["spec"]["template"]["metadata"]
    assert (template["labels"]["team"], template["annotations"]["example.org/scrape"]) == ("pods", "no")
    assert manifests["StatefulSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_what_a_cluster_never_lets_change_does_not_depend_on_values(values_of: dict[str, Values], role: str) -> None:
    """Else an upgrade would be refused: of a StatefulSet's other fields, only template and strategy may change."""
    both = [rendered(values_of[role] | more)["StatefulSet"]["spec"] for more in ({}, CLUSTER | OBJECTS | VOLUMES)]
    for spec in both:
        del spec["template"], spec["updateStrategy"]
    assert both[0] == both[1]


QUERY = PARTY.replace('source = "/home/ann/loans.csv"', 'source = "SELECT 1 FROM labs"\n[data.tables]\nlabs = %s')
BY_VARIABLE = QUERY % '{postgres = "env:LAB_DSN", table = "clinic.labs"}'
BY_FILE = QUERY % '{postgres = "file:/home/ann/b/secrets/lab.dsn", table = "labs"}'
BOTH = QUERY % '{postgres = "env:LAB_DSN", table = "labs"}\nvisits = "/home/ann/visits/*.csv"'
DSN = {"name": "LAB_DSN", "valueFrom": {"secretKeyRef": {"name": "lab", "key": "dsn"}}}
DATABASE = {"peer": {"ipBlock": {"cidr": "10.0.0.7/32"}}, "port": 5432}
NO_CLAIM = {"claim": "", "path": "", "subPath": ""}


def test_a_table_in_postgresql_needs_its_string_and_a_way_there(values_of: dict[str, Values]) -> None:
    party = values_of["party"]
    reaches = {"reaches": [*party["reaches"], DATABASE]}
    ways: tuple[Values, ...] = (
        {"settings": BY_VARIABLE, "data": NO_CLAIM, "env": [DSN]},
        {"settings": BY_VARIABLE, "data": NO_CLAIM, "envFrom": [{"secretRef": {"name": "lab"}}]},
        {"settings": BY_FILE, "data": NO_CLAIM},
        {"settings": BOTH, "data": {"claim": "visits", "path": "/home/ann/visits"}, "env": [DSN]},
    )
    for more in ways:
        made = rendered(party | reaches | more)
        (service,) = pod_of(made)["containers"]
        assert service.get("env", []) == more.get("env", [])
        assert ("data" in {mount["name"] for mount in service["volumeMounts"]}) == bool(more["data"].get("claim"))
        egress = made["NetworkPolicy"]["spec"]["egress"]
        assert egress[-1] == {"to": [DATABASE["peer"]], "ports": [{"protocol": "TCP", "port": 5432}]}


def test_names_may_be_asked_elsewhere(values_of: dict[str, Values]) -> None:
    dns = {"peer": {"namespaceSelector": {"matchLabels": {"name": "dns"}}}, "port": 5353, "protocol": "UDP"}
    made = rendered(values_of["party"] | {"reaches": [*values_of["party"]["reaches"], dns]})
    assert made["NetworkPolicy"]["spec"]["egress"][-1]["ports"] == [{"protocol": "UDP", "port": 5353}]


ENTRY = """
[[studies]]
name = "%s"
study = "/home/ann/b/studies/%s.json"
people = "ward-7"
[studies.data]
source = %s
[studies.policy]
share = 0.25
"""
LOANS, VISITS = (ENTRY % (name, name, f'"/home/ann/tables/{name}.csv"') for name in ("loans", "visits"))
LABS = ENTRY % (
    "labs by day",
    "labs-by-day",
    '"SELECT 1 FROM labs"\ntables.labs = {postgres = "env:LAB_DSN", table = "l"}',
)
LONG = MEMBER % "[policy]\nepsilon = 5\n"
FURTHER = """
[[learners]]
name = "learner-b"
token_hash = "sha256:00"

[[outbound]]
name = "learner-b"
url = "https://b.example.org:8100"
token_file = "/home/ann/b/secrets/learner-b/connect.token"
certificate = "/home/ann/b/state/tls.learner-b.pem"
"""
TABLES = {"claim": "tables", "path": "/home/ann/tables"}
SEVERAL: Values = {
    "settings": LONG + LOANS + VISITS,
    "study": "",
    "studies": {"loans": "{}", "visits": "{}"},
    "data": TABLES,
}


def mounts_of(made: Manifests) -> dict[str, str]:
    (service,) = pod_of(made)["containers"]
    return {mount["mountPath"]: mount.get("subPath", mount["name"]) for mount in service["volumeMounts"]}


def test_each_study_of_a_party_is_mounted_where_its_settings_say(values_of: dict[str, Values]) -> None:
    made = rendered(values_of["party"] | SEVERAL)
    assert made["ConfigMap"]["data"].keys() >= {"study.loans.json", "study.visits.json"}
    assert "study.json" not in made["ConfigMap"]["data"]
    mounts = mounts_of(made)
    assert mounts["/home/ann/b/studies/loans.json"] == "study.loans.json"
    assert mounts["/home/ann/b/studies/visits.json"] == "study.visits.json"
    assert mounts["/home/ann/tables"] == "data"
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(made["StatefulSet"], VERSIONS[-1], strict=True)


def test_the_short_form_and_others_go_together_with_tables_from_elsewhere(values_of: dict[str, Values]) -> None:
    more: Values = {
        "settings": PARTY + VISITS + LABS,
        "studies": {"visits": "{}", "labs-by-day": "{}"},
        "volumes": [{"name": "visits", "persistentVolumeClaim": {"claimName": "visits"}}],
        "volumeMounts": [{"name": "visits", "mountPath": "/home/ann/tables", "readOnly": True}],
        "env": [DSN],
        "reaches": [*values_of["party"]["reaches"], DATABASE],
    }
    mounts = mounts_of(rendered(values_of["party"] | more))
    assert mounts["/home/ann/b/study.json"] == "study.json"
    assert mounts["/home/ann/b/studies/labs-by-day.json"] == "study.labs-by-day.json"
    assert (mounts["/home/ann/loans.csv"], mounts["/home/ann/tables"]) == ("loans.csv", "visits")


def test_a_further_learner_has_a_secret_of_its_own(values_of: dict[str, Values]) -> None:
    values = values_of["party"] | {"settings": PARTY + FURTHER, "secrets": {"learner-b": "hospital-b-learner-b"}}
    made = rendered(values)
    (prepare,) = pod_of(made)["initContainers"]
    volumes = {volume["name"]: volume for volume in pod_of(made)["volumes"]}
    (mount,) = [each for each in prepare["volumeMounts"] if each["mountPath"] == "/given/further/learner-b"]
    assert volumes[mount["name"]]["secret"] == {"secretName": "hospital-b-learner-b", "defaultMode": 0o440}
    assert prepare["command"][-1] == "/given/further"
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(made["StatefulSet"], VERSIONS[-1], strict=True)


def test_a_study_that_is_added_restarts_the_pod(values_of: dict[str, Values]) -> None:
    one = SEVERAL | {"settings": LONG + LOANS, "studies": {"loans": "{}"}}
    both = [rendered(values_of["party"] | each)["StatefulSet"]["spec"]["template"] for each in (one, SEVERAL)]
    assert both[0]["metadata"]["annotations"] != both[1]["metadata"]["annotations"]


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
    "metrics for everybody": (
        "party",
        {"metrics": {"enabled": True}, "settings": BY_FILE + "\n[metrics]\nport = 9464\n", "reaches": [DATABASE] * 2},
        "lacks token_hash",
    ),
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
    "another table": ("party", {"data": {"claim": "a", "path": "/mnt"}}, "source of the settings is not in /mnt"),
    "the folder in the table's": ("party", {"data": {"claim": "a", "path": "/home/ann"}}, "own folder"),
    "half a claim": ("party", {"data": {"claim": "a", "path": ""}}, "claim and path go together"),
    "a keyholder's table": ("keyholder", {"data": {"claim": "a", "path": "/a"}}, "a keyholder has no table"),
    "no string": ("party", {"settings": BY_VARIABLE, "reaches": [DATABASE] * 2}, "env: LAB_DSN, of a connection"),
    "no way to it": ("party", {"settings": BY_VARIABLE, "env": [DSN]}, "reaches: name the database too"),
    "a string's file elsewhere": (
        "party",
        {"settings": BY_FILE.replace("b/secrets", "c")},
        "file is not in /home/ann/b/secrets",
    ),
    "a query's file elsewhere": (
        "party",
        {"settings": BOTH, "env": [DSN], "reaches": [DATABASE] * 2},
        "source of the settings is not in /home/ann/loans.csv",
    ),
    "a string as a value": ("party", {"env": [{"name": "LAB_DSN", "value": "secret-value"}]}, "LAB_DSN is a secret"),
    "headers as a value": (
        "learner",
        {"env": [HEADERS | {"value": "secret-value"}]},
        "OTEL_EXPORTER_OTLP_HEADERS is a secret",
    ),
    "another port": ("party", {"env": [{"name": "PARLEY_PARTY_PORT", "value": "1"}]}, "PARLEY_PARTY_PORT says: say it"),
    "a selector misspelt": ("party", {"nodeSelectr": {"a": "b"}}, "nodeSelectr"),
    "an affinity misspelt": ("party", {"affinity": {"nodeAfinity": {}}}, "nodeAfinity"),
    "a toleration misspelt": ("party", {"tolerations": [{"efect": "NoSchedule"}]}, "efect"),
    "a variable misspelt": ("party", {"env": [{"name": "A", "valeu": "b"}]}, "valeu"),
    "a mount misspelt": ("party", {"volumeMounts": [{"name": "a", "path": "/a"}]}, "mountPath"),
    "resources misspelt": ("party", {"resources": {"requests": {}, "limit": {}}}, "limit"),
    "a service misspelt": ("learner", {"service": {"anotations": {}}}, "anotations"),
    "an image misspelt": ("party", {"image": {"name": "a", "digst": "b"}}, "digst"),
    "a volume of the chart's": (
        "party",
        {"volumes": [{"name": "state", "emptyDir": {}}]},
        "volumes: state is the chart's own",
    ),
    "a label of the chart's": (
        "party",
        {"podLabels": {"app.kubernetes.io/name": "x"}},
        "labels: app.kubernetes.io/name is",
    ),
    "a number for a text": ("party", {"podAnnotations": {"a": 1}}, "podAnnotations"),
    "no study": ("party", {"study": ""}, "study: give the file"),
    "no study at all": ("party", {"settings": LONG, "study": ""}, "study: give the file"),
    "the short form's file for others": (
        "party",
        SEVERAL | {"study": "{}"},
        "the settings have [[studies]]: give each",
    ),
    "a study without its file": (
        "party",
        SEVERAL | {"studies": {"loans": "{}"}},
        "studies: give the file of visits by --set-file studies.visits=",
    ),
    "a point in a file's name": (
        "party",
        SEVERAL | {"settings": LONG + LOANS.replace("loans.json", "loans.v2.json")},
        "--set-file studies.loans\\.v2=",
    ),
    "a file without its study": (
        "party",
        SEVERAL | {"studies": {"loans": "{}", "visits": "{}", "wards": "{}"}},
        "studies: no study of the settings has the file wards.json",
    ),
    "a study's file of no place": (
        "party",
        SEVERAL | {"settings": (LONG + LOANS).replace("/home/ann/b/studies", "studies")},
        "study of loans is no absolute path",
    ),
    "two studies of one name": (
        "party",
        SEVERAL | {"settings": LONG + LOANS + VISITS.replace('"visits"', '"loans"')},
        "two studies are called loans",
    ),
    "two studies of one file": (
        "party",
        SEVERAL | {"settings": LONG + LOANS + VISITS.replace("b/studies/visits", "c/loans")},
        "two studies have a file loans.json",
    ),
    "a study without a name": (
        "party",
        SEVERAL | {"settings": LONG + LOANS + VISITS.replace("name =", "nam =")},
        "a study of [[studies]] has no name",
    ),
    "a study without data": (
        "party",
        SEVERAL | {"settings": LONG + LOANS + VISITS.replace("source =", "sourc =")},
        "the data of visits has no source",
    ),
    "a study's table elsewhere": (
        "party",
        SEVERAL | {"data": {"claim": "a", "path": "/home/ann/tables/loans.csv"}},
        "the source of visits is not in /home/ann/tables/loans.csv",
    ),
    "a study's string": (
        "party",
        SEVERAL | {"settings": LONG + LABS, "studies": {"labs-by-day": "{}"}, "reaches": [DATABASE] * 2},
        "env: LAB_DSN, of a connection",
    ),
    "a study's database": (
        "party",
        SEVERAL | {"settings": LONG + LABS, "studies": {"labs-by-day": "{}"}, "env": [DSN]},
        "reaches: name the database too",
    ),
    "studies as a folder": ("party", {"settings": f'studies = "/a"\n{PARTY}'}, "studies of a party are tables"),
    "a study by variable": (
        "party",
        {"env": [{"name": "PARLEY_PARTY_STUDIES", "value": "[]"}]},
        "PARLEY_PARTY_STUDIES says: say it there",
    ),
    "a keyholder's study": ("keyholder", {"studies": {"loans": "{}"}}, "a keyholder has no study"),
    "a further learner's secrets": ("party", {"settings": PARTY + FURTHER}, "name the Secret of secrets/learner-b"),
    "secrets of nobody": ("party", {"secrets": {"learner-c": "c"}}, "the settings have nothing in secrets/learner-c"),
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
