#!/usr/bin/env bash
# Measures our engine with many runs that wait, prints the tables and writes them
# into docs/durable-benchmarks.md.
#
#   ROUNDS=3 RUNS="100000 1000000" SECONDS_EACH=6 RATE=5000 DUE=25000 VARIANTS="delayed retrying sleeping" bash bench/durable/waiting.sh
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-3}

out=../out-waiting.txt
about "$rounds" >"$out"
for i in $(seq "$rounds"); do
	for runs in ${RUNS:-100000 1000000}; do
		for variant in ${VARIANTS:-delayed retrying sleeping}; do
			echo "round $i of $rounds: $runs $variant" >&2
			load >>"$out"
			"$dir/measure" -dir "$dir" -runs "$runs" -variant "$variant" -seconds "${SECONDS_EACH:-6}" \
				-rate "${RATE:-5000}" -n "${DUE:-25000}" waiting >>"$out"
		done
	done
done

if [ -z "${RUNS-}${VARIANTS-}" ]; then
	go run ./cmd/report -section waiting -page ../../docs/durable-benchmarks.md <"$out"
else
	go run ./cmd/report -section waiting <"$out"
fi
