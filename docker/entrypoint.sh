#!/bin/sh
# Starts the server of a container: the environment becomes flags, further arguments are passed on.
#
#   OMNIGRAPH_CLUSTER              the cluster to serve, a directory or a storage URI
#   OMNIGRAPH_STORE                or one graph, without a cluster
#   OMNIGRAPH_BIND                 where to listen, 0.0.0.0:8080 unless it says otherwise
#   OMNIGRAPH_REQUIRE_ALL_GRAPHS   on unless it is empty, 0 or false: do not start without every graph
#
# OMNIGRAPH_UNAUTHENTICATED, OMNIGRAPH_INSECURE_PUBLIC and OMNIGRAPH_WATCH are read by the server itself.
set -eu

case "$(printf %s "${OMNIGRAPH_REQUIRE_ALL_GRAPHS:-}" | tr '[:upper:]' '[:lower:]')" in
    '' | 0 | false) ;;
    *) set -- --require-all-graphs "$@" ;;
esac

set -- --bind "${OMNIGRAPH_BIND:-0.0.0.0:8080}" "$@"

if [ -n "${OMNIGRAPH_CLUSTER:-}" ]; then
    set -- --cluster "$OMNIGRAPH_CLUSTER" "$@"
elif [ -n "${OMNIGRAPH_STORE:-}" ]; then
    set -- --store "$OMNIGRAPH_STORE" "$@"
else
    echo "Error: no cluster is configured; set OMNIGRAPH_CLUSTER to a directory or a storage URI" >&2
    exit 64
fi

# In the place of the shell, so that a signal to the container reaches the server.
exec "${OMNIGRAPH_SERVER:-omnigraph-server}" "$@"
