#!/usr/bin/env bash
# Doubles every delay of the library, in a copy that only this build sees, and
# runs the simulator's anchors: if at least three fail, it is the library's code
# that the simulator runs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
file=$PWD/backoff/schedule.go
sed 's/return pick(lo, hi, u)$/return 2 * pick(lo, hi, u)/' "$file" >"$work/schedule.go"
if cmp -s "$file" "$work/schedule.go"; then
	echo "there was nothing to change in $file" >&2
	exit 1
fi
printf '{"Replace": {"%s": "%s"}}' "$file" "$work/schedule.go" >"$work/overlay.json"
go test -overlay "$work/overlay.json" ./sim -run '^TestAnchor' >"$work/out" 2>&1 || true
failed=$(grep -c '^--- FAIL: TestAnchor' "$work/out" || true)
grep '^--- FAIL' "$work/out" || true
echo "$failed anchors fail when delays are doubled"
[ "$failed" -ge 3 ]
