"""Alert rules and dashboard name metrics, labels and values that services have; and the metrics are true."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families as families_of

from parley.common import errors
from parley.learner.runs.states import TRANSITIONS
from tests.support.cluster import (
    AUTHORIZED,
    LEARNER,
    Cluster,
    asgi_cluster,
    asgi_learner,
    party_apps,
    submit,
    train,
    watch,
)
from tests.support.intercepted import Intercepted, learner_of, unreachable
from tests.support.prometheus import needs_prometheus
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deployments" / "monitoring"
OF_PROMETHEUS = {"up"}  # metrics that Prometheus makes itself
RUNBOOK = ROOT / "docs" / "how-to" / "runbook.md"
BY_PROMETHEUS = {"instance", "job"}  # labels that it adds
KINDS = {error.kind for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "kind")}
VALUES = {"state": set(TRANSITIONS), "kind": KINDS, "when": {"ahead", "late"}, "status": {"500"}}
SELECTOR = re.compile(r"(?<![\w$.])([a-z_]\w*)\s*(\{[^{}]*\})?")
MATCHER = re.compile(r'\s*([a-z_]\w*)\s*(?:=~|!~|!=|=)\s*"([^"]*)"\s*')
WORDS = {"by", "sum", "increase", "delta", "changes", "rate", "histogram_quantile", "or", "and", "unless", "offset"}
EXPRESSION = re.compile(r"(?:[\w\s{}()\[\]<>=!~*/.,$|-]|\"[^\"]*\")+")


def alerts() -> list[dict[str, Any]]:
    """The alert rules."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels."""
    all_panels: list[dict[str, Any]] = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    return all_panels


EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in alerts()} | {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]
}


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric that an expression of PromQL selects, with the labels that it names; it has to be well formed."""
    assert EXPRESSION.fullmatch(expression), expression
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    bare = re.sub(r"\[[^\]]*\]|\b(?:by|offset)\s*(?:\([^)]*\)|\w+)", " ", expression)
    for name, braces in SELECTOR.findall(bare):
        if name not in WORDS:
            matchers = [MATCHER.fullmatch(matcher) for matcher in braces.strip("{}").split(",") if matcher]
            assert all(matchers), braces
            yield name, {matcher[1]: matcher[2] for matcher in matchers if matcher}


async def shown(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of each metric that a learner, its parties and a key holder show after a run with a secure sum."""
    cluster, series = SecureCluster(tmp_path, n_parties=2), defaultdict[str, set[str]](set)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        await train(client, parameters={"n_rounds": 2}, **SUMS)
        texts = [(await client.get("/metrics")).text]
        for service in services.values():
            assert isinstance(service.inner, httpx.ASGITransport)
            texts.append(service.inner.app.state.metrics.render().decode())  # type: ignore[attr-defined]
    for family in (family for text in texts for family in families_of(text)):
        series[f"{family.name}_total" if family.type == "counter" else family.name] |= set()
        for sample in family.samples:
            series[sample.name] |= set(sample.labels)
    return series


async def test_what_rules_and_dashboard_name_is_there(tmp_path: Path) -> None:
    series = await shown(tmp_path)
    for title, expression in EXPRESSIONS.items():
        used = list(selectors(expression))
        assert used, title
        for name, matchers in used:
            assert name in series or name in OF_PROMETHEUS, f"{title}: no service has {name}"
            labels = matchers.keys() - BY_PROMETHEUS
            assert labels <= series[name] or not series[name], f"{title}: {name} has not the labels {labels}"
            for label in labels:
                assert set(matchers[label].split("|")) <= VALUES[label], f"{title}: {label} is never {matchers[label]}"


def test_a_name_that_no_service_has_is_found() -> None:
    assert list(selectors('increase(parley_runs{state="paused"}[1h]) > 0 or up offset 1h')) == [
        ("parley_runs", {"state": "paused"}),
        ("up", {}),
    ]
    with pytest.raises(AssertionError):
        list(selectors("rate(parley_runs[5m]"))
    with pytest.raises(AssertionError):
        list(selectors("parley_runs{state=paused}"))


def test_every_alert_is_explained() -> None:
    sections = RUNBOOK.read_text(encoding="utf-8").split("\n## ")[1:]
    explained = {name: text for name, _, text in (section.partition("\n") for section in sections)}
    assert set(explained) >= {rule["alert"] for rule in alerts()}
    for rule in alerts():
        for part in ("**Means.**", "**Look at.**", "**Do.**", "**Caused in the test by.**"):
            assert part in explained[rule["alert"]], (rule["alert"], part)
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


@needs_prometheus
def test_prometheus_takes_the_rules_and_evaluates_them_as_stated() -> None:
    cases = Path(__file__).with_name("rules.yml")
    tests = yaml.safe_load(cases.read_text())["tests"]
    stated = {case["alertname"] for test in tests for case in test["alert_rule_test"]}
    assert stated == {rule["alert"] for rule in alerts()}
    for command in (["check", "rules", str(MONITORING / "alerts.yml")], ["test", "rules", str(cases)]):
        done = subprocess.run(["promtool", *command], check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


async def test_budget_rounds_and_refusals_are_counted(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, epsilon=3.0)
    async with asgi_cluster(cluster) as client:
        await train(client, parameters={"n_rounds": 4})
        assert "parley_rounds_total 4.0" in (await client.get("/metrics")).text
        await client.get("/v1/runs/none", headers=AUTHORIZED)
        await client.post("/v1/runs", headers={"Content-Encoding": "gzip"})  # refused before any route
        await client.get("/v1/runs", headers={"Authorization": "Bearer none"})  # counted as a failed sign-in
        text = (await client.get("/metrics")).text
        for kind, count in (("not-found", 1), ("unsupported-media-type", 1)):
            assert f'parley_refusals_total{{kind="{kind}",rule=""}} {count}.0' in text
        assert 'kind="unauthorized"' not in text
    async with party_apps(cluster) as apps:
        transport = httpx.ASGITransport(apps["party-1"])
        headers = {"Authorization": f"Bearer {LEARNER}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://party", headers=headers) as asking:
            budget = (await asking.get("/v1/budget")).json()
            shown = (await asking.get("/metrics")).text
    assert "parley_epsilon" not in shown, "the owner's listener alone shows the budget of all"
    text = apps["party-1"].state.metrics.render().decode()
    labels = '{adjacency="replace_one",people=""}'
    assert f"parley_epsilon_limit{labels} 3.0" in text
    for figure in ("epsilon_spent", "epsilon_nonadaptive", "epsilon_left", "delta_left"):
        assert f"parley_{figure}{labels} {budget[figure]}" in text
    assert 0 < budget["epsilon_left"] < 3
    (parts,) = (family.samples for family in families_of(text) if family.name == "parley_budget_part")
    assert {part.labels["state"] for part in parts} == {"spent", "reserved", "left"}
    assert sum(part.value for part in parts) == 1
    assert budget["epsilon_spent"] + budget["epsilon_left"] != pytest.approx(3, abs=0.01), "as a panel says"


async def test_a_refusal_of_the_owner_is_counted_by_its_rule(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, policy={"max_epsilon_per_run": 0.5})
    async with party_apps(cluster) as apps:
        party = Intercepted(httpx.ASGITransport(apps["party-1"]), unreachable("/v1/party", times=1))
        async with asgi_learner(cluster.learner_settings(), lambda _: party) as client:
            events = await watch(client, await submit(client))
        text = apps["party-1"].state.metrics.render().decode()
    assert events[-1][1]["state"] == "failed"
    assert 'parley_refusals_total{kind="policy-refusal",rule="max_epsilon_per_run"} 1.0' in text
