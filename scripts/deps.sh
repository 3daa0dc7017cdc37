#!/usr/bin/env bash
# Installs what the build (or, with "e2e", the Python client tests) needs and this machine lacks.
# Where it may not install, it prints what is missing and how to get it, and exits 1.
# When everything is there it only looks, which takes some milliseconds.
set -euo pipefail

readonly want=${1:-build}
readonly least_go=1.26

go_present() {
	local have
	have=$(go env GOVERSION 2>/dev/null) || return 1
	have=${have#go}
	[[ $(printf '%s\n%s\n' "$least_go" "$have" | sort -V | head -n 1) == "$least_go" ]]
}

# missing prints the Debian names of the packages that are not there.
missing() {
	command -v gcc >/dev/null || command -v "${CC:-cc}" >/dev/null || echo gcc libc6-dev
	if ! command -v pkg-config >/dev/null; then
		echo pkg-config libzmq3-dev
	elif ! pkg-config --exists libzmq; then
		echo libzmq3-dev
	fi
	if [[ $want == e2e ]]; then
		command -v curl >/dev/null || echo curl
		command -v python3 >/dev/null || echo python3
		python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
	fi
}

# root runs its arguments as root, or fails when this user may not.
root() {
	if [[ $(id -u) == 0 ]]; then
		"$@"
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		sudo -n "$@"
	else
		return 1
	fi
}

install() {
	command -v apt-get >/dev/null || return 1
	root true || return 1
	local get=(env DEBIAN_FRONTEND=noninteractive apt-get -y -qq --no-install-recommends)
	# The package list of a fresh machine may be empty or old: refresh it only when needed.
	root "${get[@]}" install "$@" </dev/null || {
		root "${get[@]}" update </dev/null && root "${get[@]}" install "$@" </dev/null
	}
}

if ! go_present; then
	echo "routerd needs Go $least_go or newer; found: $(go env GOVERSION 2>/dev/null || echo none)" >&2
	echo "install it from https://go.dev/dl and put its bin folder into PATH" >&2
	exit 1
fi

read -r -a lack <<<"$(missing | tr '\n' ' ')"
[[ ${#lack[@]} == 0 ]] && exit 0

echo "installing: ${lack[*]}" >&2
if ! install "${lack[@]}" >&2; then
	echo "missing: ${lack[*]}" >&2
	echo "Debian and Ubuntu: sudo apt-get install ${lack[*]}" >&2
	echo "elsewhere: a C compiler, pkg-config and libzmq 4.3 with its headers$([[ $want == e2e ]] && echo ', curl, Python 3 with venv')" >&2
	exit 1
fi

read -r -a lack <<<"$(missing | tr '\n' ' ')"
if [[ ${#lack[@]} != 0 ]]; then
	echo "still missing after the install: ${lack[*]}" >&2
	exit 1
fi
