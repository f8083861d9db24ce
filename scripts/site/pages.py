"""The pages of the site that are made of code, by mkdocs-gen-files: settings, commands, APIs, problems, Python client.

And those that stand outside ``docs``: the project's own documents.
"""

from __future__ import annotations

import inspect
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mkdocs_gen_files
import structlog
import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click

from parley.common import errors
from parley.common.errors import ParleyError
from parley.common.service.http.pages import EVENT_SCHEMA, parts_of
from parley.common.service.settings import explain_settings
from parley.learner.cli.main import learner_app
from parley.learner.settings import LearnerSettings
from parley.party.cli.main import party_app
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from scripts.site.examples import fenced
from scripts.site.links import OUTSIDE
from tests.support.documents import document_of

ROOT = Path(__file__).parents[2]
SETTINGS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "party": ("a party", PartySettings),
    "learner": ("a learner", LearnerSettings),
    "key-holder": ("a key holder", KeyHolderSettings),
}
CLIENT = (
    "parley.learner.client.Learner",
    "parley.learner.client.AsyncLearner",
    "parley.learner.client.calls.Calls",
    "parley.learner.runs.news",
    "parley.learner.estimators.PrivateClassifier",
    "parley.learner.estimators.FederatedClassifier",
    "parley.learner.estimators.FederatedRegressor",
    "parley.learner.estimators.PrivateLogisticRegression",
    "parley.learner.estimators.PrivateLinearRegression",
    "parley.learner.estimators.PrivacyBudget",
    "parley.party.owner.budget.LedgerBudget",
    "parley.learner.models.verification.verify_document",
    "parley.learner.models.card.model_card",
    "parley.common.runs.predictions.predict",
)
_CODE = re.compile("``([^`]+)``")


def write(path: str, text: str) -> None:
    """Write a page of the site."""
    with mkdocs_gen_files.open(path, "w") as file:
        file.write(text)


def settings_page(whose: str, model: type[BaseModel]) -> str:
    """Return a page with every setting, as ``config --explain`` prints it."""
    rows = [f"`{setting.head}`\n:   {_prose(setting.meaning)}\n" for setting in explain_settings(model)]
    introduction = "Every setting, its type, its default and what it means, as `config --explain` prints them."
    return "\n".join([f"# Settings of {whose}\n\n{introduction}\n", *rows])


def command_page(app: typer.Typer) -> str:
    """Return a page on a command line, from its ``--help``."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name=command.name)
    return get_docs_for_click(obj=command, ctx=context, name=command.name or "", title=command.name)


def api_page(service: str, document: Mapping[str, Any]) -> str:
    """A service's API: each operation with what it takes and gives, then each schema."""
    parts = [f"# API of a {service}\n\n{document['info'].get('description', '')}\n"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += _operation(method, path, operation)
    parts.append("## Schemas\n")
    for name, schema in document["components"].get("schemas", {}).items():
        parts.append(f"### {name}\n\n{fenced(_prose(schema.get('description', '')))}\n")
        fields = schema.get("properties", {})
        if fields:
            rows = (
                f"| `{field}` | {_type(shape)} | {_cell(shape.get('description', ''))} |"
                for field, shape in fields.items()
            )
            parts.append("\n".join(["| field | is | |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {operation['summary']} {{ #{operation['operationId']} }}\n\n`{method.upper()} {path}`\n"
    yield f"{_prose(operation.get('description', ''))}\n"
    for parameter in operation.get("parameters", []):
        description = parameter.get("description", "")
        yield f"- `{parameter['name']}` ({parameter['in']}): {_type(parameter['schema'])}. {_cell(description)}"
    bodies = {"takes": operation.get("requestBody", {})}
    bodies |= {
        f"gives {status}": response for status, response in operation["responses"].items() if status.startswith("2")
    }
    for role, body in bodies.items():
        for media, content in body.get("content", {}).items():
            yield f"- {role}: `{media}`, {_type(content.get(EVENT_SCHEMA) or content.get('schema', {}))}"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in words, in which others' names lead to them."""
    return " ".join(f"[{words}](#{name.lower()})" if name else _cell(words) for words, name in parts_of(schema))


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("[", "\\[")


def _prose(text: str) -> str:
    return _CODE.sub(r"`\1`", text)


def problems_page() -> str:
    """Return a page with every type of problem that a service answers with."""
    rows = ["| type | status | means |", "|---|---|---|"]
    kinds = {error.kind: error for _, error in inspect.getmembers(errors, _is_error)}
    for kind, error in sorted(kinds.items()):
        description = " ".join((inspect.getdoc(error) or "").split())
        rows.append(f"| `urn:parley:problem:{kind}` | {error.status} | {_cell(description)} |")
    head = "What was not done is answered by a problem document (RFC 9457), which clients in Python raise as an error."
    return "\n".join(["# Problem types", "", head, "", *rows, ""])


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ParleyError)


def python_page() -> str:
    """Return the page on the client for Python, by mkdocstrings."""
    parts = [
        "# Python client\n\nEverything here is typed, and raises the errors of [the problem types](problems.md).\n"
    ]
    return "\n".join([*parts, *(f"::: {name}\n" for name in CLIENT)])


def main() -> None:
    """Write all pages of the site that are made of code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for name, (whose, model) in SETTINGS.items():
        write(f"reference/settings-{name}.md", settings_page(whose, model))
    for app in (learner_app, party_app):
        write(f"reference/{app.info.name}.md", command_page(app))
    for service in ("learner", "party", "key holder"):
        with tempfile.TemporaryDirectory() as folder:
            document = document_of(service, Path(folder))
        write(f"reference/api-{service.replace(' ', '-')}.md", api_page(service, document))
    write("reference/problems.md", problems_page())
    write("reference/python.md", python_page())
    for name, page in OUTSIDE.items():
        write(page, (ROOT / name).read_text(encoding="utf-8"))


main()
