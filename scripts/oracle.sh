#!/usr/bin/env bash
# Compares our selection service with Dynamo's: N random fleets (1000) from seed SEED (1), through
# both, in a network namespace of its own, since Dynamo's service listens on every interface.
# Needs PyPI's ai-dynamo-runtime (requirements.txt pins it) and fails where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/deps.sh e2e
venv=$(scripts/venv.sh test/oracle/requirements.txt)
if ! unshare -rn true 2>/dev/null; then
	echo "oracle: unshare -rn is refused here: Dynamo's service listens on every interface, so it runs in a network namespace only" >&2
	exit 1
fi
mkdir -p .cache/oracle
go test -c -tags oracle -o .cache/oracle/oracle.test ./test/oracle

export ORACLE_PYTHON=$venv/bin/python ORACLE_LOGS=$PWD/.cache/oracle ORACLE_ROUTERD=$PWD/bin/routerd
export ORACLE_N=${N:-1000} ORACLE_SEED=${SEED:-1} ORACLE_FIRST=${FIRST:-1} ORACLE_TRACE=${TRACE:-}
# A new namespace has a loopback interface that is down.
readonly up='import fcntl, socket, struct
s = socket.socket()
fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))'
cd test/oracle
exec unshare -rn bash -c '"$ORACLE_PYTHON" -c "$0" && exec "$@"' "$up" \
	../../.cache/oracle/oracle.test -test.v -test.timeout "${ORACLE_TIMEOUT:-60m}" -test.run "${RUN:-.}"
