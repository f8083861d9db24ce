"""Adds the routes that list parties, algorithms and studies, and those of public rows."""

from __future__ import annotations

import asyncio
import inspect
from typing import Annotated

from fastapi import FastAPI, Path, Query, Request

from parley.common.algorithms import REGISTRY, parameter_schema
from parley.common.data.study import Study
from parley.common.errors import ConflictError, InvalidInputError, NotFoundError
from parley.common.runs.specification import PublicRows
from parley.common.service.application import answers, caller_of
from parley.common.service.http.representations import compressible, revalidated
from parley.common.service.tokens import SignedInCaller
from parley.common.strict import PlainName
from parley.learner.api import routes
from parley.learner.api.party_reports import PartyReports
from parley.learner.api.roles import Roles, user_name
from parley.learner.api.schemas import (
    AlgorithmView,
    MemberName,
    NewestReceipt,
    PageLimit,
    PageStartDigest,
    PartyView,
    PublicRowsPage,
    StudySummary,
    UserView,
)
from parley.learner.api.service import LearnerService
from parley.learner.api.table_task import Kind
from parley.learner.api.uploads import TABLE_BODY, Uploads
from parley.learner.storage.study_folder import find_study


def add_catalogue(app: FastAPI, learner: LearnerService) -> None:
    """Add the routes of parties, receipts, algorithms and studies."""
    reports = PartyReports(learner)

    @answers(
        app,
        routes.LIST_PARTIES,
        summary="The parties of the roster and what they say of themselves",
        tags=["catalogue"],
    )
    @compressible
    async def list_parties(
        within: Annotated[
            float | None,
            Query(ge=0, le=3600, description="seconds to wait; without it, the learner's deadline for silent parties"),
        ] = None,
    ) -> list[PartyView]:
        """Asks every party at once; one that does not answer by the deadline is listed with its problem.

        With ``within``, a party that has not answered by then is listed as ``awaited``, and one that is awaited or has
        a problem with what it stated last, at ``as_of``. The learner goes on asking it until the deadline.
        """
        return await (reports.now() if within is None else reports.soon(within))

    @answers(app, routes.SHOW_RECEIPT, summary="The newest receipt of a party or key holder", tags=["catalogue"])
    async def show_newest_receipt(name: MemberName) -> NewestReceipt:
        """Show the receipt with which its owner replaces a lost ledger by a new one: parley-party recover --receipt."""
        if (receipt := learner.witnesses.newest(name)) is None:
            raise NotFoundError(f"there is no receipt of {name[:100]!r}")
        if learner.witnesses.is_copied(receipt):
            raise ConflictError(
                f"this learner was brought back from a backup and has not heard from {name} since: a later receipt may "
                "be lost, so it shows none; ask for one that others keep (parley-party witnessed)"
            )
        return NewestReceipt(signer=name, receipt=receipt.text)

    @answers(app, routes.LIST_ALGORITHMS, summary="The algorithms and their parameters", tags=["catalogue"])
    @compressible
    @revalidated
    def list_algorithms() -> dict[str, AlgorithmView]:  # in a thread: the first answer loads all algorithms
        """Each algorithm by name, with the JSON Schema of its parameters."""
        return {
            name: AlgorithmView(
                summary=(inspect.getdoc(inspect.getmodule(kind)) or "").split("\n")[0],
                curator=kind.curator,
                norms=tuple(sorted(kind.norms)),
                sparse=kind.sparse,
                persons=kind.persons,
                parameters=parameter_schema(name),
            )
            for name, kind in REGISTRY.items()
        }

    @answers(app, routes.LIST_STUDIES, summary="The studies that runs may name", tags=["catalogue"])
    @compressible
    @revalidated
    def list_studies() -> list[StudySummary]:
        """List the studies in short, in the order of their names."""
        return [StudySummary.of(study) for _, study in sorted(learner.studies.items())]

    @answers(app, routes.SHOW_STUDY, summary="One study", tags=["catalogue"])
    @compressible
    @revalidated
    def show_study(study: Annotated[PlainName, Path(description="its name")]) -> Study:
        """Show the study's columns with their public bounds or values, its label and its loss."""
        if (found := learner.studies.get(study)) is None:
            raise NotFoundError(f"there is no study {study[:100]!r}")
        return found


def add_public(app: FastAPI, learner: LearnerService) -> None:
    """Add the routes of public rows, which runs ask about."""
    uploads = Uploads()

    @answers(
        app,
        routes.UPLOAD_PUBLIC_ROWS,
        status_code=201,
        summary="Upload public rows",
        tags=["public rows"],
        openapi_extra={"requestBody": {"required": True, "content": TABLE_BODY}},
    )
    async def upload_public_rows(
        request: Request,
        study: Annotated[PlainName, Query(description="whose columns they have")],
        start: Annotated[  # noqa: FBT002 -- a query has names
            bool, Query(description="keep the weights of the model that fits the rows, for a descent to start from")
        ] = False,
        labelled: Annotated[  # noqa: FBT002
            bool, Query(description="keep each row's label as a last number, for algorithms that learn from the rows")
        ] = False,
    ) -> PublicRows:
        """Keep the rows of a CSV or Parquet file with a study's features, and name them by their digest.

        With ``start`` the weights of a model that fits the rows are kept and named instead. The label's column is
        needed only for ``start`` and ``labelled``. Every party of a run that names the digest sees these rows.
        """
        chosen = find_study(learner.studies, study)
        if start and labelled:
            raise InvalidInputError("start keeps weights, and labelled keeps rows: give one of the two")
        kind: Kind = "start" if start else "labelled" if labelled else "rows"
        async with learner.fair.turn(learner.fair.uploads, user_name(request)):
            table = await uploads.read(request, chosen, kind)
            return await asyncio.to_thread(learner.rows.add, table)

    @answers(app, routes.LIST_PUBLIC_ROWS, summary="A page of the public rows that are kept here", tags=["public rows"])
    @compressible
    @revalidated
    def list_public_rows(limit: PageLimit = 100, after: PageStartDigest = None) -> PublicRowsPage:
        """List the rows' digests and shapes, in the order of their digests."""
        rows, damaged, last = learner.rows.page(limit, after or "")
        return PublicRowsPage(rows=tuple(rows), damaged=tuple(damaged), next=last)


def add_user(app: FastAPI, roles: Roles) -> None:
    """Add the route that names the caller."""

    @answers(app, routes.SHOW_USER, summary="Who asks", tags=["catalogue"])
    def show_user(request: Request) -> UserView:
        """Show the caller's name and role, and what people call the caller."""
        name, user = user_name(request), caller_of(request)
        return UserView(
            name=name, role=roles.role(user), title=user.title if isinstance(user, SignedInCaller) else name
        )
