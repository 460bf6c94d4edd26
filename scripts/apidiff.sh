#!/usr/bin/env bash
# apidiff.sh [--write]: compares the Go API of all published modules with that of the last release, which is in
# packaging/api, and fails at a change that breaks programs. --write stages the API of now.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.0-20260908205506-85c1c2202aba
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
GOWORK=off GOBIN=$tool go install "golang.org/x/exp/cmd/apidiff@$version"
broken=0
while read -r module dir; do
	file=$PWD/packaging/api/$(basename "$module").export
	if [ "${1-}" = --write ]; then
		(cd "$dir" && GOWORK=off "$tool/apidiff" -m -w "$file" "$module")
		continue
	fi
	[ -e "$file" ] || { echo "$module is new since release 0.1.0: no API of it can break"; continue; }
	(cd "$dir" && GOWORK=off "$tool/apidiff" -m -incompatible "$file" "$module") >"$tool/changes" 2>"$tool/err" || { cat "$tool/err"; exit 1; }
	if [ -s "$tool/changes" ]; then
		echo "$module breaks programs that use release 0.1.0:"
		cat "$tool/changes"
		broken=1
	fi
done < <(go list -m -f '{{.Path}} {{.Dir}}' | grep -vE '^[^ ]*/(bench|examples|cmd|internal)(/| )')
if [ $broken = 1 ]; then
	echo "Keep what programs use. What must break is told in CHANGELOG.md under Breaking; then: bash scripts/apidiff.sh --write"
	exit 1
fi
