#!/usr/bin/env bash
# The statement coverage of each package by all tests together, also of the commands that they start. With a file from an
# earlier run as the argument, it lists the packages that have lost more than one point since. PACKAGES: what to test. A
# few tests fail, because a command without the variable GOCOVERDIR says so, and one would wait for ever; what the others
# execute counts.
set -euo pipefail
cd "$(dirname "$0")/.."
before=${1:+$(realpath "$1")}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/data"
export CGO_ENABLED=0 GOGC=400 GOCOVERDIR=$dir/data TIDEOVER_TEST_COMMAND=$dir/tideover
ours=github.com/tideover/tideover/...
go build -cover -coverpkg=$ours -o "$TIDEOVER_TEST_COMMAND" ./cmd/tideover
# shellcheck disable=SC2086 # a list
go test -vet=off -timeout 30m -skip TestCommandsAsSteps -p 3 -parallel 4 -cover -coverpkg=$ours $PACKAGES -args -test.gocoverdir="$dir/data" >"$dir/log" || grep -E '^(\s*--- )?FAIL' "$dir/log" >&2
go tool covdata percent -i="$dir/data" | awk '{ sub("%", "", $3); print $1, $3 }' | sort >"$dir/now"
if [ -z "$before" ]; then
	cat "$dir/now"
	exit
fi
join "$before" "$dir/now" | awk '{ if ($2 - $3 > 1) { print; lost = 1 } } END { exit lost }'
