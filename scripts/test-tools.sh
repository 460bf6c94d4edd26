#!/usr/bin/env bash
# Installs what only some tests need, unless it is there: the chromium that the browser
# tests drive, the openssl of docs/tls.md, the strace that lets syncs fail, node, and packages
# from npm: the SDKs that suites/sdk runs through the gateway, and axe-core, with which the
# browser tests check pages.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=()
command -v chromium chromium-browser google-chrome >/dev/null || wanted+=(chromium fonts-dejavu-core)
command -v openssl >/dev/null || wanted+=(openssl)
command -v strace >/dev/null || wanted+=(strace)
command -v node >/dev/null || wanted+=(nodejs)
command -v npm >/dev/null || wanted+=(npm)
if [ ${#wanted[@]} -gt 0 ]; then
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		sudo=sudo
	fi
	export DEBIAN_FRONTEND=noninteractive
	$sudo apt-get update -q
	$sudo apt-get install -q -y --no-install-recommends "${wanted[@]}"
fi

cd suites/sdk
if ! [ node_modules/.package-lock.json -nt package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund
fi
