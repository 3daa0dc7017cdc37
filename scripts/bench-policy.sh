#!/usr/bin/env bash
# Measures a policy decision in all its forms in one run, in turns: native, guests metered and
# unmetered, an Extism plugin that talks JSON. Writes docs/benchmarks/policy.md and policy.svg.
# bench/extism and bench/report are modules of their own: their dependencies are fetched the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/.cache/bench-policy
mkdir -p "$out"
rm -f "$out/figures.json"

if command -v clang-19 >/dev/null; then
	scripts/bench-guests.sh --check
fi
(
	cd bench/extism
	go build -o "$out/extism" .
	GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -buildmode=c-shared -trimpath -ldflags='-s -w' -o "$out/guest.wasm" ./guest
)
(cd bench/report && go build -o "$out/report" .)

BENCH_EXTISM=$out BENCH_JSON=$out/figures.json \
	go test -run '^$' -bench '^BenchmarkPolicyDecision$' -benchtime 1x -timeout 10m ./bench
"$out/report" policy "$out/figures.json" docs/benchmarks
