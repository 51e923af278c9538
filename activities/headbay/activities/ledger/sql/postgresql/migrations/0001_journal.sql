-- The journal, the read model that follows from it, idempotency keys and fences.

CREATE TABLE event (
    workload  TEXT COLLATE "C" NOT NULL,
    run       TEXT COLLATE "C" NOT NULL,
    seq       BIGINT NOT NULL,
    at_ms     BIGINT NOT NULL,
    kind      TEXT COLLATE "C" NOT NULL,
    step      TEXT COLLATE "C",
    attempt   BIGINT,
    state     TEXT COLLATE "C" NOT NULL,
    reason    TEXT COLLATE "C" NOT NULL,
    data      TEXT COLLATE "C" NOT NULL,  -- JSON, all beyond ASCII escaped: PostgreSQL's text takes no NUL
    PRIMARY KEY (workload, run, seq)
);

CREATE INDEX event_of_step ON event (workload, step) WHERE step IS NOT NULL;
CREATE INDEX event_of_workload ON event (workload, run) WHERE step IS NULL;

CREATE FUNCTION refuse_change_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal is append-only';
END
$$;

CREATE TRIGGER event_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_event();

-- One Temporal run of a workload: its journal has a hole if events < last_seq + 1.
CREATE TABLE run (
    workload    TEXT COLLATE "C" NOT NULL,
    run         TEXT COLLATE "C" NOT NULL,
    events      BIGINT NOT NULL,
    last_seq    BIGINT NOT NULL,
    last_at_ms  BIGINT NOT NULL,
    PRIMARY KEY (workload, run)
);

CREATE INDEX run_with_gap ON run (workload, run) WHERE events <= last_seq;

CREATE TABLE workload (
    workload       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    run            TEXT COLLATE "C" NOT NULL DEFAULT '',
    name           TEXT COLLATE "C" NOT NULL DEFAULT '',
    pool           TEXT COLLATE "C" NOT NULL DEFAULT '',
    queue          TEXT COLLATE "C" NOT NULL DEFAULT '',
    priority       BIGINT NOT NULL DEFAULT 0,
    labels         TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    digest         TEXT COLLATE "C" NOT NULL DEFAULT '',
    document       TEXT COLLATE "C",
    submitted_by   TEXT COLLATE "C" NOT NULL DEFAULT '',
    state          TEXT COLLATE "C" NOT NULL DEFAULT 'RUNNING',
    reason         TEXT COLLATE "C" NOT NULL DEFAULT '',
    steps          BIGINT,
    told_ms        BIGINT,  -- as its submission says; NULL until that arrived
    submitted_ms   BIGINT NOT NULL,
    finished_ms    BIGINT,
    cancel_ms      BIGINT,
    cancel_by      TEXT COLLATE "C" NOT NULL DEFAULT '',
    cancel_reason  TEXT COLLATE "C" NOT NULL DEFAULT '',
    first_ms       BIGINT NOT NULL,
    updated_ms     BIGINT NOT NULL
);

CREATE INDEX workload_by_age ON workload (submitted_ms, workload);
CREATE INDEX workload_by_queue ON workload (queue, submitted_ms, workload);
CREATE INDEX workload_unfinished ON workload (submitted_ms, workload) WHERE finished_ms IS NULL;

CREATE TABLE label (
    key       TEXT COLLATE "C" NOT NULL,
    value     TEXT COLLATE "C" NOT NULL,
    workload  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (key, value, workload)
);

CREATE INDEX label_of_workload ON label (workload);

CREATE TABLE step (
    workload    TEXT COLLATE "C" NOT NULL,
    step        TEXT COLLATE "C" NOT NULL,
    run         TEXT COLLATE "C" NOT NULL,
    state       TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    attempts    BIGINT NOT NULL,
    updated_ms  BIGINT NOT NULL,
    PRIMARY KEY (workload, step)
);

CREATE TABLE attempt (
    workload             TEXT COLLATE "C" NOT NULL,
    step                 TEXT COLLATE "C" NOT NULL,
    attempt              BIGINT NOT NULL,
    fence                BIGINT NOT NULL,
    run                  TEXT COLLATE "C" NOT NULL,
    node                 TEXT COLLATE "C" NOT NULL,
    allocation           TEXT COLLATE "C" NOT NULL,
    resources            TEXT COLLATE "C" NOT NULL,  -- JSON object
    state                TEXT COLLATE "C" NOT NULL,
    outcome              TEXT COLLATE "C",
    reason               TEXT COLLATE "C" NOT NULL,
    message              TEXT COLLATE "C" NOT NULL,
    exit_code            BIGINT,
    signal               BIGINT,
    flags                TEXT COLLATE "C" NOT NULL,  -- JSON list
    queued_ms            BIGINT,
    granted_ms           BIGINT,
    started_ms           BIGINT,
    ended_ms             BIGINT,
    queue_wait_ms        BIGINT,
    run_ms               BIGINT,
    cpu_user_us          BIGINT,
    cpu_system_us        BIGINT,
    memory_peak_bytes    BIGINT,
    memory_byte_seconds  BIGINT,
    pids_peak            BIGINT,
    io_read_bytes        BIGINT,
    io_write_bytes       BIGINT,
    tokens               BIGINT,
    cost_micro_usd       BIGINT,
    isolation            TEXT COLLATE "C",
    log_path             TEXT COLLATE "C",
    log_seen_bytes       BIGINT,
    log_kept_bytes       BIGINT,
    output               TEXT COLLATE "C",  -- JSON object
    artifacts            TEXT COLLATE "C",  -- JSON object
    PRIMARY KEY (workload, step, attempt, fence)
);

CREATE INDEX attempt_by_node ON attempt (node, granted_ms);

CREATE TABLE idempotency_key (
    key         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    digest      TEXT COLLATE "C" NOT NULL,
    claimed_ms  BIGINT NOT NULL
);

CREATE TABLE fence (
    pool   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    fence  BIGINT NOT NULL
);
