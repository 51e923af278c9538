-- name: claim_key
INSERT INTO idempotency_key (key, digest, claimed_ms)
VALUES (:key, :digest, :claimed_ms)
ON CONFLICT (key) DO NOTHING

-- name: claimed_key
SELECT key, digest, claimed_ms FROM idempotency_key WHERE key = :key

-- name: raise_fence
INSERT INTO fence (pool, fence)
VALUES (:pool, :fence)
ON CONFLICT (pool) DO UPDATE SET fence = max(fence, excluded.fence)

-- name: fence
SELECT fence FROM fence WHERE pool = :pool
