"""The learner's tables and statements, in the SQL that SQLite runs, and the version of the tables."""

from __future__ import annotations

import hashlib

from parley.common.storage.sqlite import Schema

_RUNS_TABLE = """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        user TEXT NOT NULL,
        purpose TEXT NOT NULL,                        -- the user's words, for the owners' logs
        idempotency_key TEXT,
        draft TEXT NOT NULL,                          -- SHA-256 of the specification as it was asked for
        created TEXT NOT NULL,                        -- ISO 8601, UTC
        state TEXT NOT NULL,
        stage TEXT NOT NULL,                          -- the last state but for pauses
        spec TEXT NOT NULL,                           -- JSON; a draft until there is a plan
        terms TEXT NOT NULL,                          -- JSON: the same in short
        approvals TEXT,                               -- JSON: what the parties signed of it, by name
        plan TEXT,                                    -- JSON
        problem TEXT,                                 -- JSON: why the run failed
        pause TEXT,                                   -- JSON: why the run is paused
        model TEXT,                                   -- JSON
        evaluates TEXT REFERENCES runs,               -- whose model the run evaluates
        evaluation TEXT,                              -- JSON: the draft of the evaluation to follow the run
        weights BLOB,                                 -- the model's, an .npy array that its JSON then lacks
        model_digest TEXT,                            -- SHA-256 of both, as `digest_of_model` says
        ended_at TEXT,                                -- ISO 8601, UTC
        threshold TEXT,                               -- the rule by which the model's is chosen
        UNIQUE (user, idempotency_key)
    ) STRICT"""
_EVALUATIONS_INDEX = "CREATE INDEX evaluations_of_run ON runs (evaluates)"
_REPLIES_TABLE = """
    CREATE TABLE replies (                            -- the log that a run is replayed from
        run TEXT NOT NULL REFERENCES runs,
        round INTEGER NOT NULL,
        query TEXT NOT NULL,                          -- SHA-256 of what was asked
        contributors TEXT NOT NULL,                   -- JSON: indices of parties
        value BLOB NOT NULL,                          -- an .npy array
        PRIMARY KEY (run, round)
    ) STRICT"""
_EVENTS_TABLE = """
    CREATE TABLE events (                             -- what watchers are told
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs,
        kind TEXT NOT NULL,
        data TEXT NOT NULL                            -- JSON
    ) STRICT"""
_EVENTS_INDEX = "CREATE INDEX events_of_run ON events (run, number)"
_RECEIPTS_TABLE = """
    CREATE TABLE receipts (                           -- the newest of each party and key holder
        signer TEXT PRIMARY KEY,
        text TEXT NOT NULL
    ) STRICT"""
_COPIED_TABLE = """
    CREATE TABLE copied (                             -- receipts of a backup: later ones may have been lost
        signer TEXT PRIMARY KEY,
        text TEXT NOT NULL
    ) STRICT"""
_RESTORES_TABLE = """
    CREATE TABLE restores (                           -- when a copy was brought back
        at TEXT NOT NULL                              -- ISO 8601, UTC
    ) STRICT"""

_SESSIONS_TABLE = """
    CREATE TABLE sessions (                           -- of the secure sum, one a run
        run TEXT PRIMARY KEY REFERENCES runs,
        session TEXT NOT NULL,
        roster BLOB,                                  -- its body, once it is drafted
        key_holders TEXT NOT NULL DEFAULT '[]',       -- JSON: their names
        signatures TEXT NOT NULL DEFAULT '{}',        -- JSON: everybody's, by name
        ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1))
    ) STRICT"""
_ROUNDS_TABLE = """
    CREATE TABLE rounds (                             -- the round in progress of each session
        run TEXT PRIMARY KEY REFERENCES sessions,
        round INTEGER NOT NULL,
        deadline INTEGER NOT NULL,                    -- seconds since 1970
        silent TEXT NOT NULL DEFAULT '{}'             -- JSON: reasons by party, once the set is chosen
    ) STRICT"""
