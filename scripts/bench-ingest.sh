#!/usr/bin/env bash
# Measures what a message of KV events costs from the socket to the exact index. Writes ingest.md into OUT
# (docs/benchmarks).
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/.cache/bench-ingest
mkdir -p "$out"
rm -f "$out/figures.json"

(cd bench/report && go build -o "$out/report" .)

BENCH_JSON=$out/figures.json go test -run '^$' -bench '^BenchmarkIngest$' -benchtime 1x -timeout 15m ./bench
"$out/report" ingest "$out/figures.json" "${OUT:-docs/benchmarks}"
