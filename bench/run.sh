#!/usr/bin/env bash
# Measures all peers in interleaved rounds, prints the ratios and writes them
# into docs/benchmarks.md.
#
#   ROUNDS=6 BENCHTIME=200ms BENCH=. bash bench/run.sh
#
# A run of part of the benchmarks (BENCH) prints, and writes nothing.
set -euo pipefail
cd "$(dirname "$0")"
export GOWORK=off # the versions of our go.mod, not those of the workspace

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/bench.test" .

out=out.txt
{
	echo "date: $(date -u +%F)"
	go list -m -f '{{if not (or .Indirect .Main .Replace)}}module: {{.Path}} {{.Version}}{{end}}' all | grep .
} >"$out"
for i in $(seq "${ROUNDS:-6}"); do
	echo "round $i of ${ROUNDS:-6}" >&2
	"$dir/bench.test" -test.run '^$' -test.bench "${BENCH:-.}" -test.benchtime "${BENCHTIME:-200ms}" -test.cpu 2 >>"$out"
done

if [ "${BENCH:-.}" = . ]; then
	go run ./cmd/report -page ../docs/benchmarks.md <"$out"
else
	go run ./cmd/report <"$out"
fi
