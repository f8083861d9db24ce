"""The ledger's tables and statements, in the SQL that SQLite runs.

Written out and run by the driver: a round's transaction then costs 0.05 ms beside its commit; through SQLAlchemy 0.5.
"""

from __future__ import annotations

from dataclasses import fields

from party.ledger.hash_chain import Entry

_ACCOUNT_TABLE = """
    CREATE TABLE IF NOT EXISTS account (              -- one row: the owner's whole budget
        id INTEGER PRIMARY KEY CHECK (id = 1),
        genesis TEXT NOT NULL,                        -- the link that the chain begins with, random
        key BLOB NOT NULL CHECK (length(key) = 32),   -- signs receipts
        epsilon_limit INTEGER NOT NULL,               -- micro-units
        delta_limit INTEGER NOT NULL,                 -- units of 1e-18
        epsilon_spent INTEGER NOT NULL CHECK (epsilon_spent BETWEEN 0 AND epsilon_limit),
        delta_spent INTEGER NOT NULL CHECK (delta_spent BETWEEN 0 AND delta_limit),
        adjacency TEXT NOT NULL                       -- what every charge must hide at least
    ) STRICT"""
_RUNS_TABLE = """
    CREATE TABLE IF NOT EXISTS runs (                 -- what was consented to
        learner TEXT NOT NULL,
        run TEXT NOT NULL,
        spec TEXT NOT NULL,                           -- JSON
        price TEXT NOT NULL,                          -- JSON: the whole cost after each round, as consented to
        ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
        PRIMARY KEY (learner, run)
    ) STRICT"""
_ENTRIES_TABLE = """
    CREATE TABLE IF NOT EXISTS entries (              -- what was answered, and what it cost
        number INTEGER PRIMARY KEY,
        learner TEXT NOT NULL,
        run TEXT NOT NULL,
        round INTEGER NOT NULL CHECK (round >= 1),
        query TEXT NOT NULL,                          -- SHA-256 of what was asked
        answer TEXT NOT NULL,                         -- SHA-256 of the body
        epsilon INTEGER NOT NULL CHECK (epsilon >= 0),
        delta INTEGER NOT NULL CHECK (delta >= 0),
        adjacency TEXT NOT NULL,                      -- what that cost hides
        at INTEGER NOT NULL,                          -- seconds since 1970
        link TEXT NOT NULL,                           -- hash over the link before and this entry
        body BLOB NOT NULL,                           -- the answer as it was sent
        UNIQUE (learner, run, round),
        FOREIGN KEY (learner, run) REFERENCES runs
    ) STRICT"""
_ONCE_TABLE = """
    CREATE TABLE IF NOT EXISTS once (                 -- noise that is drawn once a run and never again
        learner TEXT NOT NULL,
        run TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,                          -- an .npy array
        PRIMARY KEY (learner, run, name),
        FOREIGN KEY (learner, run) REFERENCES runs
    ) STRICT"""

_ROSTERS_TABLE = """
    CREATE TABLE IF NOT EXISTS rosters (              -- the secure sums that were joined
        learner TEXT NOT NULL,
        run TEXT NOT NULL,
        invitation BLOB NOT NULL,                     -- the roster, signed by learner and key holders
        PRIMARY KEY (learner, run),
        FOREIGN KEY (learner, run) REFERENCES runs
    ) STRICT"""

LEDGER_TABLES = (_ACCOUNT_TABLE, _RUNS_TABLE, _ENTRIES_TABLE, _ONCE_TABLE, _ROSTERS_TABLE)

_COLUMNS = tuple(field.name for field in fields(Entry))
FIND_CONSENT = "SELECT spec, price FROM runs WHERE learner = :learner AND run = :run"
ADD_CONSENT = "INSERT INTO runs (learner, run, spec, price) VALUES (:learner, :run, :spec, :price)"
END_RUN = "UPDATE runs SET ended = 1 WHERE learner = :learner AND run = :run"
PROGRESS = """
    SELECT ended, (SELECT coalesce(max(round), 0) FROM entries WHERE learner = :learner AND run = :run)
    FROM runs WHERE learner = :learner AND run = :run"""
FIND_ANSWER = """
    SELECT query, body, number, link FROM entries WHERE learner = :learner AND run = :run AND round = :round"""
LAST_LINK = "SELECT number, link FROM entries ORDER BY number DESC LIMIT 1"
LINK_AT = "SELECT link FROM entries WHERE number = ?"
ENTRIES = f"SELECT {', '.join(_COLUMNS)}, link FROM entries ORDER BY number"  # noqa: S608 -- constant names
ADD_ENTRY = f"""
    INSERT INTO entries ({", ".join(_COLUMNS)}, link, body) VALUES (:{", :".join(_COLUMNS)}, :link, :body)"""  # noqa: S608
FIND_ONCE = "SELECT name, value FROM once WHERE learner = :learner AND run = :run"
JOIN = """
    INSERT INTO rosters (learner, run, invitation) VALUES (:learner, :run, :invitation)
    ON CONFLICT (learner, run) DO NOTHING"""
FIND_INVITATION = "SELECT invitation FROM rosters WHERE learner = :learner AND run = :run"
UNENDED = "SELECT learner, run FROM runs WHERE NOT ended ORDER BY rowid DESC LIMIT ?"
JOINED = "SELECT learner, run FROM rosters JOIN runs USING (learner, run) WHERE NOT ended"
LAST_ANSWER = "SELECT body FROM entries WHERE learner = :learner AND run = :run ORDER BY round DESC LIMIT 1"
ADD_ONCE = "INSERT INTO once (learner, run, name, value) VALUES (:learner, :run, :name, :value)"
BEGINNING = "SELECT genesis, key FROM account"
BEGIN = """
    INSERT INTO account (id, genesis, key, epsilon_limit, delta_limit, epsilon_spent, delta_spent, adjacency)
    VALUES (1, ?, ?, 0, 0, 0, 0, 'whole_party')"""
SUMS = "SELECT coalesce(sum(epsilon), 0), coalesce(sum(delta), 0) FROM entries"
ACCOUNT = "SELECT epsilon_limit, delta_limit, epsilon_spent, delta_spent, adjacency FROM account"
WEAKER_ENTRIES = "SELECT count(*) FROM entries WHERE adjacency = 'replace_one'"
SET_LIMIT = """
    UPDATE account SET epsilon_limit = max(:epsilon, epsilon_spent), delta_limit = max(:delta, delta_spent),
        adjacency = :adjacency"""
CHARGE = """
    UPDATE account SET epsilon_spent = epsilon_spent + :epsilon, delta_spent = delta_spent + :delta
    WHERE epsilon_spent + :epsilon <= epsilon_limit AND delta_spent + :delta <= delta_limit"""
