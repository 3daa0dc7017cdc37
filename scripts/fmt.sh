#!/usr/bin/env bash
# Formats all Go files; with --check it only lists those that are not, and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly module=github.com/routerd/routerd

mapfile -d '' files < <(find . -name '*.go' \
	-not -path './.cache/*' -not -path '*/testdata/*' -not -path '*/.*/*' -print0)

tool() { go tool -modfile=tools/go.mod "$@"; }

if [[ ${1:-} != --check ]]; then
	tool goimports -local "$module" -w "${files[@]}"
	tool gofumpt -w "${files[@]}"
	exit 0
fi

bad=$({
	tool goimports -local "$module" -l "${files[@]}"
	tool gofumpt -l "${files[@]}"
} | sort -u)
if [[ -n $bad ]]; then
	printf 'not formatted (make fmt):\n%s\n' "$bad" >&2
	exit 1
fi
