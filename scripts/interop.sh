#!/usr/bin/env bash
# A job over a relay that is not ours (khatru), asked for by a customer that is not ours (nostr-tools), done by `tideover serve`.
# Needs node and npm beside Go.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in go node npm; do
	command -v "$tool" >/dev/null || { echo "interop: $tool is not installed" >&2; exit 1; }
done
work=$(mktemp -d)
children=()
finish() {
	code=$?
	for pid in "${children[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	[ "$code" = 0 ] || { echo "--- provider:" >&2; cat "$work/provider.log" >&2 2>/dev/null || true; }
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT

# await FILE PATTERN: waits until a line of the file matches.
await() {
	for _ in $(seq 300); do
		grep -q "$2" "$1" 2>/dev/null && return
		sleep 0.1
	done
	echo "interop: no $2 in $1" >&2
	return 1
}

(cd nostr/interop && GOWORK=off go build -o "$work/relay" .)
(cd cmd/tideover && go build -o "$work/tideover" .)
cp nostr/interop/package*.json nostr/interop/customer.mjs "$work/"
(cd "$work" && npm ci --no-audit --no-fund --silent)

"$work/relay" >"$work/relay.out" & children+=($!)
await "$work/relay.out" '^ws://'
relay=$(head -1 "$work/relay.out")

pubkey=$("$work/tideover" nip90 keygen --out "$work/key" --json | node -e 'console.log(JSON.parse(require("fs").readFileSync(0)).pubkey)')
cat >"$work/tideover.yaml" <<EOF
version: 1
server: {listen: "127.0.0.1:0", data: "$work/data", socket: "$work/sock"}
nip90:
  key: \${file:$work/key}
  relays: ["$relay"]
  kinds:
    5900:
      run: [sh, -c, 'case "\$TASK" in hang) sleep 60;; *) printf "done: %s" "\$TASK";; esac']
      env: {TASK: "{{ .input.task }}"}
      policy: exponential(200ms..1s) attempts=3
  limits: {per-minute: 60, burst: 30}
EOF
"$work/tideover" serve --config "$work/tideover.yaml" >"$work/provider.log" 2>&1 & children+=($!)
await "$work/provider.log" 'link up'
(cd "$work" && timeout 120 node customer.mjs "$relay" "$pubkey")
