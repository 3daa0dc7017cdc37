#!/usr/bin/env bash
# Builds the C guests of the benchmark of policies: bench/testdata/kvaware.c ->
# bench/testdata/kvaware-{scalar,simd}.wasm. With --check it builds them elsewhere and compares:
# the committed bytes are those of clang and lld 19.1.7.
set -euo pipefail
cd "$(dirname "$0")/../bench/testdata"

clang=${CLANG:-clang-19}
if ! command -v "$clang" >/dev/null; then
	echo "bench-guests: needs clang-19 and lld-19 (or CLANG=...)" >&2
	exit 1
fi

out=.
if [[ ${1:-} == --check ]]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi

build() {
	# --stack-first: a stack that overflows traps instead of writing into the data.
	"$clang" --target=wasm32 -std=c17 -O3 "${@:2}" -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Werror -nostdlib -fuse-ld=lld \
		-Wl,--no-entry,--stack-first,-z,stack-size=16384,--strip-all -o "$out/kvaware-$1.wasm" kvaware.c
}

build scalar -mno-simd128
build simd -msimd128
if [[ $out != . ]]; then
	cmp "$out/kvaware-scalar.wasm" kvaware-scalar.wasm
	cmp "$out/kvaware-simd.wasm" kvaware-simd.wasm
	echo "bench-guests: the committed modules are those of kvaware.c"
fi
