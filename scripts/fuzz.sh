#!/usr/bin/env bash
# Runs every fuzz test for the time given, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly fuzztime=${1:-20s}

ran=0
while IFS=: read -r file name; do
	dir=$(dirname "$file")
	echo "fuzz: $dir $name for $fuzztime"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$dir"
	ran=$((ran + 1))
done < <(grep -roE --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . |
	sed 's/:func /:/' | sort)

if ((ran == 0)); then
	echo "fuzz: no fuzz test found" >&2
	exit 1
fi
