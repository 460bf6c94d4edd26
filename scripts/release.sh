#!/usr/bin/env bash
# release.sh VERSION [PLATFORM...]: writes a release of HEAD into DIST, which is dist/:
# archives; packages and images for Linux; an SBOM; a formula for Homebrew, unless only
# some platforms are named; checksums. The binaries are those that `go install -trimpath`
# makes of the tags, with CGO_ENABLED=0, so that anybody can make them again: the same
# Go version gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-}
shift || true
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
dist=${DIST:-$PWD/dist}
# The certificates in the image: those that Mozilla trusts, as the Go project publishes them.
roots=golang.org/x/crypto/x509roots/fallback@v0.0.0-20261030153154-30a33513ff6d
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

image=$work/image
mkdir -p "$image/etc/ssl/certs" "$image/usr/bin" "$image/usr/share/doc/tideover"
cp "$work/repo/LICENSE" "$work/repo/THIRD_PARTY_LICENSES" "$image/usr/share/doc/tideover/"
"$work/release" certificates "$(cd "$work" && go mod download -json "$roots" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')/bundle/bundle.der" \
	>"$image/etc/ssl/certs/ca-certificates.crt"

# pack NAME FOLDER: writes a file of the release.
pack() {
	"$work/release" pack "$dist/$1" "$2" "$at"
	echo "$1"
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
	case $os in
	windows) pack "$name.zip" "$work/out/$name" ;;
	*) pack "$name.tar.gz" "$work/out/$name" ;;
	esac
	[ "$os" = linux ] || continue
	pack "$name.deb" "$work/out/$name"
	pack "$name.rpm" "$work/out/$name"
	cp "$work/out/$name/tideover" "$image/usr/bin/"
	pack "$name.oci.tar" "$image"
done
"$work/release" sbom "$at" "$work/out" >"$dist/tideover_${version#v}.spdx.json"
[ $# -gt 0 ] || "$work/release" formula "$work/repo/packaging/tideover.rb.tmpl" "$dist" "${version#v}" >"$dist/tideover.rb"
"$work/release" sums "$dist" >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$dist/"
