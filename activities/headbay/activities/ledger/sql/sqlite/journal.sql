-- name: touch_workload
INSERT INTO workload (workload, submitted_ms, first_ms, updated_ms)
VALUES (:workload, :first_ms, :first_ms, :updated_ms)
ON CONFLICT (workload) DO UPDATE SET
    submitted_ms = coalesce(told_ms, min(first_ms, excluded.first_ms)),
    first_ms = min(first_ms, excluded.first_ms),
    updated_ms = max(updated_ms, excluded.updated_ms)

-- name: insert_event
INSERT INTO event (workload, run, seq, at_ms, kind, step, attempt, state, reason, data)
VALUES (:workload, :run, :seq, :at_ms, :kind, :step, :attempt, :state, :reason, :data)
ON CONFLICT (workload, run, seq) DO NOTHING

-- name: touch_run
INSERT INTO run (workload, run, events, last_seq, last_at_ms)
VALUES (:workload, :run, :events, :last_seq, :last_at_ms)
ON CONFLICT (workload, run) DO UPDATE SET
    events = events + excluded.events,
    last_seq = max(last_seq, excluded.last_seq),
    last_at_ms = max(last_at_ms, excluded.last_at_ms)

-- name: finished_workload
SELECT workload FROM workload WHERE workload = :workload AND finished_ms IS NOT NULL

-- name: events_of_step
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM event
WHERE workload = :workload AND step = :step

-- name: events_of_workload
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM event
WHERE workload = :workload AND step IS NULL

-- name: runs_of_workload
SELECT workload, run, last_at_ms FROM run WHERE workload = :workload

-- name: save_workload
UPDATE workload SET
    run = :run, name = :name, pool = :pool, queue = :queue, priority = :priority,
    labels = :labels, digest = :digest, document = :document, submitted_by = :submitted_by,
    state = :state, reason = :reason, steps = :steps,
    told_ms = :told_ms, submitted_ms = coalesce(:told_ms, first_ms), finished_ms = :finished_ms,
    cancel_ms = :cancel_ms, cancel_by = :cancel_by, cancel_reason = :cancel_reason
WHERE workload = :workload

-- name: delete_labels
DELETE FROM label WHERE workload = :workload

-- name: insert_label
INSERT INTO label (workload, key, value) VALUES (:workload, :key, :value)

-- name: save_step
INSERT INTO step (workload, step, run, state, reason, attempts, updated_ms)
VALUES (:workload, :step, :run, :state, :reason, :attempts, :updated_ms)
ON CONFLICT (workload, step) DO UPDATE SET
    run = excluded.run, state = excluded.state, reason = excluded.reason,
    attempts = excluded.attempts, updated_ms = excluded.updated_ms

-- name: delete_attempts
DELETE FROM attempt WHERE workload = :workload AND step = :step

-- name: insert_attempt
INSERT INTO attempt (
    workload, step, attempt, fence, run, node, allocation, resources, state, outcome, reason,
    message, exit_code, signal, flags, queued_ms, granted_ms, started_ms, ended_ms, queue_wait_ms,
    run_ms, cpu_user_us, cpu_system_us, memory_peak_bytes, memory_byte_seconds, pids_peak,
    io_read_bytes, io_write_bytes, tokens, cost_micro_usd, isolation, log_path, log_seen_bytes,
    log_kept_bytes, output, artifacts
) VALUES (
    :workload, :step, :attempt, :fence, :run, :node, :allocation, :resources, :state, :outcome,
    :reason, :message, :exit_code, :signal, :flags, :queued_ms, :granted_ms, :started_ms,
    :ended_ms, :queue_wait_ms, :run_ms, :cpu_user_us, :cpu_system_us, :memory_peak_bytes,
    :memory_byte_seconds, :pids_peak, :io_read_bytes, :io_write_bytes, :tokens, :cost_micro_usd,
    :isolation, :log_path, :log_seen_bytes, :log_kept_bytes, :output, :artifacts
)
