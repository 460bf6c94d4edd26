#!/usr/bin/env bash
# leftovers.sh FOLDER VARIABLE=VALUE: fails if something is left in the folder, which is the
# temporary folder of the tests, or if a process is left that has the variable in its
# environment, as all processes of the tests have.
set -euo pipefail
folder=$1 mark=$2
failed=0
files=$(find "$folder" -mindepth 1 -maxdepth 1)
if [ -n "$files" ]; then
	echo "left in the temporary folder:"
	echo "$files"
	failed=1
fi
for environment in /proc/[0-9]*/environ; do
	pid=${environment//[!0-9]/}
	# This script and the shells around it have the mark, too.
	if [ "$pid" = $$ ] || [ "$pid" = "$PPID" ] || ! grep -qzxF "$mark" "$environment" 2>/dev/null; then
		continue
	fi
	echo "left running: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
	failed=1
done
exit "$failed"
