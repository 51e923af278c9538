-- The journal, the read model that follows from it, idempotency keys and fences.

CREATE TABLE event (
    workload  TEXT NOT NULL,
    run       TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    step      TEXT,
    attempt   INTEGER,
    state     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    data      TEXT NOT NULL,  -- JSON, all beyond ASCII escaped: PostgreSQL's text takes no NUL
    PRIMARY KEY (workload, run, seq)
) STRICT;

CREATE INDEX event_of_step ON event (workload, step) WHERE step IS NOT NULL;
CREATE INDEX event_of_workload ON event (workload, run) WHERE step IS NULL;

CREATE TRIGGER event_is_append_only_update BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;

CREATE TRIGGER event_is_append_only_delete BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;

-- One Temporal run of a workload: its journal has a hole if events < last_seq + 1.
CREATE TABLE run (
    workload    TEXT NOT NULL,
    run         TEXT NOT NULL,
    events      INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    last_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (workload, run)
) STRICT;

CREATE INDEX run_with_gap ON run (workload, run) WHERE events <= last_seq;

CREATE TABLE workload (
    workload       TEXT NOT NULL PRIMARY KEY,
    run            TEXT NOT NULL DEFAULT '',
    name           TEXT NOT NULL DEFAULT '',
    pool           TEXT NOT NULL DEFAULT '',
    queue          TEXT NOT NULL DEFAULT '',
    priority       INTEGER NOT NULL DEFAULT 0,
    labels         TEXT NOT NULL DEFAULT '{}',
    digest         TEXT NOT NULL DEFAULT '',
    document       TEXT,
    submitted_by   TEXT NOT NULL DEFAULT '',
    state          TEXT NOT NULL DEFAULT 'RUNNING',
    reason         TEXT NOT NULL DEFAULT '',
    steps          INTEGER,
    told_ms        INTEGER,  -- as its submission says; NULL until that arrived
    submitted_ms   INTEGER NOT NULL,
    finished_ms    INTEGER,
    cancel_ms      INTEGER,
    cancel_by      TEXT NOT NULL DEFAULT '',
    cancel_reason  TEXT NOT NULL DEFAULT '',
    first_ms       INTEGER NOT NULL,
    updated_ms     INTEGER NOT NULL
) STRICT;

CREATE INDEX workload_by_age ON workload (submitted_ms, workload);
CREATE INDEX workload_by_queue ON workload (queue, submitted_ms, workload);
CREATE INDEX workload_unfinished ON workload (submitted_ms, workload) WHERE finished_ms IS NULL;

CREATE TABLE label (
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    workload  TEXT NOT NULL,
    PRIMARY KEY (key, value, workload)
) STRICT;

CREATE INDEX label_of_workload ON label (workload);

CREATE TABLE step (
    workload    TEXT NOT NULL,
    step        TEXT NOT NULL,
    run         TEXT NOT NULL,
    state       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    PRIMARY KEY (workload, step)
) STRICT;

CREATE TABLE attempt (
    workload             TEXT NOT NULL,
    step                 TEXT NOT NULL,
    attempt              INTEGER NOT NULL,
    fence                INTEGER NOT NULL,
    run                  TEXT NOT NULL,
    node                 TEXT NOT NULL,
    allocation           TEXT NOT NULL,
    resources            TEXT NOT NULL,  -- JSON object
    state                TEXT NOT NULL,
    outcome              TEXT,
    reason               TEXT NOT NULL,
    message              TEXT NOT NULL,
    exit_code            INTEGER,
    signal               INTEGER,
    flags                TEXT NOT NULL,  -- JSON list
    queued_ms            INTEGER,
    granted_ms           INTEGER,
    started_ms           INTEGER,
    ended_ms             INTEGER,
    queue_wait_ms        INTEGER,
    run_ms               INTEGER,
    cpu_user_us          INTEGER,
    cpu_system_us        INTEGER,
    memory_peak_bytes    INTEGER,
    memory_byte_seconds  INTEGER,
    pids_peak            INTEGER,
    io_read_bytes        INTEGER,
    io_write_bytes       INTEGER,
    tokens               INTEGER,
    cost_micro_usd       INTEGER,
    isolation            TEXT,
    log_path             TEXT,
    log_seen_bytes       INTEGER,
    log_kept_bytes       INTEGER,
    output               TEXT,  -- JSON object
    artifacts            TEXT,  -- JSON object
    PRIMARY KEY (workload, step, attempt, fence)
) STRICT;

CREATE INDEX attempt_by_node ON attempt (node, granted_ms);

CREATE TABLE idempotency_key (
    key         TEXT NOT NULL PRIMARY KEY,
    digest      TEXT NOT NULL,
    claimed_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE fence (
    pool   TEXT NOT NULL PRIMARY KEY,
    fence  INTEGER NOT NULL
) STRICT;