_CONTRIBUTIONS_TABLE = """
    CREATE TABLE contributions (                      -- the set that is chosen to be opened in that round
        run TEXT NOT NULL REFERENCES rounds ON DELETE CASCADE,
        party TEXT NOT NULL,
        contribution BLOB NOT NULL,
        PRIMARY KEY (run, party)
    ) STRICT"""
_OPENINGS_TABLE = """
    CREATE TABLE openings (                           -- the rounds opened
        run TEXT NOT NULL REFERENCES sessions,
        round INTEGER NOT NULL,
        key_holder TEXT NOT NULL,
        receipt BLOB NOT NULL,                        -- what the key holder signed
        PRIMARY KEY (run, round, key_holder)
    ) STRICT"""

_TABLES = (
    _RUNS_TABLE,
    _EVALUATIONS_INDEX,
    _REPLIES_TABLE,
    _EVENTS_TABLE,
    _EVENTS_INDEX,
    _RECEIPTS_TABLE,
    _COPIED_TABLE,
    _RESTORES_TABLE,
    _SESSIONS_TABLE,
    _ROUNDS_TABLE,
    _CONTRIBUTIONS_TABLE,
    _OPENINGS_TABLE,
)
_WITH_APPROVALS = ("ALTER TABLE runs ADD COLUMN approvals TEXT",)
_WITH_WEIGHTS = ("ALTER TABLE runs ADD COLUMN weights BLOB",)
_WITH_DIGESTS = (
    "ALTER TABLE runs ADD COLUMN model_digest TEXT",
    "UPDATE runs SET model_digest = digest_of_model(model, weights) WHERE model IS NOT NULL",
)
_WITH_ENDS = (
    _COPIED_TABLE,
    _RESTORES_TABLE,
    "ALTER TABLE runs ADD COLUMN ended_at TEXT",
    """UPDATE runs SET ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')  -- when they ended was not stored before
        WHERE state IN ('completed', 'failed', 'cancelled')""",
)
_WITH_THRESHOLDS = ("ALTER TABLE runs ADD COLUMN threshold TEXT",)


def digest_of_model(model: str, *weights: bytes | memoryview | None) -> str:
    """Return SHA-256 of a model's JSON as it is stored, and of its weights, which may come in parts, in hexadecimal.

    >>> digest_of_model("{}", b"ab") == digest_of_model("{}", b"a", b"b") != digest_of_model("{}", None)
    True
    """
    text = model.encode(errors="surrogateescape")
    digest = hashlib.sha256(len(text).to_bytes(8, "big") + text)
    for part in weights:
        digest.update(part or b"")
    return digest.hexdigest()


STORE_SCHEMA = Schema(
    "learner's store",
    application=0x50_4C_52_4E,
    version=7,
    tables=_TABLES,
    migrations={3: _WITH_APPROVALS, 4: _WITH_WEIGHTS, 5: _WITH_DIGESTS, 6: _WITH_ENDS, 7: _WITH_THRESHOLDS},
    functions={digest_of_model.__name__: digest_of_model},
    oldest=2,
    way_out="Its runs are of studies in an older form: the Parley that wrote it still shows them. Put this file, and "
    "those whose names begin with its name, into another folder, and start again: identity, members and public rows "
    "stay, and owners' ledgers know what was spent",
)
"""The tables, and their version; the number spells PLRN."""

_RUN = """
    SELECT id, user, purpose, created, state, stage, spec, terms, problem, pause,
        (SELECT coalesce(max(round), 0) FROM replies WHERE run = id) AS rounds,
        coalesce((SELECT key_holders FROM sessions WHERE run = id), '[]') AS key_holders,
        evaluates,
        (SELECT json_group_array(id) FROM (SELECT id FROM runs AS o WHERE o.evaluates = runs.id ORDER BY rowid))
            AS evaluations,
        threshold
    FROM runs"""
