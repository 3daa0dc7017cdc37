#!/usr/bin/env bash
# Runs every fuzz test whose name matches a pattern, all unless one is given, for the time given, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly fuzztime=${1:-20s} pattern=${2:-.}

ran=0
while IFS=: read -r file name; do
	[[ $name =~ $pattern ]] || continue
	dir=$(dirname "$file")
	echo "fuzz: $dir $name for $fuzztime"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$dir"
	ran=$((ran + 1))
done < <(grep -roE --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . |
	sed 's/:func /:/' | sort)

if ((ran == 0)); then
	echo "fuzz: no fuzz test matches $pattern" >&2
	exit 1
fi
