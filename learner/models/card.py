"""Writes a model's card: purpose, data by owner, training, guarantees, evaluation and limits.

It follows Mitchell et al. 2019, "Model Cards for Model Reporting", and is made from the document alone. Names of
studies and owners stay text: they are escaped for Markdown, and HTML in them has no effect.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markdown_it import MarkdownIt
from markupsafe import Markup

from parley.common.algorithms import REGISTRY, parameter_schema
from parley.common.data.columns import Category, Label, SparseFeatures
from parley.common.data.study import Study, count_held_out
from parley.common.learning.statistics import figures, unsaid_caution, weighed_in_words
from parley.common.learning.threshold import at_threshold, threshold_in_words
from parley.common.privacy.guarantee import (
    EXAMPLE_NAMES,
    NEXT_TO_NOTHING,
    UNIT_NAMES,
    as_sentence,
    hidden_at,
    no_less,
    odds_factor,
)
from parley.common.runs.evaluation import RunEvaluation
from parley.common.runs.model_document import ModelDocument, Promise, read_document, specification_of
from parley.common.runs.specification import RunSpec

if TYPE_CHECKING:
    from parley.learner.models.verification import Verification

_MOST_ROWS = 100  # of a table
_MOST_NAMED = 10  # in a sentence
_MOST_TEXT = 300  # characters of a value in a table
_MARKS = re.compile(r"([\\`*\[\]<>|&~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_STYLE = (Path(__file__).parent / "templates" / "card.css").read_text(encoding="utf-8")
CARD_SOURCES = f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
"""The content security policy of a card's page, which may load only its own style."""
_KINDS = {
    "linear": "a linear model",
    "softmax": "a linear model with a score for each class",
    "members": "a model of each owner's; none predicts for all",
    "statistics": "no model, but noisy counts and sums",
}
_SEEN = {"model": "anyone who sees the model", "transcript": "anyone who sees all that the learner sees"}
_LIMITS = (
    "Nobody has examined how good it is for groups of people; noise affects groups with few rows most.",
    "Numbers beyond a column's bounds count as the bound, in training and in predictions.",
    "It shows which values occur together in these owners' rows, not what causes them; for other rows it may be wrong.",
)


def model_card(document: Mapping[str, Any], verified: Verification | None) -> str:
    """Return the card of a model's document, in Markdown, with the verification of its certificate, if it has one.

    Raises InvalidInputError if this is no document.
    """
    read = read_document(document)
    study, certificate = read.study, read.certificate
    spec = None if certificate is None else specification_of(certificate)
    shown = at_threshold(document)
    owners = [] if spec is None else list(_owners(spec, read))[:_MOST_ROWS]
    return _template("card.md").render(
        read=read,
        study=study,
        certificate=certificate,
        predicts=_predicted(study, read.kind),
        model=f"{_KINDS[read.kind]}, {study.n_features:,} columns",
        owners=owners,
        examples=EXAMPLE_NAMES[study.unit],
        owners_text=_of_owners(spec, read),
        population=_population(read),
        columns=list(_columns(study))[:_MOST_ROWS],
        more_columns=max(0, len(study.features) - _MOST_ROWS),
        parameters=list(_parameters(read)),
        secure_sum=spec is not None and spec.secure_sum != "none",
        promises=[_promised(promise) for promise in read.guarantees],
        in_words=_in_words(read),
        unit=UNIT_NAMES[study.unit],
        overlap=1 if spec is None else spec.overlap,
        evaluation=read.evaluation,
        weighed=as_sentence(words) if (words := weighed_in_words(document["study"])) else "",
        figures=[] if shown is None else list(_figures(shown)),
        threshold=threshold_in_words(document),
        limits=list(_limits(read)),
        verified=verified,
        keys=_keys(verified),
    )


