#!/usr/bin/env bash
# Runs all tests of the packages that have something under the last of the build tags given (e2e, or
# e2e,soak): tests of their own there, or larger sizes for the tests that make test runs small.
# The tests find the built program in ROUTERD_BIN, the packed plugins in ROUTERD_PLUGINS and
# a Python with the official clients in ROUTERD_PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly tags=${1:-e2e}
readonly requirements=test/e2e/requirements.txt

scripts/deps.sh e2e

venv=$(scripts/venv.sh "$requirements")

mapfile -t packages < <(grep -rlE --include='*_test.go' --exclude-dir=.cache --exclude-dir=.git \
	"^//go:build .*\b${tags##*,}\b" . | xargs -r dirname | sort -u)
if ((${#packages[@]} == 0)); then
	echo "e2e: no test file has the build tag ${tags##*,}" >&2
	exit 1
fi

if [[ ${tags##*,} == soak ]]; then EXAMPLES=300 scripts/schemathesis.sh; else EXAMPLES=10 scripts/schemathesis.sh; fi

export ROUTERD_BIN=$PWD/bin/routerd
export ROUTERD_PLUGINS=$PWD/dist/plugins
export ROUTERD_PYTHON=$venv/bin/python

echo "e2e: ${packages[*]}"
# One package at a time: these tests measure times.
# -v: a test prints what it measured, also when it passes.
go test -v -tags "$tags" -count=1 -p 1 -timeout "${E2E_TIMEOUT:-20m}" "${packages[@]}"
