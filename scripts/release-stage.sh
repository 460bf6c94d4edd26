#!/usr/bin/env bash
# release-stage.sh VERSION FOLDER: makes in FOLDER what a release publishes.
#
#   repo/   a clone of HEAD with one commit more: the modules require each other in
#           VERSION and have no local replace any more. All tags are on it.
#   proxy/  these modules as a module proxy has them, for GOPROXY=file://FOLDER/proxy.
#           The go command itself makes it from the tags, so that it has the bytes
#           and the checksums that any other proxy will have.
#   modules their import paths, one a line.
#
# HEAD is released, not what stands in the folder. Nothing is pushed, and the module
# cache of the user never sees a version that may be tagged otherwise later.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-} folder=${2:-}
if [[ ! $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || [ -z "$folder" ]; then
	echo "usage: release-stage.sh v0.1.0 FOLDER" >&2
	exit 2
fi
root=github.com/tideover/tideover
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
repo=$folder/repo
if [ -e "$repo" ] || [ -e "$folder/proxy" ]; then
	echo "release-stage: there is a stage in $folder already" >&2
	exit 1
fi
[ -z "$(git status --porcelain)" ] || echo "release-stage: HEAD is released; what is not committed is not in it" >&2
git clone -q --no-local --no-tags . "$repo"
cd "$repo"

# The commit is the same whoever makes it: its time and author are those of HEAD.
export GIT_AUTHOR_DATE GIT_COMMITTER_DATE GIT_AUTHOR_NAME GIT_COMMITTER_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_EMAIL
GIT_AUTHOR_DATE=$(git log -1 --format=%cI) GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
GIT_AUTHOR_NAME=$(git log -1 --format=%cn) GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME
GIT_AUTHOR_EMAIL=$(git log -1 --format=%ce) GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

# Where go asks for our repository, it finds this one. No signature: it would not be
# the same twice.
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=url.file://$repo.insteadOf GIT_CONFIG_VALUE_0=https://$root
export GIT_CONFIG_KEY_1=commit.gpgsign GIT_CONFIG_VALUE_1=false GIT_CONFIG_KEY_2=tag.gpgsign GIT_CONFIG_VALUE_2=false
export GOFLAGS=-modcacherw GOWORK=off

# modules prints the folders of what is published: the workspace, without what only
# measures and shows it.
modules() { GOWORK=$repo/go.work go list -m -f '{{.Dir}}' | sed "s|^$repo||; s|^/||; s|^\$|.|" | grep -vE '^(bench|examples)(/|$)'; }

path() { if [ "$1" = . ]; then echo "$root"; else echo "$root/$1"; fi; }
tag() { if [ "$1" = . ]; then echo "$version"; else echo "$1/$version"; fi; }

# needs DIR prints the folders of our modules that a module requires.
needs() {
	awk -v root="$root" '{ sub(/^require /, "") } $1 == root && $2 ~ /^v/ { print "." }
		index($1, root "/") == 1 && $2 ~ /^v/ { print substr($1, length(root) + 2) }' "$1/go.mod"
}

# fetch DIR CACHE lets go make a module from its tag.
fetch() { GOMODCACHE=$2 GOPROXY=direct GONOSUMDB=$root go mod download -json "$(path "$1")@$version"; }

field() { sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",*\$/\1/p"; }

# release DIR makes the module require the others in this version, with their sums.
release() {
	local need sums
	for need in $(needs "$1"); do
		go -C "$1" mod edit -dropreplace="$(path "$need")" -require="$(path "$need")@$version"
		sums=$(fetch "$need" "$folder/sums-$need")
		printf '%s %s %s\n%s %s/go.mod %s\n' "$(path "$need")" "$version" "$(field Sum <<<"$sums")" \
			"$(path "$need")" "$version" "$(field GoModSum <<<"$sums")" >>"$1/go.sum"
	done
	[ ! -e "$1/go.sum" ] || git add "$1/go.sum" # a module that requires only ours gets its first one here
	if grep -q '^replace' "$1/go.mod"; then
		echo "release-stage: $1/go.mod still replaces something" >&2
		exit 1
	fi
}

# A module comes after those it needs: their sums stand in its go.sum. What it needs
# does not change any more when the commit is amended, and so don't the sums.
git commit -q --allow-empty -m "release $version"
waiting=$(modules)
while [ -n "$waiting" ]; do
	later=
	for dir in $waiting; do
		if grep -qxF -f <(needs "$dir") <<<"$waiting"; then
			later+="$dir "
			continue
		fi
		release "$dir"
		git commit -q --all --amend --no-edit --allow-empty
		git tag "$(tag "$dir")"
	done
	later=$(tr ' ' '\n' <<<"$later" | sed '/^$/d')
	if [ "$later" = "$waiting" ]; then
		echo "release-stage: these modules need each other: $waiting" >&2
		exit 1
	fi
	waiting=$later
done
for dir in $(modules); do
	git tag --force "$(tag "$dir")" >/dev/null
	fetch "$dir" "$folder/cache" >/dev/null
	path "$dir"
done >"$folder/modules"
mv "$folder/cache/cache/download" "$folder/proxy"
rm -rf "$folder/cache" "$folder"/sums-*
