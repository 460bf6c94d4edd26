#!/usr/bin/env bash
# Runs the tests of net/http and net/http/httputil twice: as they are, and with retryhttp
# around the transport of every client and of every ReverseProxy. Prints each test that
# ends differently. Fails if differences.txt does not explain one of them.
#
# A package of the standard library can't import a module. So the standard library is copied
# to a temporary folder, with two hooks (hooks.patch) and with our packages, which need
# nothing else, as packages of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
export GOTOOLCHAIN=go1.26.8 GOWORK=off GOFLAGS= # the version that hooks.patch was made for
policy=${POLICY:-http attempts=1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

original=$(go env GOROOT)
root=$work/go
mkdir -p "$root/src/tideover"
for entry in "$original"/*; do
	[ "${entry##*/}" = src ] || ln -s "$entry" "$root/"
done
cp -r "$original/src" "$root/"
patch -s -p1 -d "$root/src" <"$here/hooks.patch"
for package in $(cd "$repo" && go list -deps ./retryhttp | sed -n 's|^github.com/tideover/tideover/||p'); do
	mkdir -p "$root/src/tideover/$package"
	for file in "$repo/$package"/*.go; do
		case $file in *_test.go) continue ;; esac
		sed 's|"github.com/tideover/tideover/|"tideover/|' "$file" >"$root/src/tideover/$package/${file##*/}"
	done
done
sed 's/PACKAGE/http_test/' "$here/wrap.go.txt" >"$root/src/net/http/wrap_test.go"
sed 's/PACKAGE/httputil/' "$here/wrap.go.txt" >"$root/src/net/http/httputil/wrap_test.go"
export GOROOT=$root

# results BINARY FOLDER POLICY [RUN]: prints "TEST RESULT" for each test, subtests included.
results() {
	(cd "$2" && TIDEOVER_POLICY=$3 "$1" -test.v -test.timeout=10m -test.run "${4:-.}" -test.skip '^(TestCmdGoNoHTTPServer|TestOmitHTTP2|TestOmitHTTP2Vet)$' 2>&1 || true) >"$work/log"
	# Output of a test may stand before its result, on the same line.
	grep -oE -- '--- (PASS|FAIL|SKIP): [^ ]+' "$work/log" | awk '{ sub(":", "", $2); print $3, $2 }' | LC_ALL=C sort -u
}

failed=0
for package in net/http net/http/httputil; do
	binary=$work/${package##*/}.test
	folder=$root/src/$package
	(cd "$root/src" && go test -vet=off -c -o "$binary" "$package")
	results "$binary" "$folder" "" >"$work/plain"
	results "$binary" "$folder" "$policy" >"$work/ours"
	LC_ALL=C join -a 1 -e missing -o 0,1.2,2.2 "$work/plain" "$work/ours" | awk '$2 != $3' >"$work/differ"
	# What depends on the speed of the machine gets two more chances, alone.
	: >"$work/confirmed"
	while read -r test _ _; do
		case $test in */*) continue ;; esac
		same=
		for _ in 1 2; do
			results "$binary" "$folder" "" "^$test\$" >"$work/again-plain"
			results "$binary" "$folder" "$policy" "^$test\$" >"$work/again-ours"
			if cmp -s "$work/again-plain" "$work/again-ours"; then
				same=yes
				break
			fi
		done
		[ -n "$same" ] || echo "$test" >>"$work/confirmed"
	done <"$work/differ"
	passed=$(grep -v / "$work/plain" | grep -c ' PASS$')
	different=$(wc -l <"$work/confirmed")
	echo "$package ($(go env GOVERSION), policy \"$policy\"): $((passed - different)) of $passed tests that pass without retryhttp pass with it"
	while read -r test; do
		reason=$(sed -n "s/^$test: //p" "$here/differences.txt")
		echo "  $test: ${reason:-NOT EXPLAINED}"
		[ -n "$reason" ] || failed=1
	done <"$work/confirmed"
done
exit "$failed"
