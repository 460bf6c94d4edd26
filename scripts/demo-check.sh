#!/usr/bin/env bash
# Runs the README's `make run`, waits until there are a page, a run that waits for its
# next attempt and one that succeeded, and ends it as Ctrl-C would.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp)
jar=$(mktemp)
trap 'rm -f "$out" "$jar"' EXIT

setsid make run >"$out" 2>&1 &
demo=$!
page=
for _ in $(seq 600); do
	page=$(sed -n 's/.*the page is at //p' "$out")
	[ -n "$page" ] && break
	kill -0 "$demo" 2>/dev/null || break
	sleep 0.2
done
if [ -z "$page" ]; then
	echo "make run announced no page:"
	cat "$out"
	exit 1
fi
ok=
for _ in $(seq 200); do
	runs=$(curl -fsS -H "Authorization: Bearer ${page##*token=}" "${page%%/\?*}/api/v1/runs")
	if grep -q '"state":"waiting"' <<<"$runs" && grep -q '"state":"succeeded"' <<<"$runs"; then
		ok=yes
		break
	fi
	sleep 0.2
done
html=$(curl -fsSL -c "$jar" -b "$jar" "$page")
grep -q '</html>' <<<"$html" || ok=
kill -INT -- "-$demo"
wait "$demo" || true
if [ -z "$ok" ]; then
	echo "the page of the demo does not move:"
	echo "$runs"
	exit 1
fi
echo "make run: the page moves"
