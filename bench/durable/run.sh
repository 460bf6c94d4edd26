#!/usr/bin/env bash
# Measures our engine beside River and Asynq in interleaved rounds, prints the
# tables and writes them into docs/durable-benchmarks.md.
#
#   ROUNDS=5 SECONDS_EACH=6 RATE=5000 DUE=25000 bash bench/durable/run.sh
#
# Before the rounds each system is measured once to warm up and to find out how
# many tasks it takes to fill SECONDS_EACH. SYSTEMS="tideover asynq" measures
# some, prints, and writes nothing.
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-6} rate=${RATE:-5000} due=${DUE:-25000}
all="tideover tideover-flow river river-tuned asynq"
systems=${SYSTEMS:-$all}
trap 'bash install.sh stop "$dir"; rm -rf "$dir"' EXIT
bash install.sh start "$dir"
. "$dir/env"

measure() {
	"$dir/measure" -dir "$dir" -system "$1" -postgres-pid "$POSTGRES_PID" -redis-pid "$REDIS_PID" "${@:2}"
}

out=../out-durable.txt
{
	about "$rounds"
	go list -m -f '{{if not (or .Indirect .Main .Replace)}}module: {{.Path}} {{.Version}}{{end}}' all | grep -E 'river |asynq|pgx'
	echo "module: $POSTGRES_VERSION"
	echo "module: $REDIS_VERSION"
} >"$out"

declare -A n
for s in $systems; do
	warm=$(measure "$s" -n "${WARM:-10000}" throughput)
	per_second=$(sed -E 's/.*"tasks\/s":([0-9]+).*/\1/' <<<"$warm")
	n[$s]=$((per_second * seconds * 5 / 4))
	echo "warm-up: $s, $per_second tasks/s, so ${n[$s]} tasks a round" >&2
done
for i in $(seq "$rounds"); do
	echo "round $i of $rounds" >&2
	load >>"$out"
	for s in $systems; do measure "$s" -n "${n[$s]}" throughput >>"$out"; done
	for s in $systems; do measure "$s" -n "$due" -rate "$rate" lateness >>"$out"; done
done

if [ "$systems" = "$all" ]; then
	go run ./cmd/report -section durable -page ../../docs/durable-benchmarks.md <"$out"
else
	go run ./cmd/report -section durable <"$out"
fi
