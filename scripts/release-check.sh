#!/usr/bin/env bash
# release-check.sh VERSION: tries a release as its users will, from an empty folder,
# before there is one: the modules come from a proxy on this disk, made from HEAD.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-v0.0.1-check}
root=github.com/tideover/tideover
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release-check: $*" >&2; exit 1; }

bash scripts/release-stage.sh "$version" "$work"
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
echo "release-check: $version can be released"