ADD_RUN = """
    INSERT INTO runs (id, user, purpose, idempotency_key, draft, created, state, stage, spec, terms, evaluates,
        evaluation, threshold)
    VALUES (:id, :user, :purpose, :idempotency_key, :draft, :created, :state, :state, :spec, :terms, :evaluates,
        :evaluation, :threshold)"""
_WORDS = """CASE WHEN json_valid(terms)  -- a damaged row is searched by its other columns
        THEN json_extract(terms, '$.study') || char(10) || json_extract(terms, '$.algorithm') ELSE '' END
        || char(10) || user || char(10) || purpose"""
FIND_RUN = f"{_RUN} WHERE id = ?"
FIND_KEYED = "SELECT id, draft, purpose, terms FROM runs WHERE user = ? AND idempotency_key = ?"
FIND_PLACE = "SELECT rowid FROM runs WHERE id = ?"
NEWEST_RUNS = f"""{_RUN}
    WHERE rowid < :place AND (:state IS NULL OR state = :state)
        AND (:search = '' OR instr(lower({_WORDS}), lower(:search)))
    ORDER BY rowid DESC LIMIT :limit"""
UNFINISHED_RUNS = """
    SELECT id FROM runs WHERE state NOT IN ('completed', 'failed', 'cancelled') ORDER BY created"""
RUNNING_RUNS = """
    SELECT id FROM runs WHERE stage = 'running' AND state NOT IN ('completed', 'failed', 'cancelled')"""
COUNT_UNFINISHED_OF = """
    SELECT count(*) AS number FROM runs WHERE user = ? AND state NOT IN ('completed', 'failed', 'cancelled')"""
COUNT_RUNS = "SELECT state, count(*) AS number FROM runs GROUP BY state"
FIND_STATE = """
    SELECT state, (SELECT coalesce(max(round), 0) FROM replies WHERE run = id) AS rounds FROM runs WHERE id = ?"""
ENTER_STATE = """
    UPDATE runs SET state = :state, stage = :state, pause = NULL, problem = :problem, model = :model,
        model_digest = :model_digest,
        ended_at = CASE WHEN :state IN ('completed', 'failed', 'cancelled')
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
        terms = coalesce(:terms, terms), approvals = coalesce(:approvals, approvals)
    WHERE id = :run"""
KEEP_WEIGHTS = "UPDATE runs SET weights = zeroblob(:size) WHERE id = :run RETURNING rowid"
PAUSE_RUN = "UPDATE runs SET state = :state, pause = :pause WHERE id = :run"
GO_ON = "UPDATE runs SET state = stage, pause = NULL WHERE id = ? AND state = 'paused'"
SETTLE_RUN = """
    UPDATE runs SET spec = :spec, terms = :terms, plan = :plan, evaluation = coalesce(:evaluation, evaluation)
    WHERE id = :run"""
FIND_PLAN = "SELECT plan FROM runs WHERE id = ?"
FIND_APPROVALS = "SELECT approvals FROM runs WHERE id = ?"
FIND_MODEL = "SELECT model, weights, model_digest FROM runs WHERE id = ?"
NEWEST_EVALUATION = """
    SELECT id FROM runs WHERE evaluates = ? AND state = 'completed' ORDER BY rowid DESC LIMIT 1"""
FIND_THRESHOLD = "SELECT threshold FROM runs WHERE id = ?"
KEEP_THRESHOLD = "UPDATE runs SET threshold = ? WHERE id = ?"
WILL_BE_EVALUATED = """
    SELECT EXISTS (SELECT 1 FROM runs AS o WHERE o.evaluates = runs.id AND o.state NOT IN ('failed', 'cancelled'))
        AS is_sure
    FROM runs WHERE id = ?"""
FIND_EVALUATION = "SELECT evaluation FROM runs WHERE id = ?"
ADD_REPLY = """
    INSERT INTO replies (run, round, query, contributors, value)
    VALUES (:run, :round, :query, :contributors, coalesce(:value, zeroblob(:size)))"""
