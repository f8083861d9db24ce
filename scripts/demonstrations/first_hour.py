"""The first hour of new users, played from a wheel: ``python -m scripts.demonstrations.first_hour``.

An operator and three hospitals, each in a folder of its own, have three tables: Adult, readmissions of diabetic
patients within 30 days (11 % positive), and Lending Club's loans, whose rows are dealt out to the three. A wheel of
this checkout is installed in an empty environment. Then every line that a person types is one line of a shell; it is
printed and counted, must end with status 0, and must follow from what that person has read: what its own commands
printed, what came with the operator's file, and six words that the other side reads out by telephone from its own
terminal.

Each study is trained and evaluated at epsilon 1. For readmissions, recall and precision at the threshold ``balanced``
are measured on rows that no hospital holds, beside a model of the pooled rows without privacy at its own balanced
threshold. The exit status is 1 if a limit is missed. Needs ``PARLEY_DATA``; stops all that it starts.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.csv import write_csv
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, recall_score, roc_auc_score, roc_curve

from parley.common.errors import ParleyError
from parley.common.files.examples import load_examples
from parley.common.runs.model_document import ModelDocument
from parley.learner.client import Learner
from scripts.loopback import free_ports, processes, wait_until
from scripts.utility.examples import AbsentError, data_path

ROOT = Path(__file__).parents[2]
HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")
OPERATORS_LINES, FIRST_LINES, FURTHER_LINES, MINUTES, APART = 6, 3, 1, 5.0, 0.03
"""Limits: lines of the operator; of an owner for the first study, and for each further one; time; recall, precision."""
WHY_APART = (
    "recall and precision may differ by the model's own noise, and by that of its evaluation, which chooses the "
    "threshold: with three owners it moves recall by about .07 at a tenth of epsilon 1, by .02 at epsilon 1"
)
SAME = 0.002
"""Balanced accuracies that differ by less are alike."""
TERMS = "--epsilon 1 --delta 1e-5"
TEST_SHARE = 0.2

until = partial(wait_until, seconds=120.0, pause=0.2)


class DeadEndError(Exception):
    """A command fails, or a person cannot know what to type next."""


@dataclass(frozen=True, slots=True)
class Table:
    """A public table: its rows for training, those that no hospital holds, its label, and what people say of it.

    ``words`` are the operator's options for the study; owners type what the operator's terminal prints for them.
    """

    name: str
    rows: pa.Table
    test: pa.Table
    label: str
    words: str


@dataclass(slots=True)
class Person:
    """Somebody with a terminal in a folder: the lines it ``typed``, and all that it has ``read``."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    typed: list[str] = field(default_factory=list)
    read: str = ""

    def types(self, line: str, *, after: str = "") -> str:
        """Type a line and return what it prints; ``after`` is what the person must have read to know it.

        Raises DeadEndError if it has not, or the exit status is not 0.
        """
        self._begin(line, after)
        done = subprocess.run(  # noqa: S603 -- ours
            ["/bin/bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.reads(done.stdout)
        if done.returncode:
            raise DeadEndError(f"{self.name}: exit status {done.returncode} of {line}\n{done.stdout}")
        return done.stdout

    @contextmanager
    def leaves_running(self, line: str, until_it_prints: str, *, after: str = "") -> Iterator[str]:
        """Type a line whose program runs on in its terminal until the end of the block; yields what it printed."""
        self._begin(line, after)
        log = self.folder / "terminal.log"
        command = ["/bin/bash", "-c", f"cd {shlex.quote(str(self.folder))} && exec {line}"]
        with processes({"terminal": command}, self.folder, dict(self.environment)) as running:

            def has_begun() -> bool:
                if running["terminal"].poll() is not None:
                    raise DeadEndError(f"{self.name}: it has ended: {line}\n{log.read_text()}")
                return until_it_prints in log.read_text()

            until(has_begun)
            self.reads(log.read_text())
            yield log.read_text()

    def reads(self, text: str) -> None:
        """Read what is printed, or what another person sends or says."""
        self.read += "\n" + text
        for line in text.strip().splitlines():
            print(f"    {line}", flush=True)

    def _begin(self, line: str, after: str) -> None:
        print(f"{self.name} $ {line}", flush=True)
        if " ".join(after.split()) not in " ".join(self.read.split()):
            raise DeadEndError(f"{self.name} cannot know {line!r}: nobody has said {after!r}")
        self.typed.append(line)


def main() -> None:
    """Play the hour, and print what it took; the exit status is 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="of the new environment; default: this one")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory(prefix="parley-first-hour-") as folder, ExitStack() as stack:
        root = Path(folder)
        tables = [adult(), readmissions(), loans()]
        began = time.monotonic()
        commands = install(root, python)
        installed = time.monotonic()
        hour = Hour(root, tables, commands, stack)
        try:
            hour.play()
        except (DeadEndError, TimeoutError) as error:
            sys.exit(f"a dead end after {hour.lines} lines: {error or 'nothing more happens'}")
        seconds = time.monotonic() - began
        print(f"\n{seconds:.0f} s of machine time, of them {installed - began:.0f} s to build and install the wheel")
        missed = [*hour.missed_lines(), *hour.missed_figures()]
        if seconds > 60 * MINUTES:
            missed.append(f"it took more than {MINUTES:g} minutes")
    sys.exit("missed: " + "; ".join(missed) if missed else 0)


def install(root: Path, python: str) -> Path:
    """Build this checkout's wheel, install it with the locked packages of services; returns its commands' folder."""
    run = partial(subprocess.run, check=True, cwd=ROOT, stdout=sys.stderr)
    build = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", root / "dist", ".")
    run([sys.executable, "-I", "-m", "pip", "wheel", *build])
    run([python, "-m", "venv", root / "installed"])
    pip = (root / "installed" / "bin" / "python", "-I", "-m", "pip", "install", "--quiet", "--no-compile")
    run([*pip, "--require-hashes", "-r", "requirements-runtime.lock", "-r", "requirements-files.lock"])
    run([*pip, "--no-deps", *(root / "dist").glob("*.whl")])
    return root / "installed" / "bin"


# ── the tables ───────────────────────────────────────────────────────────────


def adult() -> Table:
    """Adult, as the census has it, with its own test rows."""
    rows, test = (pq.read_table(data_path("adult", f"adult-{part}.parquet")) for part in ("train", "test"))
    return Table("adult", rows, test, "income", "--positive '>50K' --missing value")


def readmissions() -> Table:
    """Encounters of diabetic patients; the label says whether they came back within 30 days."""
    rows = pq.read_table(data_path("diabetes-readmission", "encounters.parquet"))
    back = pc.if_else(pc.equal(rows["readmitted"], "<30"), "yes", "no")
    rows = rows.drop_columns(["readmitted"]).append_column("readmitted", back)
    return Table("readmission", *parted(rows), "readmitted", "--positive yes --missing value")


def loans() -> Table:
    """Loans with what is known when one asks for it, and the rate of interest."""
    known = (
        "loan_amnt term_months annual_inc dti revol_util emp_length home_ownership purpose addr_state delinq_2yrs "
        "inq_last_6mths open_acc pub_rec revol_bal total_acc int_rate"
    )
    rows = pq.read_table(data_path("lending-club", "loans-2007-2011.parquet"), columns=known.split())
    plain = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    bounds = "--bounds annual_inc=0:200000 --bounds revol_bal=0:50000"
    return Table("loans", *parted(pa.table(plain, rows.column_names)), "int_rate", f"--missing value {bounds}")


def parted(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Part rows into those that hospitals get and those that none gets, by a fixed draw."""
    order = np.random.default_rng(42).permutation(len(rows))
    n_test = int(TEST_SHARE * len(rows))
    return rows.take(order[n_test:]), rows.take(order[:n_test])


# ── the hour ─────────────────────────────────────────────────────────────────


class Hour:
    """An operator and its owners, with the tables in their folders."""

    def __init__(self, root: Path, tables: list[Table], commands: Path, stack: ExitStack) -> None:
        self.tables, self._stack = tables, stack
        self._url = f"https://127.0.0.1:{free_ports(1)[0]}"
        environment = {"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(root), "LANG": "C.UTF-8", "COLUMNS": "120"}
        people = []
        for name in ("operator", *HOSPITALS):
            (root / name).mkdir()
            people.append(Person(name, root / name, environment))
        self.operator, *self.owners = people
        for table in tables:
            write_csv(table.rows, self.operator.folder / f"{table.name}.csv")
            deals = np.array_split(np.random.default_rng(1).permutation(len(table.rows)), len(self.owners))
            for owner, rows in zip(self.owners, deals, strict=True):
                write_csv(table.rows.take(rows), owner.folder / f"{table.name}.csv")

    @property
    def lines(self) -> int:
        """How many lines all have typed."""
        return sum(len(person.typed) for person in (self.operator, *self.owners))

    def play(self) -> None:
        """Play it; raises DeadEndError."""
        first, *further = self.tables
        self._begin(first)
        for owner in self.owners:
            self._joins(owner, first)
        self._confirms()
        for table in further:
            self.operator.types(self._quickstart(table))
            for owner in self.owners:
                self._takes_up(owner, table)
        self._trains()

    def _quickstart(self, table: Table) -> str:
        names = ",".join(HOSPITALS)
        return (
            f"parley-learner quickstart {table.name}.csv --public --label {table.label} {table.words} --owners {names}"
        )

    def _begin(self, table: Table) -> None:
        line = f"{self._quickstart(table)} --url {self._url} --serve"
        self._stack.enter_context(self.operator.leaves_running(line, "next"))
        secrets = self.operator.folder / "learner" / "secrets"
        self._client = self._stack.enter_context(
            Learner(self._url, token_file=secrets / "operator.token", ca=secrets / "authority.pem")
        )
        until(lambda: answers(self._client))

    def _joins(self, owner: Person, table: Table) -> None:
        """The owner gets the file and the operator's message, hears the words, joins, and starts its party."""
        file = self._sends(owner, f"{owner.name}.invitation.json")
        words = words_after(self.operator.read, "by telephone; they type them:")
        self._types_join(owner, table, file, f" --words {shlex.quote(words)}")
        serve = f"parley-party serve --config {owner.name}/party.toml"
        self._stack.enter_context(owner.leaves_running(serve, "", after=serve))

    def _sends(self, owner: Person, file: str) -> str:
        """The operator sends an invitation with the lines that were printed for it."""
        (owner.folder / file).write_bytes((self.operator.folder / file).read_bytes())
        owner.read += "\n".join(line for line in self.operator.read.splitlines() if file in line)
        return file

    def _confirms(self) -> None:
        """Each owner reads out its own six words, and the operator types them."""
        said = {owner.name: words_after(owner.read, "operator:") for owner in self.owners}
        each = " ".join(f"{name} {words}" for name, words in said.items())
        self.operator.types(f"parley-learner roster confirm {each}", after="parley-learner roster confirm")
        self._settle()

    def _takes_up(self, owner: Person, table: Table) -> None:
        """A member joins a further study with its own table, while its party runs."""
        number = self.tables.index(table) + 1
        self._types_join(owner, table, self._sends(owner, f"{owner.name}-{number}.invitation.json"))

    def _types_join(self, owner: Person, table: Table, file: str, more: str = "") -> None:
        """The owner types the line that it was sent, with its table."""
        found = re.search(rf"parley-party join {re.escape(file)} --data TABLE[^;\n]*", owner.read)
        join = f"parley-party join {file}" if found is None else found[0]
        owner.types(f"{join.replace('TABLE', f'{table.name}.csv')} --by-policy{more}", after=join)

    def _settle(self) -> None:
        """Wait until all parties are connected."""
        until(lambda: all(party.problem is None for party in self._client.parties()))

    def _trains(self) -> None:
        """Submit a run on each study, with a threshold for those of two classes."""
        self._settle()
        time.sleep(5)  # a party takes up a study within seconds
        classes = [table.name for table in self.tables if "--positive" in table.words]
        submit = f"parley-learner submit $study {TERMS} --threshold balanced --watch"
        after = f"parley-learner submit {classes[0]} {TERMS} --watch"
        self.operator.types(f"set -e; for study in {' '.join(classes)}; do {submit}; done", after=after)
        for table in self.tables:
            if table.name not in classes:
                submit = f"parley-learner submit {table.name} {TERMS} --watch"
                self.operator.types(submit, after=submit)

    # ── what it took, and how good it is ─────────────────────────────────────

    def missed_lines(self) -> Iterator[str]:
        """Print how many lines were typed; yield the limits that were missed."""
        most = FIRST_LINES + FURTHER_LINES * (len(self.tables) - 1)
        print(
            f"lines typed: operator {len(self.operator.typed)}; an owner {[len(owner.typed) for owner in self.owners]}"
        )
        print(f"dead ends: 0 of {self.lines} lines")
        if len(self.operator.typed) > OPERATORS_LINES:
            yield f"the operator typed {len(self.operator.typed)} lines, not {OPERATORS_LINES}"
        if max(len(owner.typed) for owner in self.owners) > most:
            yield f"an owner typed more than {most} lines"

    def missed_figures(self) -> Iterator[str]:
        """Print figures of each model on rows that no hospital holds, and evaluations; yield the limits missed."""
        by_study = {run.study: run.id for run in self._client.runs() if run.state == "completed" and not run.evaluates}
        for table in self.tables:
            if table.name not in by_study:
                yield f"no model of {table.name}"
                continue
            model = self._client.model(by_study[table.name])
            if (threshold := getattr(model, "threshold", None)) is not None:
                print(f"{table.name}: threshold {threshold}")
            for line in evaluation_lines(model):
                print(f"{table.name}: {line}")
            if table.name == "readmission":
                yield from self._compare(table, by_study[table.name], model)

    def _compare(self, table: Table, run: str, model: ModelDocument) -> Iterator[str]:
        """Print how the model tells the positive class beside the pooled one, on test rows; yield the limits missed."""
        predictions = self._client.predict(run, table.test)
        truth = np.array(table.test[table.label].to_pylist()) == "yes"
        private = Told(
            truth, np.array([it.score for it in predictions]), np.array([it.label for it in predictions]) == "yes"
        )
        pooled, spread = pooled_without_privacy(self.operator.folder, table, model)
        for name in ("recall", "precision", "auc"):
            there, without = getattr(private, name), getattr(pooled, name)
            print(f"{table.name}, balanced: {name} {there:.3f}; pooled without privacy {without:.3f}")
            if abs(there - without) > APART and name != "auc":
                yield f"{name} of {table.name} is {abs(there - without):.3f} from the pooled model's"
        low, high = spread
        print(f"the pooled model is as balanced, to {SAME:g}, wherever its recall is {low:.2f} to {high:.2f}")
        print(WHY_APART)


@dataclass(frozen=True, slots=True)
class Told:
    """Whether rows (n,) are positive, their scores, and whether a model tells them positive."""

    truth: Any
    scores: Any
    positive: Any

    @property
    def recall(self) -> float:
        """Share of the positive rows that are told."""
        return float(recall_score(self.truth, self.positive, zero_division=0.0))

    @property
    def precision(self) -> float:
        """Share of the rows told positive that are."""
        return float(precision_score(self.truth, self.positive, zero_division=0.0))

    @property
    def auc(self) -> float:
        """Probability that a positive row scores above a negative one."""
        return float(roc_auc_score(self.truth, self.scores))


def pooled_without_privacy(folder: Path, table: Table, model: ModelDocument) -> tuple[Told, tuple[float, float]]:
    """Fit all rows by logistic regression, and tell the test rows at the threshold of the best balanced accuracy.

    Returns also the least and largest recall, on the rows, of thresholds that are as good to `SAME`.
    """
    write_csv(table.test, folder / "test.csv")
    rows, test = (load_examples(folder / f"{name}.csv", model.study, clip=True).shard for name in (table.name, "test"))
    fitted = LogisticRegression(C=1e4, max_iter=2000).fit(rows.X, rows.y > 0)
    false, true, thresholds = roc_curve(rows.y > 0, fitted.decision_function(rows.X))
    balanced = (true - false + 1) / 2
    as_good = true[balanced > balanced.max() - SAME]
    scores = fitted.decision_function(test.X)
    told = Told(test.y > 0, scores, scores > thresholds[balanced.argmax()])
    return told, (float(as_good.min()), float(as_good.max()))


def evaluation_lines(model: ModelDocument) -> Iterator[str]:
    """Yield what a model's evaluation says, figure by figure."""
    if model.evaluation is None:
        yield "not evaluated"
        return
    for name, figure in dict(model.evaluation).items():
        if hasattr(figure, "estimate"):
            known = "not known" if figure.estimate is None else f"{figure.estimate:.3f}"
            yield f"{name} {known} ({'-inf' if figure.low is None else f'{figure.low:.3f}'} to {figure.high:.3f})"


def words_after(text: str, prefix: str) -> str:
    """Return the six words that follow what says which they are; raises DeadEndError without."""
    found = re.search(re.escape(prefix) + r"\s+((?:[a-z]+ ){5}[a-z]+)\b", text)
    if found is None:
        raise DeadEndError(f"no six words follow {prefix!r}")
    return found[1]


def answers(client: Learner) -> bool:
    """Whether the learner answers."""
    try:
        client.studies()
    except ParleyError:
        return False
    return True


if __name__ == "__main__":
    try:
        main()
    except AbsentError as error:
        sys.exit(str(error))
