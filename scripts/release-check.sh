#!/usr/bin/env bash
# release-check.sh VERSION [PLATFORM...]: tries a release of HEAD as its users will,
# before there is one: modules come from a proxy on this disk, and the files that
# release.sh makes are read back, installed in empty roots, and removed again.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-v0.0.1-check}
shift || true
root=github.com/tideover/tideover
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release-check: $*" >&2; exit 1; }

DIST=$work/dist bash scripts/release.sh "$version" "$@" >/dev/null
bash scripts/release-stage.sh "$version" "$work"
(cd "$work/repo/cmd/tideover" && GOWORK=$work/repo/go.work go build -o "$work/release" ./internal/release)
. scripts/release-env.sh

# program NAME MODULE FILE: a program of somebody who gets the module.
program() {
	mkdir "$work/$1"
	cat >"$work/$1/main.go"
	(
		cd "$work/$1" && go mod init "example.com/$1" && go get "$2@$version" && go build -o program . && ./program
	) >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; fail "a program with $2 does not work"; }
	tail -1 "$work/$1.log"
}

grep -q require "$work/repo/go.mod" && fail "the library requires something"
program library "$root" <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/retry"
)

func main() {
	tries := 0
	err := retry.Must("fixed(1ms) attempts=3").Do(context.Background(), func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("busy")
		}
		return nil
	})
	fmt.Printf("library: %d attempts, %v\n", tries, err)
}
GO
[ "$(go -C "$work/library" list -m all | wc -l)" = 2 ] || fail "the library brings other modules"

program engine "$root/engine" <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tideover/tideover/engine"
)

func main() {
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	double, err := engine.NewWorkflow("double", engine.Step("go", func(_ context.Context, n int) (int, error) { return 2 * n, nil }))
	if err != nil {
		panic(err)
	}
	eng, err := engine.Open(ctx, engine.Config{Dir: dir, Workflows: []*engine.Workflow{double}})
	if err != nil {
		panic(err)
	}
	defer eng.Close(ctx)
	run, err := eng.Start(ctx, double, 21)
	if err != nil {
		panic(err)
	}
	done, err := eng.Wait(ctx, run.ID)
	if err != nil {
		panic(err)
	}
	fmt.Printf("engine: a run %s with %s\n", done.State, done.Output)
}
GO

program nostr "$root/nostr" <<'GO'
package main

import (
	"fmt"

	"github.com/tideover/tideover/nostr"
)

func main() {
	var e nostr.Event
	fmt.Printf("nostr: an empty event: %v\n", e.Verify())
}
GO

program chaos "$root/chaos" <<'GO'
package main

import (
	"fmt"
	"net/http"

	"github.com/tideover/tideover/chaos"
	"github.com/tideover/tideover/retryhttp"
)

func main() {
	server := chaos.Must("503,503,200")
	defer server.Close()
	if err := server.Start(""); err != nil {
		panic(err)
	}
	client := &http.Client{Transport: retryhttp.Must("fixed(1ms) attempts=3", nil)}
	resp, err := client.Get(server.URL())
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Printf("chaos: %s after %d requests\n", resp.Status, server.Stats().Requests)
}
GO
[ "$(go -C "$work/chaos" list -m all | wc -l)" = 3 ] || fail "chaos brings other modules than the library"

program gateway "$root/gateway" <<'GO'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/tideover/tideover/gateway"
)