FIND_REPLY = "SELECT query, contributors, value FROM replies WHERE run = ? AND round = ?"
ADD_EVENT = "INSERT INTO events (run, kind, data) VALUES (?, ?, ?)"
EVENTS = "SELECT number, kind, data FROM events WHERE run = ? AND number > ? ORDER BY number"
KEEP_RECEIPT = """
    INSERT INTO receipts (signer, text) VALUES (?, ?) ON CONFLICT (signer) DO UPDATE SET text = excluded.text"""
RECEIPTS = "SELECT signer, text FROM receipts"
MARK_COPIED = "INSERT OR REPLACE INTO copied SELECT signer, text FROM receipts"
ADD_RESTORE = "INSERT INTO restores VALUES (?)"
WAS_RESTORED = "SELECT EXISTS (SELECT 1 FROM restores JOIN runs ON created < at WHERE id = ?) AS was_restored"
COPIED = "SELECT text FROM copied"

OLD_LOGS = """
    SELECT id FROM runs WHERE ended_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)
        AND (EXISTS (SELECT 1 FROM replies WHERE run = id AND length(value) > 0)
            OR EXISTS (SELECT 1 FROM events WHERE run = id AND kind <> 'state'))"""
OLD_RUNS = """  -- an evaluation before the run that it evaluates
    SELECT id FROM runs WHERE ended_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?) ORDER BY rowid DESC"""
FIND_EVALUATIONS = "SELECT id FROM runs WHERE evaluates = ?"
FORGET_LOG = (
    "UPDATE replies SET value = x'' WHERE run = :run",
    "DELETE FROM events WHERE run = :run AND kind <> 'state'",
)
FORGET_RUN = (
    "DELETE FROM openings WHERE run = :run",
    "DELETE FROM rounds WHERE run = :run",
    "DELETE FROM sessions WHERE run = :run",
    "DELETE FROM events WHERE run = :run",
    "DELETE FROM replies WHERE run = :run",
    "DELETE FROM runs WHERE id = :run",
)
NAMED_PUBLIC = """
    SELECT DISTINCT json_extract(spec, '$.public.digest') AS digest FROM runs
    WHERE json_valid(spec) AND json_extract(spec, '$.public.digest') IS NOT NULL"""

BEGIN_SESSION = "INSERT INTO sessions (run, session) VALUES (?, ?) ON CONFLICT (run) DO NOTHING"
DRAFT_ROSTER = "UPDATE sessions SET roster = ?, key_holders = ? WHERE run = ?"
SIGN_ROSTER = "UPDATE sessions SET signatures = ? WHERE run = ?"
FIND_SESSION = "SELECT roster, signatures FROM sessions WHERE run = ? AND roster IS NOT NULL"
FIND_UNENDED = "SELECT session FROM sessions WHERE run = ? AND NOT ended"
END_SESSION = "UPDATE sessions SET ended = 1 WHERE run = ?"
UNENDED_SESSIONS = """
    SELECT id FROM runs JOIN sessions ON run = id
    WHERE state IN ('completed', 'failed', 'cancelled') AND NOT ended ORDER BY created"""
BEGIN_ROUND = "INSERT INTO rounds (run, round, deadline) VALUES (?, ?, ?) ON CONFLICT (run) DO NOTHING"
FIND_ROUND = "SELECT deadline, silent FROM rounds WHERE run = ? AND round = ?"
SET_SILENT = "UPDATE rounds SET silent = ? WHERE run = ?"
FORGET_ROUND = "DELETE FROM rounds WHERE run = ?"
CONTRIBUTIONS = "SELECT party, contribution FROM contributions WHERE run = ? ORDER BY party"
ADD_CONTRIBUTION = "INSERT INTO contributions (run, party, contribution) VALUES (?, ?, ?)"
ADD_OPENING = "INSERT INTO openings (run, round, key_holder, receipt) VALUES (?, ?, ?, ?)"
OPENINGS = """
    SELECT round, contributors, key_holder, receipt FROM openings JOIN replies USING (run, round)
    WHERE run = ? ORDER BY round, key_holder"""
