#!/usr/bin/env bash
# Installs what only some tests need, unless it is there: the chromium that the
# browser tests drive, the openssl of docs/serve.md, and the strace that lets syncs fail.
set -euo pipefail
wanted=()
command -v chromium chromium-browser google-chrome >/dev/null || wanted+=(chromium fonts-dejavu-core)
command -v openssl >/dev/null || wanted+=(openssl)
command -v strace >/dev/null || wanted+=(strace)
if [ ${#wanted[@]} -eq 0 ]; then
	exit 0
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo apt-get install -q -y --no-install-recommends "${wanted[@]}"
