#!/usr/bin/env bash
# Runs the interop tests of grpc-go, its client and its server, through the gateway and
# through a bare ReverseProxy, with TLS on both sides. Fails if the gateway passes fewer.
#
# client.patch lets the client put /p/up before its methods.
set -euo pipefail
version=v1.85.0
cases=(empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server
	cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata
	unimplemented_method unimplemented_service)
# shellcheck source=suites/lib.sh
. "$(dirname "$0")/../lib.sh"
here=$repo/suites/grpc
build_proxies
make_certificate
copy_module "google.golang.org/grpc@$version" "$work/grpc"
cd "$work/grpc"
patch -s -p1 <"$here/client.patch"
for name in client server; do
	GOWORK=off GOFLAGS=-mod=mod go build -o "$work/interop-$name" "./interop/$name"
done

# The server prints no address: take a port that is free now.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/interop-server" --port "$port" --use_tls --tls_cert_file "$work/cert.pem" --tls_key_file "$work/key.pem" >"$work/server.log" 2>&1 &
children+=($!)
for _ in $(seq 300); do
	if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
	sleep 0.1
done

declare -A passed
for kind in reverseproxy gateway; do
	start_proxy "$kind" "https://localhost:$port" tls
	passed[$kind]=0
	failed=()
	for case in "${cases[@]}"; do
		if timeout 60 "$work/interop-client" --server_host localhost --server_port "$proxy_port" --use_tls --use_test_ca --ca_file "$work/cert.pem" \
			--test_case "$case" >"$work/client.log" 2>&1; then
			passed[$kind]=$((passed[$kind] + 1))
		else
			failed+=("$case: $(tail -1 "$work/client.log" | cut -c1-200)")
		fi
	done
	echo "grpc-go interop $version, $kind: ${passed[$kind]} of ${#cases[@]}"
	[ ${#failed[@]} = 0 ] || printf '  %s\n' "${failed[@]}"
	stop_proxy
done
[ "${passed[gateway]}" -ge "${passed[reverseproxy]}" ]
