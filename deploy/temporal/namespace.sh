#!/bin/sh
# Makes the namespace unless it exists. Address and namespace: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE.
set -eu

# A server that does not answer fails here, and this container is started again.
temporal operator cluster health
if temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    echo "namespace $TEMPORAL_NAMESPACE exists"
else
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
fi
