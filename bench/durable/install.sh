#!/usr/bin/env bash
# Starts a PostgreSQL and a Redis of our own, in a folder and on sockets in it.
# What the system runs is not touched. Missing packages are installed.
#
#   bash install.sh start DIR   # writes DIR/env, to be sourced
#   bash install.sh stop DIR
#
# PostgreSQL has its default settings: fsync and synchronous_commit are on. Redis
# syncs its log before it answers (appendfsync always).
set -euo pipefail

postgres_bin() { find /usr/lib/postgresql -name initdb -printf '%h\n' 2>/dev/null | sort -V | tail -1; }

install() {
	local missing=()
	[ -n "$(postgres_bin)" ] || missing+=(postgresql)
	command -v redis-server >/dev/null || missing+=(redis-server)
	[ ${#missing[@]} -gt 0 ] || return 0
	echo "installing ${missing[*]}" >&2
	apt-get update -qq >&2
	# In runlevel 1 the packages start no services.
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# postgres refuses to run as root.
unprivileged() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=postgres --regid=postgres --init-groups "$@"
	else
		"$@"
	fi
}

start() {
	local dir=$1 bin
	install
	bin=$(postgres_bin)
	chmod 755 "$dir"
	mkdir "$dir/postgres" "$dir/redis"
	[ "$(id -u)" != 0 ] || chown postgres "$dir/postgres"
	cd "$dir/postgres"
	unprivileged "$bin/initdb" -D "$dir/postgres/data" -U bench -A trust -E UTF8 --locale=C >"$dir/initdb.log"
	unprivileged "$bin/pg_ctl" -D "$dir/postgres/data" -l "$dir/postgres/log" -w -s \
		-o "-k $dir/postgres -c listen_addresses=''" start
	cd "$dir/redis"
	redis-server --port 0 --unixsocket "$dir/redis/socket" --dir "$dir/redis" --save '' --appendonly yes \
		--appendfsync always --daemonize yes --pidfile "$dir/redis/pid" --logfile "$dir/redis/log" >/dev/null
	until redis-cli -s "$dir/redis/socket" ping >/dev/null 2>&1; do sleep 0.05; done
	cat >"$dir/env" <<-END
		export DURABLE_POSTGRES='host=$dir/postgres user=bench dbname=postgres'
		export DURABLE_REDIS='$dir/redis/socket'
		POSTGRES_PID=$(head -1 "$dir/postgres/data/postmaster.pid")
		REDIS_PID=$(cat "$dir/redis/pid")
		POSTGRES_VERSION='$("$bin/postgres" --version)'
		REDIS_VERSION='Redis $(redis-server --version | sed -E 's/.* v=([0-9.]+).*/\1/')'
	END
}

stop() {
	local dir=$1
	if [ -f "$dir/postgres/data/postmaster.pid" ]; then
		(cd "$dir/postgres" && unprivileged "$(postgres_bin)/pg_ctl" -D "$dir/postgres/data" -m immediate -s stop) || true
	fi
	[ ! -S "$dir/redis/socket" ] || redis-cli -s "$dir/redis/socket" shutdown nosave >/dev/null 2>&1 || true
}

case ${1-} in
start | stop) "$1" "${2:?a folder}" ;;
*)
	sed -n '2,9p' "$0"
	exit 2
	;;
esac
