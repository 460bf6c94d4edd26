#!/usr/bin/env bash
# stress.sh N: runs `make test` N times while busy loops, two for each core, take the
# processor away, and lists every test that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-1}
timeout=${STRESS_TIMEOUT:-60m}
log=$(mktemp)
loops=()
stop() {
	[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
	rm -f "$log"
}
trap stop EXIT

for _ in $(seq $((2 * $(getconf _NPROCESSORS_ONLN)))); do
	while :; do :; done &
	loops+=($!)
done

failed=0
for round in $(seq "$rounds"); do
	began=$SECONDS
	if make test TESTFLAGS="-count=1 -timeout=$timeout ${TESTFLAGS-}" >"$log" 2>&1; then
		echo "round $round of $rounds: passed in $((SECONDS - began)) s"
		continue
	fi
	failed=$((failed + 1))
	echo "round $round of $rounds: failed after $((SECONDS - began)) s"
	grep -E '^\s*--- FAIL|^FAIL\s|^panic: |^WARNING: DATA RACE' "$log" | sed 's/^/    /'
	cp "$log" "stress-$round.out"
done
echo "$((rounds - failed)) of $rounds rounds passed"
[ "$failed" -eq 0 ]
