#!/usr/bin/env bash
# Sends requests that PyPI's schemathesis makes from our own OpenAPI document (EXAMPLES for each
# operation, 40; SEED 1) to the selection service of a running router: no 500, no status that the
# document does not list, every answer as it says. With workers and without.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/deps.sh e2e
venv=$(scripts/venv.sh test/schemathesis/requirements.txt)
config=$PWD/test/schemathesis/schemathesis.toml
dir=$(mktemp -d)
router=
trap 'kill "${router:-0}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT

bin/routerd serve --data_dir "$dir/data" --frontend.listen 127.0.0.1:0 --admin.listen 127.0.0.1:0 \
	--selection.listen 127.0.0.1:0 --log.level error >"$dir/ready" &
router=$!
for _ in {1..100}; do
	at=$(sed -n 's/^ready .* selection=//p' "$dir/ready")
	[[ -n $at ]] && break
	sleep 0.1
done
[[ -n $at ]] || { echo "schemathesis: the router did not start" >&2; exit 1; }

run() {
	(cd "$dir" && "$venv/bin/st" --config-file "$config" run "$at/openapi.json" --no-color --warnings off \
		--generation-database none --seed "${SEED:-1}" --max-examples "${EXAMPLES:-40}" --request-timeout 10)
}
run
for id in 1 2 3; do
	curl -sS --fail -o /dev/null "$at/workers" -H 'content-type: application/json' -d '{"worker_id":'"$id"',"endpoint":"http://127.0.0.1:'$((20000 + id))'",
		"block_size":4,"data_parallel_size":2,"kv_events_endpoints":{"0":"tcp://127.0.0.1:'$((22000 + id))'","1":"tcp://127.0.0.1:'$((23000 + id))'"}}'
done
run
