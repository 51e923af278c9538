-- name: create_migration_table
CREATE TABLE IF NOT EXISTS headbay_migration (
    number      INTEGER NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    applied_ms  INTEGER NOT NULL
) STRICT

-- name: has_migration_table
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'headbay_migration'

-- name: applied_migrations
SELECT number, checksum FROM headbay_migration

-- name: record_migration
INSERT INTO headbay_migration (number, name, checksum, applied_ms)
VALUES (:number, :name, :checksum, :applied_ms)
