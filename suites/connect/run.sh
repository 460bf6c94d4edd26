#!/usr/bin/env bash
# Runs the conformance suite of Connect (Connect, gRPC and gRPC-Web; HTTP/1.1, HTTP/2 with and
# without TLS) with its reference client and server, and a proxy between them: the gateway,
# and a bare ReverseProxy. Fails if the gateway passes fewer cases.
#
# client.patch lets the reference client put /p/up before its paths.
#
# The cases of skipped.txt hang with a bare ReverseProxy, and the runner then stops: the server
# ends a bidirectional stream while the client still holds its side open.
set -euo pipefail
version=v1.0.6 # v1.0.7 needs connect v2.0.2, which the module proxy did not have
# shellcheck source=suites/lib.sh
. "$(dirname "$0")/../lib.sh"
here=$repo/suites/connect
build_proxies
make_certificate
copy_module "connectrpc.com/conformance@$version" "$work/conformance"
cd "$work/conformance"
patch -s -p1 <"$here/client.patch"
mkdir cmd/proxiedserver
cp "$here/server.go.txt" cmd/proxiedserver/main.go
for name in connectconformance referenceserver proxiedserver; do
	GOWORK=off GOFLAGS=-mod=mod go build -o "$work/$name" "./cmd/$name"
done

cat >"$work/gateway" <<'SH'
#!/usr/bin/env bash
# gateway UPSTREAM FOLDER [FLAG...]
SH
{
	declare -f gateway_config
	echo 'gateway_config "$1" >"$2/tideover.yaml"'
	echo 'exec "$(dirname "$0")/tideover" gateway --config "$2/tideover.yaml" --data "$2/data" --listen 127.0.0.1:0 "${@:3}"'
} >>"$work/gateway"
chmod +x "$work/gateway"

# run_cases NAME [FLAG...]: runs cases through $PROXY. Writes NAME.log and the sorted names of
# those that failed, NAME.failed.
run_cases() {
	timeout 10m "$work/connectconformance" -v --conf "$here/features.yaml" --mode server "${skip[@]}" "${@:2}" -- "$work/proxiedserver" >"$work/$1.log" 2>&1 || true
	sed -n 's/^FAILED: \(.*\):$/\1/p' "$work/$1.log" | LC_ALL=C sort >"$work/$1.failed"
}

mapfile -t skip < <(sed 's/^/--skip=/' "$here/skipped.txt")
export CERT=$work/cert.pem KEY=$work/key.pem
declare -A passed
crashed=
for kind in reverseproxy gateway; do
	case $kind in
	gateway) export PROXY="$work/gateway UPSTREAM FOLDER" ;;
	*) export PROXY="$work/reverseproxy --upstream UPSTREAM" ;;
	esac
	run_cases "$kind"
	# What depends on the speed of the machine gets one more chance.
	if [ -s "$work/$kind.failed" ]; then
		mapfile -t again < <(head -200 "$work/$kind.failed" | sed 's/^/--run=/')
		cp "$work/$kind.failed" "$work/$kind.first"
		run_cases "$kind-again" "${again[@]}"
		LC_ALL=C comm -23 "$work/$kind.first" <(head -200 "$work/$kind.first" | LC_ALL=C comm -23 - "$work/$kind-again.failed") >"$work/$kind.failed"
	fi
	total=$(sed -n 's/^Total cases: //p' "$work/$kind.log")
	passed[$kind]=$((total - $(wc -l <"$work/$kind.failed")))
	echo "Connect conformance $version, $kind: ${passed[$kind]} of $total$(sed -n 's/^Another/, another/p' "$work/$kind.log")"
	if grep -q '^panic: ' "$work/$kind.log"; then
		crashed=$kind
		echo "  the proxy crashed:"
		grep -m1 -A12 '^panic: ' "$work/$kind.log"
	fi
done
echo "cases that fail with the gateway and not with the ReverseProxy:"
LC_ALL=C comm -13 "$work/reverseproxy.failed" "$work/gateway.failed" | sed 's/^/  /'
[ "$crashed" != gateway ] && [ "${passed[gateway]}" -ge "${passed[reverseproxy]}" ]
