#!/usr/bin/env bash
# Runs h2spec, a conformance test of HTTP/2 servers, against the gateway's listener with TLS
# and against a bare ReverseProxy. Fails if the gateway passes fewer cases.
set -euo pipefail
version=2.2.1 # of go.mod
# shellcheck source=suites/lib.sh
. "$(dirname "$0")/../lib.sh"
build_proxies
make_certificate
(cd "$repo/suites/h2spec" && GOWORK=off go build -o "$work/h2spec" github.com/summerwind/h2spec/cmd/h2spec)

# An upstream that answers every request at once.
"$work/tideover" chaos --quiet '*: 200(body="hello")' >"$work/upstream.out" &
children+=($!)
await "$work/upstream.out" '^http://'
upstream=$(head -1 "$work/upstream.out")
declare -A passed
for kind in reverseproxy gateway; do
	start_proxy "$kind" "${upstream%/}" tls
	"$work/h2spec" -t -k -h 127.0.0.1 -p "$proxy_port" -P /p/up/x -o 2 >"$work/h2spec-$kind.log" 2>&1 || true
	summary=$(grep -E '^[0-9]+ tests,' "$work/h2spec-$kind.log")
	passed[$kind]=$(sed -E 's/.* ([0-9]+) passed.*/\1/' <<<"$summary")
	echo "h2spec $version, $kind: $summary"
	sed -n '/^Failures:/,/^Finished/p' "$work/h2spec-$kind.log" | grep '×' | sed 's/^ */  /' || true
	stop_proxy
done
[ "${passed[gateway]}" -ge "${passed[reverseproxy]}" ]
