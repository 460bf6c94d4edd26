#!/usr/bin/env bash
# Measures our gateway beside other ways of reaching the same server, in
# interleaved rounds, prints the tables and writes them into
# docs/gateway-benchmarks.md.
#
#   ROUNDS=5 SECONDS_EACH=4 CONNECTIONS=64 RATE=1600 bash bench/gateway/run.sh
#
# SYSTEMS="direct tuned tideover" measures some, prints, and writes nothing. A goal
# that is missed is a line of the page, not an error.
set -euo pipefail
cd "$(dirname "$0")"
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-4} connections=${CONNECTIONS:-64} rate=${RATE:-1600}
all="direct bare tuned caddy tideover"
systems=${SYSTEMS:-$all}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir

# Each with the versions of its own go.mod, not those of the workspace.
export GOWORK=off
go build -o "$dir/measure" ./cmd/measure
go build -o "$dir/report" ./cmd/report
modules=()
case " $systems " in *" caddy "*)
	(cd caddy && go build -o "$dir/caddy" .)
	modules+=("$(cd caddy && go list -m github.com/caddyserver/caddy/v2)")
	;;
esac
case " $systems " in *" tideover "*)
	(cd ../../cmd/tideover && go build -o "$dir/tideover" .)
	;;
esac

# The last core that we may use is for the proxies, the first for the upstream
# and the load: the proxies are equals, and nothing of ours is in their way.
measure=("$dir/measure")
pinning="No core is reserved for the proxies; each has GOMAXPROCS=1."
if command -v taskset >/dev/null; then
	cores=$(taskset -cp $$ | sed 's/.*: //')
	first=${cores%%[-,]*} last=${cores##*[-,]}
	if [ "$first" != "$last" ]; then
		measure=(taskset -c "$first" "$dir/measure" -core "$last")
		pinning="Each proxy has a core to itself while it is measured, the same for all; the upstream and the load share another."
	fi
fi

out=../out-gateway.txt
{
	echo "date: $(date -u +%F)"
	echo "go: $(go env GOVERSION)"
	echo "cores: $(nproc)"
	echo "rounds: $rounds"
	echo "seconds: $seconds"
	echo "connections: $connections"
	echo "rate: $rate"
	echo "pinning: $pinning"
	for m in "${modules[@]}"; do echo "module: $m"; done
} >"$out"
for i in $(seq "$rounds"); do
	echo "round $i of $rounds" >&2
	echo "load: $(cut -d' ' -f1 /proc/loadavg)" >>"$out"
	# shellcheck disable=SC2086 # the systems are words
	"${measure[@]}" -round "$i" -seconds "$seconds" -connections "$connections" -rate "$rate" \
		-caddy "$dir/caddy" -tideover "$dir/tideover" $systems >>"$out"
done

if [ "$systems" = "$all" ]; then
	"$dir/report" -page ../../docs/gateway-benchmarks.md <"$out"
else
	"$dir/report" <"$out"
fi
