#!/usr/bin/env bash
# release.sh VERSION [PLATFORM...]: writes the archives of a release of HEAD and their
# checksums into dist/. The binaries are those that `go install -trimpath` makes of
# the tags, with CGO_ENABLED=0, so that anybody can make them again: the same Go
# version gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-}
shift || true
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
dist=$PWD/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sha256sum --check --quiet docs/recording.gif.sha256 || {
	echo "release: docs/recording.gif does not show these files: make recording" >&2
	exit 1
}
bash scripts/release-stage.sh "$version" "$work"
(cd "$work/repo/cmd/tideover" && GOWORK=$work/repo/go.work go build -o "$work/release" ./internal/release)
at=$(git -C "$work/repo" log -1 --format=%ct)
. scripts/release-env.sh
export CGO_ENABLED=0

# build OS ARCH: prints where the binary is.
build() {
	GOOS=$1 GOARCH=$2 go install -ldflags='-s -w' "github.com/tideover/tideover/cmd/tideover@$version" >&2
	ls "$GOPATH/bin/$1_$2"/tideover* 2>/dev/null || ls "$GOPATH/bin/tideover"*
}

host=$(build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)")
case $("$host" version) in
"tideover $version, "*) ;;
*) echo "release: $host says it is $("$host" version)" >&2; exit 1 ;;
esac
"$host" man "$work/man"
mkdir "$work/completions"
"$host" completion bash >"$work/completions/tideover.bash"
"$host" completion zsh >"$work/completions/_tideover"
"$host" completion fish >"$work/completions/tideover.fish"
"$host" completion powershell >"$work/completions/tideover.ps1"

# fill FOLDER OS: what stands beside the binary.
fill() {
	cp "$work/repo/LICENSE" "$work/repo/THIRD_PARTY_LICENSES" "$1/"
	cp -r "$work/completions" "$1/"
	[ "$2" = windows ] && return
	mkdir -p "$1/man/man1" "$1/man/man7"
	cp "$work"/man/*.1 "$1/man/man1/"
	cp "$work"/man/*.7 "$1/man/man7/"
	[ "$2" = linux ] || return 0
	mkdir -p "$1/systemd/user"
	cp "$work/repo/docs/tideover.service" "$1/systemd/user/"
	cp "$work/repo/packaging/tideover.service" "$1/systemd/"
}

rm -rf "$dist"
mkdir -p "$dist" "$work/out"
for platform in "${platforms[@]}"; do
	os=${platform%/*} arch=${platform#*/}
	name=tideover_${version#v}_${os}_$arch
	binary=$(build "$os" "$arch")
	mkdir "$work/out/$name"
	cp "$binary" "$work/out/$name/"
	chmod 755 "$work/out/$name/$(basename "$binary")"
	fill "$work/out/$name" "$os"
	archive=$name.tar.gz
	[ "$os" = windows ] && archive=$name.zip
	"$work/release" pack "$dist/$archive" "$work/out/$name" "$at"
	echo "$archive"
done
"$work/release" sums "$dist" >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$dist/"
