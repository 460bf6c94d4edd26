#!/bin/sh
# Fails the first two times, as a busy service would, and then answers. It asks
# tideover which attempt this is.
if [ "${TIDEOVER_ATTEMPT:-1}" -lt 3 ]; then
	echo "flaky: upstream is busy" >&2
	exit 75
fi
echo "hello, after $TIDEOVER_ATTEMPT attempts"
