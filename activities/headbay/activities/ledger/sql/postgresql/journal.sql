-- name: touch_workloads
INSERT INTO workload (workload, submitted_ms, first_ms, updated_ms)
SELECT workload, first_ms, first_ms, updated_ms
FROM json_to_recordset(%(rows)s::json)
    AS row (workload text, first_ms bigint, updated_ms bigint)
ON CONFLICT (workload) DO UPDATE SET
    submitted_ms = coalesce(workload.told_ms, least(workload.first_ms, excluded.first_ms)),
    first_ms = least(workload.first_ms, excluded.first_ms),
    updated_ms = greatest(workload.updated_ms, excluded.updated_ms)
RETURNING workload, finished_ms

-- name: insert_events
INSERT INTO event (workload, run, seq, at_ms, kind, step, attempt, state, reason, data)
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM json_populate_recordset(NULL::event, %(rows)s::json)
ON CONFLICT (workload, run, seq) DO NOTHING
RETURNING workload, run, seq

-- name: touch_runs
INSERT INTO run (workload, run, events, last_seq, last_at_ms)
SELECT workload, run, events, last_seq, last_at_ms
FROM json_populate_recordset(NULL::run, %(rows)s::json)
ON CONFLICT (workload, run) DO UPDATE SET
    events = run.events + excluded.events,
    last_seq = greatest(run.last_seq, excluded.last_seq),
    last_at_ms = greatest(run.last_at_ms, excluded.last_at_ms)

-- name: events_of_steps
SELECT
    event.workload, event.run, event.seq, event.at_ms, event.kind, event.step, event.attempt,
    event.state, event.reason, event.data
FROM json_to_recordset(%(rows)s::json) AS key (workload text, step text)
JOIN event ON event.workload = key.workload AND event.step = key.step

-- name: events_of_workloads
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM event
WHERE workload = ANY(%(workloads)s::text[]) AND step IS NULL

-- name: runs_of_workloads
SELECT workload, run, last_at_ms FROM run WHERE workload = ANY(%(workloads)s::text[])

-- name: save_workloads
UPDATE workload SET
    run = row.run, name = row.name, pool = row.pool, queue = row.queue, priority = row.priority,
    labels = row.labels, digest = row.digest, document = row.document,
    submitted_by = row.submitted_by, state = row.state, reason = row.reason, steps = row.steps,
    told_ms = row.told_ms, submitted_ms = coalesce(row.told_ms, workload.first_ms),
    finished_ms = row.finished_ms, cancel_ms = row.cancel_ms, cancel_by = row.cancel_by,
    cancel_reason = row.cancel_reason
FROM json_populate_recordset(NULL::workload, %(rows)s::json) AS row
WHERE workload.workload = row.workload

-- name: delete_labels
DELETE FROM label WHERE workload = ANY(%(workloads)s::text[])

-- name: insert_labels
INSERT INTO label (workload, key, value)
SELECT workload, key, value FROM json_populate_recordset(NULL::label, %(rows)s::json)

-- name: save_steps
INSERT INTO step (workload, step, run, state, reason, attempts, updated_ms)
SELECT workload, step, run, state, reason, attempts, updated_ms
FROM json_populate_recordset(NULL::step, %(rows)s::json)
ON CONFLICT (workload, step) DO UPDATE SET
    run = excluded.run, state = excluded.state, reason = excluded.reason,
    attempts = excluded.attempts, updated_ms = excluded.updated_ms

-- name: delete_attempts
DELETE FROM attempt
USING json_to_recordset(%(rows)s::json) AS key (workload text, step text)
WHERE attempt.workload = key.workload AND attempt.step = key.step

-- name: insert_attempts
INSERT INTO attempt
SELECT * FROM json_populate_recordset(NULL::attempt, %(rows)s::json)