def card_page(card: str) -> str:
    """Return a card in Markdown as an HTML page that loads nothing; its only style is that of `CARD_SOURCES`."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(card)
    wide = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    wide = wide.replace(' style="text-align:right"', ' class="number"')
    title = re.sub(r"\\(.)", r"\1", card.partition("\n")[0].removeprefix("# "))
    return _template("card.html").render(
        title=title,
        style=Markup(_STYLE),  # noqa: S704 -- ours
        sources=Markup(CARD_SOURCES),  # noqa: S704 -- ours
        body=Markup(wide),  # noqa: S704 -- markdown-it's, without HTML
    )


@cache
def _template(name: str) -> Template:
    """Return a template of Markdown or HTML, whose values are escaped for that language."""
    markdown = name.endswith(".md")
    return Environment(
        loader=PackageLoader("parley.learner.models"),
        autoescape=not markdown,  # noqa: S701 -- Markdown has an escape of its own
        finalize=_escaped if markdown else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
    ).get_template(name)


def _escaped(value: object) -> str:
    """Return a value as text on one line, escaped for Markdown."""
    return _MARKS.sub(r"\\\1", " ".join(str(value).split()))


def _predicted(study: Study, kind: str) -> str:
    """Return what a model predicts, in words."""
    if kind == "statistics":
        return "nothing: the run counted and summed"
    label = study.label
    if isinstance(label, Label):
        return f"{label.name}: {_some(label.values)}"
    return f"{label.name}, {label.lower:g} to {label.upper:g} {label.unit}"


def _owners(spec: RunSpec, read: ModelDocument) -> Iterator[dict[str, str]]:
    """Yield the owners that approved the run, the largest first."""
    for member in sorted(spec.parties, key=lambda member: -member.n_examples):
        yield {
            "name": member.name,
            "examples": f"{member.n_examples:,}",
            "epsilon": f"{member.budget.epsilon:.4g}",
            "delta": f"{member.budget.delta:.3g}",
            "contributed": "yes" if member.name in read.contributors else "no",
        }


def _of_owners(spec: RunSpec | None, read: ModelDocument) -> str:
    """Return how many rows, or persons, of how many owners the run had, in words."""
    if spec is None:
        return f"The last round was answered by {_some(read.contributors)}."
    sizes, beyond = [member.n_examples for member in spec.parties], len(spec.parties) - _MOST_ROWS
    held_out = sum(int(count_held_out(size, spec.study.hold_out or 0)) for size in sizes)
    examples, whose = (
        EXAMPLE_NAMES[spec.study.unit],
        "who keep them" if spec.study.person is None else "who keep theirs",
    )
    sentences = f"{sum(sizes) - held_out:,} {examples} for training, of {len(spec.parties)} owners, {whose}."
    if spec.study.hold_out:
        sentences += f" Beside them, {held_out:,} are held out, {spec.study.hold_out:.0%} of each owner's {examples}."
    return sentences + (f" The {_MOST_ROWS} largest owners are shown." if beyond > 0 else "")


def _population(read: ModelDocument) -> str:
    """Return in words whether a model is of rows or of persons: their shares of classes differ."""
    person, words = read.study.person, weighed_in_words(read.study.model_dump(mode="json"))
    weighed = "" if words is None else f"; {words}"
    if person is None:
        return f"rows: who has several counts several times{weighed}"
    if read.algorithm in REGISTRY and "clip_norm" in parameter_schema(read.algorithm)["properties"]:
        counts = (
            "together they count up to one clip norm, as a single row may; shares of classes, and probabilities, may "
            "lie between those of persons and those of rows"
        )
    else:
        counts = (
            "each of r rows counts 1/r; shares of classes, and probabilities, are those of persons, and differ from "
            "those of rows where some have many"
        )
    return f"persons: all rows with one {person.column}, {person.most_rows:,} at most; {counts}{weighed}"


def _columns(study: Study) -> Iterator[dict[str, str]]:
    """Yield the columns that a model is trained on, in words."""
    for column in (*study.features, study.label):
        match column:
            case Category() | Label():
                holds = f"one of {_some(column.values)}" + (
                    ", or other" if isinstance(column, Category) and column.other else ""
                )
            case SparseFeatures():
                holds = f"{column.columns:,} numbers, few of them not zero, up to {column.bound:g}"
            case _:
                holds = f"{column.lower:g} to {column.upper:g} {column.unit}"
        filled_by = None if column is study.label else column.fill  # type: ignore[union-attr]  # features have one
        fill = "" if filled_by is None else f"where it is missing: {filled_by}"
        role = "" if column is not study.label else "what is predicted"
        about = "; ".join(filter(None, (role, column.description, fill)))
        yield {"name": column.name, "holds": holds, "about": about}


def _parameters(read: ModelDocument) -> Iterator[dict[str, str]]:
    """Yield the algorithm and its parameters, each with the reason for its value."""
    for name, value in ({"algorithm": read.algorithm} | read.parameters).items():
        words = f"{value:.6g}" if isinstance(value, float) else _short(str(value))
        yield {"name": name, "value": words, "why": read.chosen.get(name, "by the user, or by default")}
    if read.class_weights:
        words = _some([f"{name} {weight:.3g}" for name, weight in read.class_weights.items()])
        yield {
            "name": "class weights",
            "value": words,
            "why": "by the run or its study; probabilities are without them",
        }


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def _promised(promise: Promise) -> dict[str, Any]:
    """Return a guarantee in words."""
    helped = f", with the help of {promise.trust} of the owners" if promise.trust else ""
    return {
        "figures": "none"
        if promise.epsilon is None
        else f"ε = {no_less(promise.epsilon)}, δ = {no_less(promise.delta, 2)}",
        "hides": hidden_at(promise.adjacency, promise.owners),
        "whom": _SEEN[promise.view] + helped,
        "noise": "as the algorithm's paper sets it"
        if promise.calibration == "paper"
        else "the least that a proof allows",
        "assumptions": promise.assumptions,
    }


def _in_words(read: ModelDocument) -> str:
    """Return the guarantee against anyone who sees all rounds, in words."""
    of_transcript = [guarantee for guarantee in read.guarantees if guarantee.view == "transcript"]
    promise = next(iter((*of_transcript, *read.guarantees)), None)
    if promise is None or promise.epsilon is None:
        return "No promise is made of what the model hides."
    if promise.epsilon > NEXT_TO_NOTHING:
        return f"In words: an ε of {no_less(promise.epsilon)} promises next to nothing."
    return (
        "In words: for anyone who sees all of the run, the odds of any conclusion differ from those after a run with "
        f"{hidden_at(promise.adjacency, promise.owners)} by at most {odds_factor(promise.epsilon)}, except with "
        f"probability {no_less(promise.delta, 2)}. A promise whose noise is set as in a paper is that paper's own "
        "claim."
    )


def _figures(evaluation: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the figures of an evaluation in JSON, with their intervals."""
    for title, figure in figures(evaluation):
        estimate = "not known" if figure["estimate"] is None else f"{figure['estimate']:.3g}"
        low = "−∞" if figure["low"] is None else f"{figure['low']:.3g}"
        name = f"{title[:1].upper()}{title[1:]}"
        yield {"name": name, "estimate": estimate, "between": f"{low} to {figure['high']:.3g}"}


