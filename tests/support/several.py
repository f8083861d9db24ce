"""An owner with three studies of two tables, whom two learners ask, each about two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley.common.data.study import Study
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.settings import PartySettings
from tests.support.cluster import USER, Cluster, made_up
from tests.support.ledgers import make_ledger

LEARNERS = ("ann", "bob")
TABLES = {"first": "one", "second": "one", "third": "two"}
"""The table that each study is about."""
ASKED_BY = {"first": ("ann",), "second": ("bob",), "third": LEARNERS}
"""The learners that may ask about each study."""
STUDIES: dict[str, Study] = {
    name: made_up(2 if name == "second" else 3).model_copy(update={"name": name}) for name in TABLES
}
N_EXAMPLES = {"one": 40, "two": 41}


def token_of(learner: str) -> str:
    """The token with which a learner asks the party."""
    return f"the-token-of-{learner}"


def asking(learner: str) -> dict[str, str]:
    """The headers with which a learner asks the party."""
    return {"Authorization": f"Bearer {token_of(learner)}", "Accept-Encoding": "identity"}


@dataclass
class Owner:
    """The party's files under ``root``: studies, tables and, once it is made, the ledger."""

    root: Path
    policy: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = Cluster(self.root, n_parties=2, makes_ledgers=False)
        for name, table in zip(made.names, N_EXAMPLES, strict=True):
            (self.root / f"{name}.csv").rename(self.table(table))
        made.study_path.unlink()
        for name, study in STUDIES.items():
            (self.root / "studies" / f"{name}.json").write_text(study.model_dump_json())
        make_ledger(self.settings())

    @property
    def state(self) -> Path:
        """The party's state directory."""
        return self.root / "party-1"

    def table(self, name: str) -> Path:
        """The file of a table."""
        return self.root / f"{name}.csv"

    def entry(self, name: str, **changes: object) -> dict[str, Any]:
        """A study in the party's settings; ``changes`` are fields of it."""
        fields = {
            "name": name,
            "study": str(self.root / "studies" / f"{name}.json"),
            "data": {"source": str(self.table(TABLES[name]))},
            "policy": {"learners": ASKED_BY[name]},
        }
        return fields | changes

    def settings(self, *entries: dict[str, Any], **changes: object) -> PartySettings:
        """The party's settings, with these studies or all three."""
        policy = {
            "epsilon": 10_000.0,
            "delta": 0.1,
            "max_epsilon_per_run": 100.0,
            "max_delta_per_run": 0.1,
            "algorithms": ("dp_gd", "psgd"),
            "minimum_contributors": 1,
        }
        fields: dict[str, Any] = {
            "name": "party-1",
            "state": self.root / "party-1",
            "studies": entries or tuple(map(self.entry, STUDIES)),
            "policy": policy | self.policy,
            "learners": [{"name": name, "token_hash": hash_token(token_of(name))} for name in LEARNERS],
        }
        return PartySettings(**(fields | changes))

    def learner_settings(self, name: str, url: str, **changes: object) -> LearnerSettings:
        """The settings of a learner that knows the studies about which it may ask."""
        folder = self.root / f"studies-of-{name}"
        folder.mkdir(exist_ok=True)
        for study, learners in ASKED_BY.items():
            if name in learners:
                (folder / f"{study}.json").write_text(STUDIES[study].model_dump_json())
        fields: dict[str, Any] = {
            "name": name,
            "state": self.root / name,
            "studies": folder,
            "parties": [{"name": "party-1", "url": url, "token": token_of(name), "plain_http": True}],
            "users": [{"name": "alice", "token_hash": hash_token(USER)}],
        }
        return LearnerSettings(**(fields | changes))


def spec_on(study: str, n_rounds: int = 10, **changes: object) -> RunSpec:
    """The specification of a run on a study; ``changes`` are fields of it."""
    member = Member(name="party-1", n_examples=N_EXAMPLES[TABLES[study]], budget=Budget(epsilon=1.0, delta=1e-5))
    fields: dict[str, Any] = {
        "study": STUDIES[study],
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": n_rounds},
        "parties": (member,),
        "minimum_contributors": 1,
    }
    return RunSpec.model_validate(fields | changes).settled()[0]
