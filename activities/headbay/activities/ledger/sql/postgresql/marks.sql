-- name: claim_key
INSERT INTO idempotency_key (key, digest, claimed_ms)
VALUES (%(key)s, %(digest)s, %(claimed_ms)s)
ON CONFLICT (key) DO NOTHING

-- name: claimed_key
SELECT key, digest, claimed_ms FROM idempotency_key WHERE key = %(key)s

-- name: raise_fence
INSERT INTO fence (pool, fence)
VALUES (%(pool)s, %(fence)s)
ON CONFLICT (pool) DO UPDATE SET fence = greatest(fence.fence, excluded.fence)

-- name: fence
SELECT fence FROM fence WHERE pool = %(pool)s
