#!/bin/sh
# Makes Temporal's two databases and brings their schemas to this version; idempotent.
# Address, user and password come from SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD.
set -eu

schema() {
    database=$1
    folder=/etc/temporal/schema/postgresql/v12/$2/versioned
    temporal-sql-tool --plugin postgres12 --endpoint "$SQL_HOST" --port "$SQL_PORT" \
        --user "$SQL_USER" --database "$database" create
    temporal-sql-tool --plugin postgres12 --endpoint "$SQL_HOST" --port "$SQL_PORT" \
        --user "$SQL_USER" --database "$database" setup-schema -v 0.0
    temporal-sql-tool --plugin postgres12 --endpoint "$SQL_HOST" --port "$SQL_PORT" \
        --user "$SQL_USER" --database "$database" update-schema -d "$folder"
}

schema temporal temporal
schema temporal_visibility visibility
