#!/usr/bin/env bash
# Runs the README's `make run` and looks, through the API, whether everything that the
# demo shows moves: runs, a provider that fails over, a session that waits and resumes,
# writers that collide, dead letters, a schedule, messages. Then it ends the demo as
# Ctrl-C would, and looks whether something is left.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
demo=
stop() { # with what is left of it
	[ -z "$demo" ] || kill -KILL -- "-$demo" 2>/dev/null || true
	rm -rf "$work"
}
trap stop EXIT
mkdir "$work/tmp"

TMPDIR=$work/tmp setsid make run >"$work/out" 2>&1 &
demo=$!

fail() {
	echo "$1"
	[ -z "${2-}" ] || echo "$2"
	tail -n 50 "$work/out"
	exit 1
}

page=
for _ in $(seq 600); do
	page=$(sed -n 's/.*the page is at //p' "$work/out")
	[ -n "$page" ] && break
	kill -0 "$demo" 2>/dev/null || break
	sleep 0.2
done
[ -n "$page" ] || fail "make run announced no page:"

answer=
ask() { # PATH: the answer of the API; what is not there yet is no error
	answer=$(curl -fsS --max-time 10 -H "Authorization: Bearer ${page##*token=}" "${page%%/\?*}/api/v1/$1" 2>&1) || true
}

await() { # WHAT CHECK: polls until the check holds
	for _ in $(seq 300); do
		if "$2"; then
			echo "demo: $1"
			return
		fi
		sleep 0.2
	done
	fail "the demo does not show this: $1; the API says" "$answer"
}

has() { grep -Eq "$1" <<<"$answer"; }

runs_move() {
	ask runs
	has '"state":"waiting"' && has '"state":"succeeded"'
}
fails_over() {
	ask providers/model
	has '"failovers":[1-9]' && has '"succeeded":[1-9]'
}
session_waits() {
	ask sessions/demo-assistant
	has '"windows":[1-9]'
}
session_resumes() {
	ask sessions/demo-assistant
	has '"resumes":[1-9]'
}
writers_commit() {
	ask 'runs?workflow=contention&state=succeeded&limit=1'
	local id
	id=$(sed -nE 's/.*"id":"([^"]+)".*/\1/p' <<<"$answer")
	[ -n "$id" ] || return 1
	ask "runs/$id/result"
	has '"committed":5' && has '"conflicts":[1-9]'
}
dead_letters() {
	ask dead
	[ "$(grep -o '"pattern":' <<<"$answer" | wc -l)" -ge 2 ]
}
schedule_starts() {
	ask 'runs?workflow=buoy-check'
	has '"workflow":"buoy-check"'
}
message_sent() {
	ask 'runs?workflow=notify.bell&state=succeeded&internal=1'
	has '"workflow":"notify.bell"'
}

await "runs wait and succeed" runs_move
await "a schedule starts runs" schedule_starts
await "writers collide, and all commit" writers_commit
await "a provider fails over" fails_over
await "a session waits for its limit" session_waits
await "somebody is told" message_sent
await "the session resumes" session_resumes
await "dead letters of two kinds" dead_letters

html=$(curl -fsSL -c "$work/jar" -b "$work/jar" "$page")
grep -q '</html>' <<<"$html" || fail "the page is not whole:" "$html"
kill -INT -- "-$demo"
wait "$demo" || true
demo=
left=$(find "$work/tmp" -maxdepth 1 -name 'tideover-demo-*')
[ -z "$left" ] || fail "the demo left something behind:" "$left"
echo "make run: everything moves, and nothing is left"
