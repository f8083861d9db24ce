"""A trained model as a JSON document, complete enough to predict with.

Millions of weights are never made into a Python list: a row of them is an array of NumPy, or may be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    PositiveInt,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from parley.common.arrays import FloatArray
from parley.common.data.class_weights import resolved_weights
from parley.common.data.columns import Label
from parley.common.data.study import Study
from parley.common.encoding.canonical_json import canonical, canonical_digest
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import build_loss
from parley.common.learning.model import KINDS, Model
from parley.common.learning.threshold import Threshold
from parley.common.privacy.calibration import Calibration
from parley.common.privacy.guarantee import Adjacency, Unit, View
from parley.common.runs.certificate import Certificate, SignedApproval, SignedSums, signed_certificate
from parley.common.runs.evaluation import RunEvaluation, evaluation_of
from parley.common.runs.specification import PublicRows, RunSpec
from parley.common.runs.weights import Row, SparseRow, stated_weights, whole_weights
from parley.common.strict import Digest, Name, Strict, faults

FORMAT = "parley-model-2"


def _spelling_of(weights: object) -> str:
    """Return whether a row of weights is spelt by its entries, or in full."""
    return "entries" if isinstance(weights, Mapping | SparseRow) else "whole"


def _axes_of(weights: object) -> int:
    """Return how many axes weights have, by their first items; trying each form in turn would read every number."""
    axes = 0
    while isinstance(weights, list | tuple) and weights:
        weights, axes = weights[0], axes + 1
    return axes + isinstance(weights, np.ndarray)


class Promise(Strict):
    """A guarantee of a run, as `parley.common.privacy.guarantee.Guarantee` explains it."""

    epsilon: Annotated[float | None, Field(description="null where nothing is promised")]
    delta: float
    view: Annotated[View, Field(description="what the adversary sees: the final model, or all that the learner sees")]
    calibration: Annotated[Calibration, Field(description="whose noise: the paper's, or the least that a proof allows")]
    adjacency: Annotated[
        Unit,
        Field(description="what is hidden: one record, all rows of a person, all of a party's data, or a public row"),
    ]
    trust: Annotated[int, Field(description="how many parties may collude with the adversary")]
    assumptions: tuple[str, ...]
    owners: Annotated[
        PositiveInt,
        Field(
            description="with how many parties the same person, or record, may be, whose answers it is about together; "
            "absent of one",
            exclude_if=lambda owners: owners == 1,
        ),
    ] = 1


class ModelTerms(Strict):
    """The fields of a model's document of every kind; its author may add others."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    format: Annotated[Literal["parley-model-2"], Field(description="the version of this form")]
    column_names: Annotated[
        tuple[str, ...],
        Field(description="of the study's design, one for each weight of a row; none of sparse features"),
    ]
    classes: Annotated[tuple[str, ...] | None, Field(description="the label's values; null where it is a number")]
    study: Study
    study_digest: Digest
    spec_digest: Annotated[Digest, Field(description="of the specification that the parties approved")]
    algorithm: Name
    parameters: dict[str, JsonValue]
    rounds: int
    public: Annotated[PublicRows | None, Field(description="the public rows that the run asked about")]
    contributors: Annotated[tuple[str, ...], Field(description="the parties in the last round")]
    adjacency: Adjacency
    guarantees: tuple[Promise, ...]
    made_of: Annotated[
        dict[str, JsonValue], Field(description="arrays by name, of how the weights came about, such as sites' parts")
    ] = Field(default_factory=dict)
    evaluation: Annotated[
        RunEvaluation | None, Field(description="on held-out rows, if that was asked for and is done")
    ] = None
    class_weights: Annotated[
        dict[str, float] | None,
        Field(
            description="by class, the weight of its rows in training; absent if all are 1. Scores decide the label as "
            "they are; before they become probabilities, a class's is lessened by the logarithm of its weight",
            exclude_if=lambda weights: weights is None,
        ),
    ] = None
    threshold: Annotated[
        Threshold | None,
        Field(
            description="of two classes, by a rule: it follows from the rule, the study and the evaluation, and is not "
            "signed; null without a rule, and 0 is the threshold"
        ),
    ] = None
    chosen: Annotated[
        dict[str, str], Field(description="why parameters that were left open are what they are, by name")
    ] = Field(default_factory=dict)
    certificate: Annotated[
        Certificate | None,
        Field(description="what parties, key holders and the learner signed; null of a model that no learner made"),
    ] = None

    @model_validator(mode="after")
    def _class_weights_fit(self) -> Self:
        resolved_weights(self.class_weights, self.study.label)
        return self

    @property
    def weights_of_classes(self) -> tuple[float, ...]:
        """The weight in training of each class, in the label's order; empty if all are 1."""
        return resolved_weights(self.class_weights, self.study.label)

    @model_validator(mode="after")
    def _threshold_fits(self) -> Self:
        if self.threshold and (self.study.n_classes, dict(self)["kind"]) != (2, "linear"):
            raise ValueError("only a model of one score of two classes has a threshold")
        return self

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each field except the certificate and the threshold, over its canonical JSON."""
        weights = dict(self)["weights"]
        fields = self.model_dump(mode="json", exclude={"certificate", "weights", "evaluation", "threshold"})
        fields["weights"] = dict(weights) if isinstance(weights, SparseRow) else weights
        fields["evaluation"] = self.evaluation and self.evaluation.stated()
        return {name: canonical_digest(value) for name, value in fields.items()}

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Yield what tells a document from others: all of it has thousands of characters."""
        yield "study", self.study.name
        yield "algorithm", self.algorithm
        yield "epsilon", self.guarantees[0].epsilon if self.guarantees else None
        yield "contributors", self.contributors
        yield "run", self.certificate and self.certificate.run


