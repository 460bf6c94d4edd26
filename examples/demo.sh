#!/bin/sh
# What `make run` shows: what a policy will do, then the policy at work.
set -eu
tideover=${1:-tideover}
policy='exponential(500ms..5s) jitter=20% attempts=5'
here=$(dirname "$0")

echo "\$ tideover plan '$policy'"
"$tideover" plan "$policy"
echo
echo "\$ tideover exec --policy '$policy' -- examples/flaky.sh"
"$tideover" exec --policy "$policy" -- "$here/flaky.sh"
