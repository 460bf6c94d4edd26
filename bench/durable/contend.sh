#!/usr/bin/env bash
# Measures writers that collide, on a PostgreSQL, a SQLite and a NATS server of our own.
#
#   COUNT=3 bash bench/durable/contend.sh
set -euo pipefail
. "$(dirname "$0")/common.sh"
trap 'bash install.sh stop "$dir"; rm -rf "$dir"' EXIT
bash install.sh start "$dir"
. "$dir/env"
go test -run '^$' -bench Writers -benchtime 2x -count "${COUNT:-3}" -timeout 1h .