def _limits(read: ModelDocument) -> Iterator[str]:
    """Yield the limits that a user of the model should know."""
    if read.adjacency == "replace_one":
        yield "A record is hidden, not a person: who stands in many records, or with many owners, is hidden less."
    if read.adjacency == "person":
        yield (
            "A person is hidden as far as one column says whose a row is: who has two values there, or rows with more "
            "owners than the promises count, is hidden less."
        )
    if read.kind == "statistics":
        return
    yield from _LIMITS
    if read.evaluation is None:
        yield f"Nobody has measured how good it is on {EXAMPLE_NAMES[read.study.unit]} that it was not trained on."
    if caution := unsaid_caution(at_threshold(read.model_dump(mode="json", exclude={"weights", "certificate"}))):
        yield as_sentence(caution)
    if read.evaluation and read.kind == "linear" and read.threshold is None and _is_no_better(read.evaluation):
        yield (
            f"On held-out {EXAMPLE_NAMES[read.study.unit]} it is not surely better than always telling the commonest "
            "class."
        )


def _is_no_better(evaluation: RunEvaluation) -> bool:
    accuracy, majority = evaluation.accuracy, evaluation.majority
    if accuracy is None or majority is None:
        return False
    return accuracy.low is None or accuracy.low <= (majority.estimate or 0)


def _keys(verified: Verification | None) -> list[tuple[str, str]]:
    """Return the holders and keys that a certificate names, in hexadecimal; only its owner reads out a key's words."""
    if verified is None:
        return []
    return list(verified.keys.by_name.items())[:_MOST_ROWS]


def _some(values: Sequence[str]) -> str:
    first = ", ".join(values[:_MOST_NAMED])
    return first if len(values) <= _MOST_NAMED else f"{first} and {len(values) - _MOST_NAMED:,} more"