class LinearModel(ModelTerms):
    """A model of one score a row: of two classes, or of a real label."""

    kind: Literal["linear"]
    weights: Annotated[
        Annotated[Row, Tag("whole")] | Annotated[SparseRow, Tag("entries")],
        Discriminator(_spelling_of),
        Field(description="one for each column; by entries where few are not zero"),
    ]


class SoftmaxModel(ModelTerms):
    """A model of a score for each class."""

    kind: Literal["softmax"]
    weights: Annotated[tuple[Row, ...], Field(description="a row for each class")]


class MembersModel(ModelTerms):
    """Several models, one for each party; none of them predicts for all."""

    kind: Literal["members"]
    weights: Annotated[
        Annotated[tuple[Row, ...], Tag("rows")] | Annotated[tuple[tuple[Row, ...], ...], Tag("models")],
        Discriminator(lambda weights: "models" if _axes_of(weights) > 2 else "rows"),  # noqa: PLR2004
        Field(description="for each party the weights of a linear model, or those of a softmax model"),
    ]


class Statistics(ModelTerms):
    """No model but counts and sums of the rows, with noise; what ran says what they count."""

    kind: Literal["statistics"]
    weights: Annotated[
        Annotated[Row, Tag("row")] | Annotated[tuple[Row, ...], Tag("rows")],
        Discriminator(lambda weights: "rows" if _axes_of(weights) > 1 else "row"),
        Field(description="the sums, as the algorithm orders them"),
    ]


ModelDocument = Annotated[LinearModel | SoftmaxModel | MembersModel | Statistics, Field(discriminator="kind")]
_DOCUMENT: TypeAdapter[ModelDocument] = TypeAdapter(ModelDocument)
DOCUMENT_FIELDS = frozenset(LinearModel.model_fields)
"""The fields of a document of any kind."""


