#!/usr/bin/env bash
# Everything that must hold before a change is proposed. Fails at the first step that does not
# hold, and when generating changed the tree (the change then belongs into the commit).
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
	echo "check: $1"
	shift
	"$@"
}

# tree prints a digest of every file that git knows or would add.
tree() {
	git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null | sha256sum
}

before=$(tree)
step generate go generate ./...
if [[ $(tree) != "$before" ]]; then
	echo "check: go generate changed files; commit them:" >&2
	git status --short >&2
	exit 1
fi
step tidy go mod tidy -diff
step format scripts/fmt.sh --check
step lint scripts/lint.sh ./...
step layers go test -count=1 ./internal/archtest
step race go test -race -timeout 15m ./...
echo "check: all good"
