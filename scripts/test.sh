#!/usr/bin/env bash
# Runs go test with the arguments given and says how much of the time budget it took.
# One package may take no longer than the whole budget; a run over it is said, not failed,
# since the same tests take longer on a crowded machine.
set -euo pipefail

readonly budget=300

status=0
go test -timeout "${budget}s" "$@" || status=$?
echo "make test: ${SECONDS} s of ${budget} s"
if ((SECONDS > budget)); then
	echo "make test is over its budget: move what takes over 10 s under the build tag e2e" >&2
fi
exit "$status"
