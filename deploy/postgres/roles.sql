-- Roles of Temporal and of Headbay's ledger; run once, when the database cluster is made.
\set ON_ERROR_STOP on
\getenv temporal_password TEMPORAL_DB_PASSWORD
\getenv headbay_password HEADBAY_LEDGER_PASSWORD

-- Temporal's schema tool makes its two databases itself.
CREATE ROLE temporal LOGIN CREATEDB PASSWORD :'temporal_password';
CREATE ROLE headbay LOGIN PASSWORD :'headbay_password';
CREATE DATABASE headbay OWNER headbay;
REVOKE CONNECT ON DATABASE headbay FROM PUBLIC;
