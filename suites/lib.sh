# Functions of the suites that run through the gateway. Sourced by their run.sh, which has
# set -euo pipefail. Sets work, a temporary folder that is removed at the end.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
children=()
finish() {
	local code=$?
	for pid in "${children[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT

# build_proxies: builds tideover and reverseproxy into $work.
build_proxies() {
	(cd "$repo/cmd/tideover" && GOWORK= go build -o "$work/tideover" .)
	(cd "$repo/suites" && GOWORK=off go build -o "$work/reverseproxy" ./reverseproxy)
}

# make_certificate: a certificate of its own for 127.0.0.1 and localhost, in cert.pem and
# key.pem of $work. Processes of this script trust it.
make_certificate() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
		-addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -addext "extendedKeyUsage=serverAuth" \
		-keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
	export SSL_CERT_FILE=$work/cert.pem
}

# copy_module MODULE@VERSION FOLDER: copies the source of a module, so that it can be patched.
copy_module() {
	local source
	source=$(cd "$work" && GOWORK=off go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cp -r "$source" "$2"
	chmod -R u+w "$2"
}

# await FILE PATTERN: waits until a line of the file matches.
await() {
	for _ in $(seq 300); do
		grep -q "$2" "$1" 2>/dev/null && return
		sleep 0.1
	done
	echo "no line $2 in $1:" >&2
	cat "$1" >&2
	return 1
}

# start_proxy KIND UPSTREAM [tls]: starts the gateway or the reverse proxy before the
# upstream, and sets proxy_port.
start_proxy() {
	local kind=$1 upstream=$2 tls=()
	[ -z "${3:-}" ] || tls=(--tls-cert "$work/cert.pem" --tls-key "$work/key.pem")
	local out=$work/$kind.out
	rm -rf "$work/data" "$out"
	if [ "$kind" = gateway ]; then
		gateway_config "$upstream" >"$work/tideover.yaml"
		"$work/tideover" gateway --config "$work/tideover.yaml" --data "$work/data" --listen 127.0.0.1:0 "${tls[@]}" >"$out" 2>"$work/$kind.log" &
	else
		"$work/reverseproxy" --upstream "$upstream" "${tls[@]}" >"$out" 2>"$work/$kind.log" &
	fi
	proxy_pid=$!
	children+=("$proxy_pid")
	await "$out" '/p/up'
	proxy_port=$(sed -n 's|.*://127.0.0.1:\([0-9]*\)/p/up.*|\1|p' "$out" | head -1)
}

stop_proxy() {
	kill "$proxy_pid"
	wait "$proxy_pid" 2>/dev/null || true
}

# gateway_config UPSTREAM: one provider that makes one attempt and whose breaker stays closed,
# because the suites provoke failures.
gateway_config() {
	cat <<YAML
version: 1
providers:
  up:
    base-url: "$1"
    policy: http attempts=1 attempt-timeout=2m total-timeout=10m
    breaker: {consecutive: 1000000, failures: 100%}
YAML
}
