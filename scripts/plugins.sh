#!/usr/bin/env bash
# Builds each Go guest of plugins/examples and packs its manifest into the module:
# plugins/examples/NAME/{main.go,manifest.json} -> dist/plugins/NAME.wasm
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

raw=.cache/plugins
mkdir -p "$raw" dist/plugins

built=0
for dir in plugins/examples/*/; do
	name=$(basename "$dir")
	if [[ ! -f $dir/main.go ]]; then
		echo "plugins: $name has no main.go, so it is no Go guest: not built"
		continue
	fi
	if [[ ! -f $dir/manifest.json ]]; then
		echo "plugins: $name has no manifest.json" >&2
		exit 1
	fi
	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w' \
		-o "$raw/$name.wasm" "./plugins/examples/$name"
	bin/routerd plugin pack --manifest "plugins/examples/$name/manifest.json" \
		"$raw/$name.wasm" -o "dist/plugins/$name.wasm"
	echo "plugins: dist/plugins/$name.wasm"
	built=$((built + 1))
done

if ((built == 0)); then
	echo "plugins: no Go guest under plugins/examples" >&2
	exit 1
fi
