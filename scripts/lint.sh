#!/usr/bin/env bash
# Runs the pinned linter over every module. Installing it takes minutes, so it
# stands apart from `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v2.14.0
bin=$PWD/bin/golangci-lint-$version
if [ ! -x "$bin" ]; then
	echo "installing golangci-lint $version" >&2
	GOBIN=$PWD/bin GOFLAGS= GOWORK=off go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mv bin/golangci-lint "$bin"
fi
config=$PWD/.golangci.yml
for dir in $(go list -m -f '{{.Dir}}'); do
	echo "== ${dir#"$PWD"}" >&2
	(cd "$dir" && "$bin" run --config "$config" ./...)
done
