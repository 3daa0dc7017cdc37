#!/usr/bin/env bash
# Runs the tests of equal bits as each level of x86-64 compiles them: v3 has fused multiply-add, which must not show.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $(go env GOARCH) != amd64 ]]; then
	echo "bits: $(go env GOARCH) has no levels; the tests of equal bits are among make test"
	exit 0
fi
for level in v1 v3; do
	if [[ $level == v3 ]] && ! grep -qw fma /proc/cpuinfo 2>/dev/null; then
		echo "bits: this processor is not x86-64-v3; only v1 was run"
		continue
	fi
	echo "bits: GOAMD64=$level"
	GOAMD64=$level go test -count=1 -timeout 5m ./plugins/abi/rpmath ./core/policy ./plugins/examples/...
	GOAMD64=$level go test -count=1 -timeout 5m -run 'Bits' ./host ./bench
done
