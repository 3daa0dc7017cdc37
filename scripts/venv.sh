#!/usr/bin/env bash
# Makes a Python environment below .cache for a requirements file and prints its folder.
# One environment for each content of the file, so that a change makes a new one.
# With hashes in the file, pip takes nothing that has another.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly requirements=${1:?requirements file}

venv=.cache/venv-$(sha256sum "$requirements" | cut -c1-12)
if [[ ! -f $venv/complete ]]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	if ! "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2; then
		echo "$requirements: what it names cannot be had for $(python3 --version) on $(uname -sm)" >&2
		exit 1
	fi
	touch "$venv/complete"
fi
echo "$PWD/$venv"
