"""``parley-party studies`` and ``withdraw``: the studies that the owner takes part in, and the end of one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.common.errors import ConflictError, NotFoundError
from parley.common.service.commands import Printer, deferred
from parley.party.commands import DEFAULT_CONFIG, Config, print_table, quietly, read_text

with deferred():
    from parley.party import policy as party_policy
    from parley.party import settings as party_settings
    from parley.party import settings_text
    from parley.party.answers import party
    from parley.party.ledger import ledger

if TYPE_CHECKING:
    from parley.party.ledger.books import RunKey
    from parley.party.settings import PartySettings, StudySettings


def studies_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """List the studies that you take part in: data, people, the share set aside, who may ask, and who says yes.

    The number of rows, or of persons, is that of the ledger, which has it once a service has loaded the study's data.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        examples = _examples_by_study(settings)
        studies = [
            _described(settings, name, entry, examples.get(name))
            for name, entry in party_policy.named_studies(settings).items()
        ]
    out.result(
        studies, lambda: print_table([tuple(studies[0]), *(tuple(map(_cell, each.values())) for each in studies)])
    )


def withdraw_command(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="The study's name, as parley-party studies lists it.")],
    config: Config = DEFAULT_CONFIG,
    *,
    out: Printer,
) -> None:
    """Take part in a study no more: it leaves the settings, and all its runs end. What was charged stays charged.

    A service that runs takes this up by itself. To take part in nothing, stop the service.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        named = party_policy.named_studies(settings)
        if name not in named:
            raise NotFoundError(f"{config} has no study {name}; it has {', '.join(named)}")
        if len(named) == 1:
            raise ConflictError(f"{name} is your only study, and a party without one does not start: stop its service")
        text = read_text(config)
        if named[name].name == "":
            text = settings_text.in_long_form(text, name)
        text = settings_text.without_study(text, name)
        settings_text.settings_of(config, text)  # refuses before any run ends
        with _runs_ended(settings, name) as ended:
            settings_text.save_settings(config, text)
    left_out = _left_out(settings, [entry for other, entry in named.items() if other != name])
    lines = [f"withdrawn from {name}; what was charged stays charged, and its data stay where they are"]
    lines += [f"  run {run} of {learner} has ended" for learner, run in ended]
    lines += [f"  {learner} may ask about nothing now; its connection stays" for learner in left_out]
    out.done("\n".join(lines), withdrawn=name, ended=[{"learner": learner, "run": run} for learner, run in ended])


def _left_out(settings: PartySettings, others: Collection[StudySettings]) -> list[str]:
    """Return the learners that may ask about none of the ``others``, which are the studies that are left."""
    names = [learner.name for learner in settings.learners]
    return [name for name in names if not any(entry.is_open_to(name) for entry in others)]


@contextmanager
def _runs_ended(settings: PartySettings, study: str) -> Iterator[list[RunKey]]:
    """End the open runs of a study, before the block and those that came meanwhile after it; yields all of them."""
    ended: list[RunKey] = []
    if not ledger.has_ledger(settings.state):
        yield ended
        return
    with party.open_store(settings) as store:
        ended += store.withdraw(study)
        yield ended
        ended += store.withdraw(study)


def _examples_by_study(settings: PartySettings) -> dict[str, int]:
    """Return how many rows, or persons, each study's data had when the ledger pinned them, as far as it says."""
    if not ledger.has_ledger(settings.state):
        return {}
    with party.open_store(settings) as store:
        return {name: pins[-1][1].n_examples for name, pins in store.books.pins.items() if pins[-1][1].n_examples}


def _described(settings: PartySettings, name: str, entry: StudySettings, n_examples: int | None) -> dict[str, Any]:
    """Return what the settings say of a study, by the columns of the table."""
    policy = entry.policy
    return {
        "study": name,
        "source": " ".join(entry.data.source.split()),
        "people": entry.people,
        "share": policy.share,
        "learners": list(policy.learners or (learner.name for learner in settings.learners)),
        "approval": policy.over(settings.policy).approval,
        "rows": None if entry.data.person else n_examples,
        "persons": n_examples if entry.data.person else None,
    }


def _cell(value: Any) -> str:  # noqa: ANN401 -- what `_described` returns
    """Return a value as a cell of the table."""
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value or "-")
