#!/usr/bin/env bash
# Measures the exact index and the trees of the crate dynamo-kv-router in one run, in turns. Writes
# index.md and index.svg into OUT (docs/benchmarks).
# FLEETS are the sizes, as workers x blocks of a worker x rounds; DEPTHS the blocks of a prompt.
# The first time the crate is fetched and built, which takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo >/dev/null; then
	echo "bench-index: cargo is needed; see https://rustup.rs" >&2
	exit 1
fi

out=$PWD/.cache/bench-index
mkdir -p "$out"
rm -f "$out/figures.json"

cargo build --release --locked --manifest-path bench/peers/kv-router/Cargo.toml --target-dir "$out/target"
(cd bench/report && go build -o "$out/report" .)

# The plans of the large fleet are some hundred megabytes, and /tmp may be memory.
BENCH_INDEX_FLEETS=${FLEETS:-64x20000x5 1024x10000x3} BENCH_INDEX_DEPTHS=${DEPTHS:-64,512,4096} \
	BENCH_KV_ROUTER=$out/target/release/bench-kv-router BENCH_JSON=$out/figures.json TMPDIR=$out \
	go test -run '^$' -bench '^BenchmarkIndex$' -benchtime 1x -timeout 120m ./bench
"$out/report" index "$out/figures.json" "${OUT:-docs/benchmarks}"