def model_document(
    spec: RunSpec,
    guarantees: Sequence[Mapping[str, Any]],
    model: Model,
    contributors: Sequence[str],
    assumed: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a run's model as a `ModelDocument` in JSON: weights, how to make rows, and the run's promises.

    A row of the weights is an array, as `document_lines` writes it.

    ``contributors`` are the names of the parties in the last round; ``assumed`` is what the parties' approvals assume,
    in words, beside what each guarantee does.
    """
    study, evaluation = spec.study, evaluation_of(spec, model, contributors)
    return {
        "format": FORMAT,
        "kind": model.kind,
        "weights": stated_weights(model.weights, model.kind),
        "made_of": {name: part.tolist() for name, part in model.made_of.items()},
        "column_names": list(study.column_names),
        "classes": list(study.label.values) if isinstance(study.label, Label) else None,
        "study": study.model_dump(mode="json"),
        "study_digest": study.digest,
        "spec_digest": spec.digest,
        "algorithm": spec.algorithm,
        "parameters": dict(spec.parameters),
        "rounds": len(spec.questions()),
        "public": spec.public and spec.public.model_dump(mode="json"),
        "contributors": list(contributors),
        "adjacency": spec.build().adjacency_of(spec.study.unit),
        "guarantees": [
            dict(guarantee) | {"assumptions": [*guarantee["assumptions"], *assumed]} for guarantee in guarantees
        ],
        "evaluation": evaluation and evaluation.model_dump(mode="json"),
        "threshold": None,
    } | ({"class_weights": weights} if (weights := spec.named_class_weights) else {})


def certify(  # noqa: PLR0913, PLR0917 -- all that is signed of a run, by name
    run: str,
    spec: RunSpec,
    document: Mapping[str, Any],
    approvals: Mapping[str, SignedApproval],
    sums: SignedSums | None,
    key: Ed25519PrivateKey,
) -> Certificate:
    """Certify a run's document with the learner's ``key``. Raises InvalidInputError as `read_document` does."""
    digests = read_document(document).digests
    return signed_certificate(
        key,
        run=run,
        specification=spec.model_dump(mode="json"),
        approvals=dict(approvals),
        sums=sums,
        digests=digests,
    )


def specification_of(certificate: Certificate) -> RunSpec:
    """Return the specification that the parties approved. Raises InvalidInputError if it cannot be read."""
    try:
        return RunSpec.model_validate_json(canonical(certificate.specification))
    except ValidationError:
        raise InvalidInputError(
            "the certificate's specification cannot be read: it was altered, or cut short"
        ) from None


def document_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a `ModelDocument`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A model of Parley, format {FORMAT}",
        **_DOCUMENT.json_schema(),
    }


def check_format(document: Mapping[str, Any]) -> None:
    """Raise InvalidInputError for a document of another format than this version reads."""
    if (stated := document.get("format")) != FORMAT:
        raise InvalidInputError(
            f"the model's format must be {FORMAT!r}, not {stated!r}: read it with the version of Parley that wrote it, "
            "or train the model again"
        )


def read_document(document: Mapping[str, Any]) -> ModelDocument:
    """Read and check a model's document.

    Raises InvalidInputError for an unknown format or kind, or an invalid document.
    """
    check_format(document)
    if not isinstance(kind := document.get("kind"), str) or kind not in KINDS:
        raise InvalidInputError(f"unknown kind of model {kind!r}; there are {', '.join(KINDS)}")
    try:
        return _DOCUMENT.validate_python(dict(document))
    except ValidationError as error:
        raise InvalidInputError(f"the model's document: {faults(error)}") from None


def read_model(document: Mapping[str, Any]) -> tuple[Study, Model]:
    """Read the study and the model of a document.

    Raises InvalidInputError as `read_document` does, and for weights that do not fit the study.
    """
    read = read_document(document)
    return read.study, model_of(read)


def model_of(read: ModelDocument) -> Model:
    """Return the model of a document. Raises InvalidInputError for weights that do not fit its study."""
    study, wrong = read.study, "the model's weights are not of the shape that its study has"
    try:
        model = Model(weights_of_document(read), read.kind)
    except ValueError:  # rows of unequal length
        raise InvalidInputError(wrong) from None
    if model.kind == "statistics":
        return model
    outputs = () if build_loss(study).outputs == 1 else (study.n_classes,)
    if any(member.weights.shape != (*outputs, study.n_features) for member in model.members):
        raise InvalidInputError(wrong)
    return model


def weights_of_document(read: ModelDocument) -> FloatArray:
    """Return the weights of a document. Raises ValueError for rows of unequal length."""
    return whole_weights(read.weights)