func main() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from ", r.URL.Path) }))
	defer api.Close()
	base, err := url.Parse(api.URL)
	if err != nil {
		panic(err)
	}
	g, err := gateway.New([]gateway.Spec{{Name: "api", Preset: gateway.Generic, BaseURL: base}}, gateway.Options{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	resp, err := http.Get(server.URL + "/p/api/v1/models")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Printf("gateway: %s, %d request\n", resp.Status, g.Status()[0].Totals.Requests)
}
GO
[ "$(go -C "$work/gateway" list -m all | wc -l)" = 3 ] || fail "gateway brings other modules than the library"

# Adapters, if there are any: each package of theirs builds.
for module in $(grep -vxE "$root(/engine|/nostr|/chaos|/gateway|/cmd/tideover)?" "$work/modules"); do
	mkdir -p "$work/adapter"
	(
		rm -f "$work/adapter/go.mod" "$work/adapter/go.sum"
		cd "$work/adapter" && go mod init example.com/adapter && go get "$module@$version" && go build "$module/..."
	) >"$work/adapter.log" 2>&1 || { cat "$work/adapter.log"; fail "$module does not build"; }
	echo "$module builds"
done

go install "$root/cmd/tideover@$version" 2>"$work/install.log" || { cat "$work/install.log"; fail "go install does not work"; }
printed=$("$GOPATH/bin/tideover" version)
[[ $printed == "tideover $version, "* ]] || fail "go install gives $printed"
echo "$printed"

# Whoever has the tag and no workspace builds the same: go.sum has our own modules.
(cd "$work/repo/cmd/tideover" && GOFLAGS='-mod=readonly -modcacherw -trimpath -buildvcs=false' go build -o "$work/clone" .) ||
	fail "cmd/tideover does not build from its tag"

"$work/release" verify "$work/dist" || fail "the files are not as they should be"
if [ $# -eq 0 ]; then
	if command -v ruby >/dev/null; then
		ruby -c "$work/dist/tideover.rb" >/dev/null || fail "ruby does not read the formula"
	else
		echo "tideover.rb: there is no ruby here that could read it"
	fi
	# dist/ is what is uploaded: it must be what is checked here.
	if grep -qF " tideover_${version#v}_" dist/SHA256SUMS 2>/dev/null; then
		diff dist/SHA256SUMS "$work/dist/SHA256SUMS" || fail "dist/ is not what make release makes of HEAD"
		(cd dist && sha256sum --check --quiet SHA256SUMS) || fail "dist/ was changed"
		echo "dist/: the same bytes in two runs"
	fi
fi

# The rest runs in empty roots. Without chroot there is none.
PATH=$PATH:/usr/sbin
as=() owner=(--userspec=65532:65532)
[ "$(id -u)" = 0 ] || as=(unshare -r) owner=()
files=$work/dist/tideover_${version#v}_linux_amd64
if [ "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" != linux/amd64 ] || [ ! -e "$files.deb" ] || ! "${as[@]}" unshare -m chroot / true; then
	echo "release-check: $version can be released; it was not installed, which needs linux/amd64, and root or user namespaces"
	exit
fi
job=$(sed -n 's/^\$ \(tideover exec .*\)/\1/p' README.md | head -1) # the first job of the README

# enter ROOM [NAME=VALUE...] [OPTION...]: sets room, and enter, with which a command runs
# in this root. It has /proc, and the folders in mounts: while the command runs, and in no
# other process.
mounts=(/proc proc)
enter() {
	local i
	room=$work/rooms/$1
	mkdir -p "$room/dev" "$room/tmp" "$room/root"
	: >"$room/dev/null"
	for ((i = 1; i < ${#mounts[@]}; i += 2)); do mkdir -p "$room/${mounts[i]}"; done
	enter=("${as[@]}" unshare -m bash -euc 'while [ "$1" != -- ]; do mount --rbind "$1" "$0/$2"; shift 2; done; shift; exec "$@"'
		"$room" "${mounts[@]}" -- env -i HOME=/root PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin" "${@:2}" "$room")
}

# with_shell ROOM [NAME=VALUE...]: a root with a shell and the script that the README runs.
with_shell() {
	enter "$@" chroot
	cp -L --parents /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*') examples/flaky.sh "$room"
}

# run_job HOW: runs the first job of the README in the root.
run_job() {
	"${enter[@]}" /bin/sh -c "cd / && tideover version && $job" >"$work/job.log" 2>&1 || { cat "$work/job.log"; fail "$1: the job does not succeed"; }
	grep -qF "tideover $version, " "$work/job.log" && grep -qx 'hello, after 3 attempts' "$work/job.log" ||
		{ cat "$work/job.log"; fail "$1: it printed something else"; }
}

install_archive() {
	mkdir -p "$room/usr/local/bin" "$room/usr/local/share/man"
	tar -C "$work" -xzf "$files.tar.gz"
	install -m 755 "$work/$(basename "$files")/tideover" "$room/usr/local/bin/"
	cp -r "$work/$(basename "$files")/man/." "$room/usr/local/share/man/"
}
remove_archive() { rm "$room"/usr/local/bin/tideover "$room"/usr/local/share/man/man?/tideover*; }

dpkg_here() { "${as[@]}" dpkg --root="$room" --log=/dev/null "$@"; }
install_deb() {
	mkdir -p "$room/var/lib/dpkg/info" "$room/var/lib/dpkg/updates"
	touch "$room/var/lib/dpkg/status"
	dpkg_here --install "$files.deb"
}
remove_deb() { dpkg_here --purge tideover; }

rpm_here() { "${as[@]}" rpm --root="$room" --dbpath=/var/lib/rpm "$@"; }
install_rpm() {
	rpm_here --checksig "$files.rpm" && rpm_here --install "$files.rpm" && rpm_here --verify tideover
}
remove_rpm() { rpm_here --erase tideover; }

# present prints the files in the root, and folders of ours. The databases of packages are in /var.
present() { find "$room" -path "$room/var" -prune -o \( ! -type d -o -name '*tideover*' \) -print | sort; }

for way in archive deb rpm; do
	with_shell "$way"
	program=dpkg
	[ "$way" = deb ] || program=$way
	if [ "$way" != archive ] && ! command -v "$program" >/dev/null; then
		"$work/release" unpack "$files.$way" "$room"
		run_job "$way"
		echo "$way: unpacked without $program, which is not here, in an empty root: the first job of the README succeeds"
		continue
	fi
	present >"$work/before"
	"install_$way" >"$work/install.log" 2>&1 || { cat "$work/install.log"; fail "$way: it can't be installed"; }
	run_job "$way"
	"remove_$way" >"$work/install.log" 2>&1 || { cat "$work/install.log"; fail "$way: it can't be removed"; }
	present | diff "$work/before" - || fail "$way: something is left"
	echo "$way: installed in an empty root, the first job of the README succeeds, and nothing is left once it is removed"
done

# Go and the modules are mounted into the root. Go remembers in its build cache what a version imports, by its
# folder: the folder has the commit in its name, because the same version is staged again and again.
mounts=(/proc proc "$(go env GOROOT)" usr/local/go "$work/proxy" modules "$GOMODCACHE/cache/download" others "$(go env GOCACHE)" cache)
with_shell go GOPROXY=file:///modules,file:///others GOSUMDB=off GOCACHE=/cache GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-trimpath \
	GOMODCACHE="/$(git -C "$work/repo" rev-parse HEAD)" GOBIN=/usr/local/bin
"${enter[@]}" /usr/local/go/bin/go install "$root/cmd/tideover@$version" 2>"$work/install.log" ||
	{ cat "$work/install.log"; fail "go install does not work in an empty root"; }
run_job "go install"
echo "go install: in a root with only a shell and Go, the first job of the README succeeds"

# The image has its own user, and no shell.
mounts=(/proc proc)
enter image TIDEOVER_CONFIG=/etc/tideover/config.yaml TIDEOVER_SERVER_DATA=/data TIDEOVER_SERVER_LISTEN=127.0.0.1:0 chroot "${owner[@]}"
enter+=(/usr/bin/tideover)
"$work/release" unpack "$files.oci.tar" "$room"
mkdir "$room/etc/tideover"
echo 'version: 1' >"$room/etc/tideover/config.yaml"
[[ $("${enter[@]}" version) == "tideover $version, "* ]] || fail "the image has another version"
"${enter[@]}" serve >"$work/serve.log" 2>&1 &
server=$!
for _ in $(seq 100); do
	healthy=$("${enter[@]}" health 2>&1) && break
	sleep 0.1
	healthy=
done
kill "$server"
wait "$server" && [ -n "$healthy" ] || { cat "$work/serve.log"; fail "serve of the image is not healthy, or ends with an error"; }
echo "image: unpacked as its root, tideover serve is healthy there"
echo "release-check: $version can be released"
