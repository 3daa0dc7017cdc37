#!/usr/bin/env bash
# Runs the linters over the packages given, for this machine and then, for the guests' side of
# plugins, as wasip1 sees them.
set -euo pipefail
cd "$(dirname "$0")/.."

# The path of the built linter: with GOOS set, go tool would build the linter itself for wasip1.
lint=$(go tool -modfile=tools/go.mod -n golangci-lint)

# Another run on this machine is waited for.
"$lint" run --allow-serial-runners "$@"
GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 "$lint" run --allow-serial-runners ./plugins/...
