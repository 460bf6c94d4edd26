#!/usr/bin/env bash
# Runs every fuzz target of every module for the given time (default 1m).
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${1:-1m}
for dir in $(go list -m -f '{{.Dir}}'); do
	cd "$dir"
	go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r pkg at; do
		grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$at"/*_test.go 2>/dev/null | awk '{print $2}' | while read -r target; do
			echo "== $pkg $target"
			go test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" -fuzzminimizetime 10x </dev/null
		done
	done
done
