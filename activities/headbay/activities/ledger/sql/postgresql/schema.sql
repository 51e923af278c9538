-- name: lock_migrations
SELECT pg_advisory_xact_lock(hashtext('headbay_migration'))

-- name: create_migration_table
CREATE TABLE IF NOT EXISTS headbay_migration (
    number      BIGINT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    applied_ms  BIGINT NOT NULL
)

-- name: has_migration_table
SELECT to_regclass('headbay_migration') IS NOT NULL AS found

-- name: applied_migrations
SELECT number, checksum FROM headbay_migration

-- name: record_migration
INSERT INTO headbay_migration (number, name, checksum, applied_ms)
VALUES (%(number)s, %(name)s, %(checksum)s, %(applied_ms)s)

-- name: configure
SELECT
    set_config('statement_timeout', '10s', false),
    set_config('idle_in_transaction_session_timeout', '30s', false),
    set_config(
        'synchronous_commit',
        CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on'
            ELSE current_setting('synchronous_commit')
        END,
        false
    )
