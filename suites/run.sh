#!/usr/bin/env bash
# run.sh SUITE...: runs the suites, one after the other, and fails if one of them failed.
set -uo pipefail
cd "$(dirname "$0")"
failed=()
for suite in "$@"; do
	echo "== $suite"
	bash "$suite/run.sh" || failed+=("$suite")
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "failed: ${failed[*]}"
	exit 1
fi
