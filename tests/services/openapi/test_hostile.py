"""A service never breaks, and answers all requests, well formed or not, as its document says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import requests
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode, checks
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.python.asgi import get_client, shutdown_lifespans

from parley.common.encoding.npy import NPY
from parley.common.protocol.receipts import RECEIPT_HEADER
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from parley.common.wire.party_api import RunProposal
from tests.support.cluster import LEARNER, USER, Cluster
from tests.support.documents import SERVICES, application
from tests.support.keyholder import KEY_BITS, TOKEN
from tests.support.nightly import nightly
from tests.support.rounds import run_spec

TOKENS = {"learner": USER, "party": LEARNER, "key holder": TOKEN}
SESSION = "5e" * 16
ENDLESS = "/v1/events"  # in process its answer is waited for as a whole; tests of the page ask for it over a line
ORDER = {"study": "made-up", "algorithm": "dp_gd", "parameters": {"n_rounds": 2}}

Case = schemathesis.Case[Any]

checks.load_all_checks()
LEFT_OUT = [
    checks.unsupported_method,  # 405 is answered after the token was asked for
    checks.allow_header_conformance,
    checks.positive_data_acceptance,  # no schema says that a study is known, or that a budget suffices
]


@schemathesis.serializer(NPY, SIGNED_MEDIA_TYPE, "application/octet-stream")
def send_as_it_is(_: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401
    """Send a value as the bytes of a body."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def is_wrong(case: Case) -> bool:
    """Whether body or query is what is malformed: a header that nobody knows is passed over, and so no fault."""
    parts = case.meta.components if case.meta else {}
    places = (ParameterLocation.BODY, ParameterLocation.QUERY)
    return any(place in parts and parts[place].mode is GenerationMode.NEGATIVE for place in places)


@dataclass
class ServiceCalls:
    """Calls of one service; ``existing`` are parameters of paths that exist, ``terms`` go into well-formed bodies."""

    app: FastAPI
    token: str
    existing: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, Any] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    given_up: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(self, case: Case) -> None:
        """Send a case, and check the answer."""
        case.headers.pop(RECEIPT_HEADER, None)  # 503 to one that is not the ledger's: the ledger may be an old copy
        answer = case.call(headers=self.headers)
        self.statuses[answer.status_code] += 1
        left_out = LEFT_OUT if is_wrong(case) else [*LEFT_OUT, checks.negative_data_rejection]
        case.validate_response(answer, excluded_checks=left_out, headers=self.headers)

    def ask_of_what_exists(self, case: Case) -> None:
        """Send a case; every other one is of what exists."""
        if sum(self.statuses.values()) % 2:
            case.path_parameters.update(
                {name: self.existing[name] for name in case.path_parameters if name in self.existing}
            )
            if isinstance(case.body, dict):
                case.body.update({name: term for name, term in self.terms.items() if name in case.body})
        self.ask(case)


def prepare_learner(calls: ServiceCalls, client: requests.Session, _: Cluster) -> None:
    """There is a run that has come to its end."""
    order: dict[str, Any] = ORDER | {"epsilon": 1, "delta": 1e-5}
    run = client.post("http://testserver/v1/runs", json=order, headers=calls.headers).json()["id"]
    assert b"completed" in client.get(f"http://testserver/v1/runs/{run}/events", headers=calls.headers).content
    calls.existing, calls.terms = {"run": run, "study": "made-up"}, ORDER


def prepare_party(calls: ServiceCalls, client: requests.Session, cluster: Cluster) -> None:
    """Propose a run, so that the party has approved one."""
    proposal = RunProposal(run="approved", spec=run_spec(cluster)).model_dump(mode="json")
    client.post("http://testserver/v1/runs", json=proposal, headers=calls.headers).raise_for_status()
    calls.existing, calls.terms = {"run": "approved", "round": 1}, {"step": "gradient", "spec": proposal["spec"]}


def prepare_key_holder(calls: ServiceCalls, client: requests.Session, _: Cluster) -> None:
    """Begin a session with the key holder."""
    calls.existing, calls.terms = {"session": SESSION}, {"session": SESSION, "key_bits": KEY_BITS}
    client.post("http://testserver/v1/sessions", json=calls.terms, headers=calls.headers).raise_for_status()


PREPARE: dict[str, Callable[[ServiceCalls, requests.Session, Cluster], None]] = {
    "learner": prepare_learner,
    "party": prepare_party,
    "key holder": prepare_key_holder,
}


@contextmanager
def serving(service: str, root: Path) -> Iterator[ServiceCalls]:
    """A service in this process, with something in it to be asked for."""
    cluster = Cluster(root / "cluster", n_parties=2)
    with application(service, cluster) as app:
        calls = ServiceCalls(app, TOKENS[service])
        try:
            with get_client(cast("Any", app)) as client:
                PREPARE[service](calls, client, cluster)
            yield calls
        finally:
            shutdown_lifespans()


def _try(cases: SearchStrategy[Any], ask: Callable[[Any], None], examples: int) -> None:
    @given(cases)
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def answers_as_documented(case: Case) -> None:
        ask(case)

    answers_as_documented()


def try_all(calls: ServiceCalls, examples: int) -> None:
    """Send so many well-formed and so many malformed requests to each operation that comes to an end."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", calls.app).exclude(path=ENDLESS)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        for mode, ask in ((GenerationMode.POSITIVE, calls.ask_of_what_exists), (GenerationMode.NEGATIVE, calls.ask)):
            try:
                _try(operation.as_strategy(generation_mode=mode), ask, examples)
            except Unsatisfiable:
                assert not operation.body  # nothing about such a request can be wrong
            except InvalidSchema as error:  # the tool's own: it cannot make a malformed array of every kind
                calls.given_up.append(f"{operation.label} ({mode.value}): {error}")


@pytest.mark.parametrize("examples", [5, pytest.param(150, marks=nightly)])
@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_answers_as_documented(tmp_path: Path, service: str, examples: int) -> None:
    with serving(service, tmp_path) as calls:
        try_all(calls, examples)
    broken = sum(count for status, count in calls.statuses.items() if status >= 500)
    total = sum(calls.statuses.values())
    print(f"{service}: {total} requests, {broken} answered 5xx, 0 against the document; {dict(calls.statuses)}")
    print(f"{service}: given up by the tool before the last example: {calls.given_up or 'nothing'}")
    assert broken == 0
    assert len(calls.given_up) <= 1
    assert len(calls.statuses) > 3
