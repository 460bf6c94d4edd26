#!/usr/bin/env bash
# What to run before a commit: gofmt, go vet, the rules of the repository, and the unit tests of the packages that
# differ from the branch BASE, which is main. It leaves out what starts processes, browsers and servers: make test.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base "${BASE:-main}" HEAD)

# Files that differ from the base, committed or not, and new ones.
changed=$({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u)

unformatted=$(sed -n '/\.go$/p' <<<"$changed" | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not gofmt-ed:\n%s\n' "$unformatted"
	exit 1
fi

# The package of a file is in its folder, or in the first folder above it that has one.
packages=$(while read -r file; do
	dir=$(dirname "$file")
	while [ "$dir" != . ] && ! compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
	[ "$dir" = . ] || echo "./$dir"
done <<<"$changed" | sed -E '/^\.\/(suites|scripts)(\/|$)/d' | sort -u)

# shellcheck disable=SC2086 # a list
go vet . $packages
# shellcheck disable=SC2086
go test -vet=off -short . $packages
