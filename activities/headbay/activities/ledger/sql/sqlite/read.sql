-- name: missing_ranges
SELECT workload, run, previous + 1 AS first, seq - 1 AS last
FROM (
    SELECT
        event.workload,
        event.run,
        event.seq,
        lag(event.seq, 1, -1) OVER (
            PARTITION BY event.workload, event.run ORDER BY event.seq
        ) AS previous
    -- From the few runs with holes to their events, never through the whole journal.
    FROM run INDEXED BY run_with_gap
    CROSS JOIN event ON event.workload = run.workload AND event.run = run.run
    WHERE run.events <= run.last_seq
)
WHERE seq > previous + 1
ORDER BY workload, run, first

-- name: has_end
SELECT 1 FROM event
WHERE workload = :workload AND run = :run AND step IS NULL AND kind = 'WorkloadFinished'
LIMIT 1

-- name: unfinished
SELECT workload, run, name, pool, queue, priority, labels, digest, submitted_by, state, reason,
    steps, submitted_ms, finished_ms, cancel_ms, cancel_by, cancel_reason, updated_ms
FROM workload
WHERE finished_ms IS NULL
ORDER BY submitted_ms, workload

-- name: workload
SELECT workload, run, name, pool, queue, priority, labels, digest, document, submitted_by, state,
    reason, steps, submitted_ms, finished_ms, cancel_ms, cancel_by, cancel_reason, updated_ms
FROM workload
WHERE workload = :workload

-- name: list_workloads
SELECT workload, run, name, pool, queue, priority, labels, digest, submitted_by, state, reason,
    steps, submitted_ms, finished_ms, cancel_ms, cancel_by, cancel_reason, updated_ms
FROM workload AS w
WHERE (:page_ms IS NULL OR (submitted_ms, workload) < (:page_ms, :page_workload))
    AND (:pool IS NULL OR pool = :pool)
    AND (:queue IS NULL OR queue = :queue)
    AND (:name IS NULL OR name = :name)
    AND (:since_ms IS NULL OR submitted_ms >= :since_ms)
    AND (:before_ms IS NULL OR submitted_ms < :before_ms)
    AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND (
        SELECT count(*)
        FROM json_each(:labels) AS wanted
        JOIN label ON label.key = wanted.key AND label.value = wanted.value
        WHERE label.workload = w.workload
    ) = :label_count
ORDER BY submitted_ms DESC, workload DESC
LIMIT :limit

-- name: steps
SELECT workload, step, run, state, reason, attempts, updated_ms
FROM step
WHERE workload = :workload
ORDER BY step

-- name: attempts
SELECT attempt.*, workload.pool, workload.queue, workload.labels
FROM attempt
JOIN workload ON workload.workload = attempt.workload
WHERE attempt.workload = :workload
ORDER BY attempt.step, attempt.attempt, attempt.fence

-- name: events
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM event
WHERE workload = :workload
    AND (:at_ms IS NULL OR (at_ms, run, seq) > (:at_ms, :run, :seq))
ORDER BY at_ms, run, seq
LIMIT coalesce(:limit, -1)

-- name: final_status
SELECT event.data
FROM workload
JOIN event ON event.workload = workload.workload AND event.run = workload.run
WHERE workload.workload = :workload
    AND workload.finished_ms IS NOT NULL
    AND event.step IS NULL
    AND event.kind = 'WorkloadFinished'
ORDER BY event.seq DESC
LIMIT 1

-- name: ping
SELECT 1
