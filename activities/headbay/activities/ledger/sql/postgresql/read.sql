-- name: missing_ranges
SELECT workload, run, previous + 1 AS first, seq - 1 AS last
FROM (
    SELECT
        event.workload,
        event.run,
        event.seq,
        lag(event.seq, 1, -1::bigint) OVER (
            PARTITION BY event.workload, event.run ORDER BY event.seq
        ) AS previous
    FROM run
    JOIN event ON event.workload = run.workload AND event.run = run.run
    WHERE run.events <= run.last_seq
) AS sequence
WHERE seq > previous + 1
ORDER BY workload, run, first

-- name: has_end
SELECT 1 FROM event
WHERE workload = %(workload)s::text
    AND run = %(run)s::text
    AND step IS NULL
    AND kind = 'WorkloadFinished'
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
WHERE workload = %(workload)s::text

-- name: list_workloads
SELECT workload, run, name, pool, queue, priority, labels, digest, submitted_by, state, reason,
    steps, submitted_ms, finished_ms, cancel_ms, cancel_by, cancel_reason, updated_ms
FROM workload AS w
WHERE (
        %(page_ms)s::bigint IS NULL
        OR (submitted_ms, workload) < (%(page_ms)s::bigint, %(page_workload)s::text)
    )
    AND (%(pool)s::text IS NULL OR pool = %(pool)s::text)
    AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
    AND (%(name)s::text IS NULL OR name = %(name)s::text)
    AND (%(since_ms)s::bigint IS NULL OR submitted_ms >= %(since_ms)s::bigint)
    AND (%(before_ms)s::bigint IS NULL OR submitted_ms < %(before_ms)s::bigint)
    AND (%(states)s::text = '[]' OR state IN (SELECT json_array_elements_text(%(states)s::json)))
    AND (
        SELECT count(*)
        FROM json_each_text(%(labels)s::json) AS wanted
        JOIN label ON label.key = wanted.key AND label.value = wanted.value
        WHERE label.workload = w.workload
    ) = %(label_count)s::bigint
ORDER BY submitted_ms DESC, workload DESC
LIMIT %(limit)s::bigint

-- name: steps
SELECT workload, step, run, state, reason, attempts, updated_ms
FROM step
WHERE workload = %(workload)s::text
ORDER BY step

-- name: attempts
SELECT attempt.*, workload.pool, workload.queue, workload.labels
FROM attempt
JOIN workload ON workload.workload = attempt.workload
WHERE attempt.workload = %(workload)s::text
ORDER BY attempt.step, attempt.attempt, attempt.fence

-- name: events
SELECT workload, run, seq, at_ms, kind, step, attempt, state, reason, data
FROM event
WHERE workload = %(workload)s::text
    AND (
        %(at_ms)s::bigint IS NULL
        OR (at_ms, run, seq) > (%(at_ms)s::bigint, %(run)s::text, %(seq)s::bigint)
    )
ORDER BY at_ms, run, seq
LIMIT %(limit)s::bigint

-- name: final_status
SELECT event.data
FROM workload
JOIN event ON event.workload = workload.workload AND event.run = workload.run
WHERE workload.workload = %(workload)s::text
    AND workload.finished_ms IS NOT NULL
    AND event.step IS NULL
    AND event.kind = 'WorkloadFinished'
ORDER BY event.seq DESC
LIMIT 1

-- name: ping
SELECT 1
