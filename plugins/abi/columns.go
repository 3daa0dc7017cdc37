package abi

import "strings"

// Column numbers a standard candidate column. Numbers are the host's own and
// may change between versions of routerd; guests use names.
type Column uint8

// The standard columns. Meanings and units are in their ColumnInfo.
const (
	ColKVOverlapDevice Column = iota
	ColKVOverlapHost
	ColKVOverlapDisk
	ColKVOverlapShared
	ColKVIndexTrusted
	ColKVTotalBlocks
	ColKVUsedBlocks
	ColKVUsage
	ColLoadPrefillTokens
	ColLoadDecodeBlocks
	ColLoadActiveRequests
	ColLoadPotentialPrefillTokens
	ColLoadPotentialDecodeBlocks
	ColEngineQueued
	ColEngineRunning
	ColEngineReportAgeMs
	ColWorkerID
	ColWorkerDPRank
	ColWorkerMaxBatchedTokens
	ColWorkerWeight
	ColWorkerAgeMs
	ColWorkerLastEventAgeMs
	ColWorkerOverloaded
	ColLatTTFTEwmaMs
	ColLatITLEwmaMs
	ColErrRateEwma
	ColSessionBound
	ColTaintPreference
	ColTopoSameZone
	ColLoraLoaded
	ColLoraLoading
	ColLoraActive
	ColLoraMax
	ColLoraInReplicaSet
	ColLoraIsActive
	ColLoraLastUsedMs
	ColUpstreamScore

	// NumColumns is the number of standard columns.
	NumColumns int = iota
)

// MissingAge is what an age column holds when its signal is unknown, in ms.
const MissingAge = 1e12

// ColumnInfo describes one standard column.
type ColumnInfo struct {
	Name    string
	Unit    string
	Missing float64 // written for a stale, invalid or unknown signal unless the manifest says otherwise
	Meaning string
	Since   int // ABI minor that brought it
	// NotYet marks a column that this version has no source for: every cell is
	// missing.
	NotYet bool
}

// Columns returns the table of standard columns, indexed by Column. The caller
// must not change it.
func Columns() []ColumnInfo { return columnTable[:] }

// Info returns the column's table row.
func (c Column) Info() ColumnInfo { return columnTable[c] }

// String is the column's name.
func (c Column) String() string { return columnTable[c].Name }

// ColumnByName finds a standard column.
func ColumnByName(name string) (Column, bool) {
	for i := range columnTable {
		if columnTable[i].Name == name {
			return Column(i), true
		}
	}
	return 0, false
}

// Prefixes of the columns that are made from worker labels: the id of the
// label's value, and its value read as a number.
const (
	LabelPrefix    = "label."
	LabelNumPrefix = "label_num."
)

// IsLabelColumn tells whether name is label.<key> or label_num.<key> with a
// key that is not empty.
func IsLabelColumn(name string) bool {
	for _, p := range []string{LabelPrefix, LabelNumPrefix} {
		if key, ok := strings.CutPrefix(name, p); ok && key != "" {
			return true
		}
	}
	return false
}

var columnTable = [NumColumns]ColumnInfo{
	{"kv.overlap_device", "blocks", 0, "prompt blocks in device memory, counted from block 0", 0, false},
	{"kv.overlap_host", "blocks", 0, "prompt blocks in host memory beyond the device prefix", 0, false},
	{"kv.overlap_disk", "blocks", 0, "prompt blocks on disk beyond the host prefix", 0, false},
	{"kv.overlap_shared", "blocks", 0, "prompt blocks in the shared cache beyond the disk prefix", 0, false},
	{"kv.index_trusted", "0 or 1", 0, "1 when the rank's event stream lost nothing and the prompt's tokens are exact", 0, false},
	{"kv.total_blocks", "blocks", 0, "KV capacity of the rank", 0, false},
	{"kv.used_blocks", "blocks", 0, "KV blocks in use, as the engine reports, else as projected", 0, false},
	{"kv.usage", "0 to 1", 0, "KV occupancy, as the engine reports, else as projected", 0, false},
	{"load.prefill_tokens", "tokens", 0, "prompt tokens still to be prefilled, without this request", 0, false},
	{"load.decode_blocks", "blocks", 0, "KV blocks held by running requests, shared prefixes once, without this request", 0, false},
	{"load.active_requests", "requests", 0, "requests booked on the rank, without this one", 0, false},
	{"load.potential_prefill_tokens", "tokens", 0, "load.prefill_tokens with this request's whole prompt, cached part included", 0, false},
	{"load.potential_decode_blocks", "blocks", 0, "load.decode_blocks with this request", 0, false},
	{"engine.queued", "requests", 0, "requests waiting in the engine, as it reports", 0, false},
	{"engine.running", "requests", 0, "requests running in the engine, as it reports", 0, false},
	{"engine.report_age_ms", "ms", MissingAge, "age of the engine's last report", 0, false},
	{"worker.id", "id", 0, "the worker's id, hashed when above 2^53-1", 0, false},
	{"worker.dp_rank", "rank", 0, "the data-parallel rank", 0, false},
	{"worker.max_batched_tokens", "tokens", 0, "the engine's batch limit", 0, false},
	{"worker.weight", "factor", 1, "the operator's weight of the worker", 0, true},
	{"worker.age_ms", "ms", MissingAge, "time since the worker became ready", 0, false},
	{"worker.last_event_age_ms", "ms", MissingAge, "time since the rank's last KV event", 0, true},
	{"worker.overloaded", "0 or 1", 0, "1 while the rank is over a busy limit", 0, false},
	{"lat.ttft_ewma_ms", "ms", 0, "moving average of the time to the first token", 0, true},
	{"lat.itl_ewma_ms", "ms", 0, "moving average of the time between tokens", 0, true},
	{"err.rate_ewma", "0 to 1", 0, "moving average of failed requests", 0, true},
	{"session.bound", "0 or 1", 0, "1 on the rank that the request's session is bound to", 0, false},
	{"taint.preference", "factor", 1, "exp(-tanh of the sum of matching preferred-taint weights)", 0, false},
	{"topo.same_zone", "0 or 1", 0, "1 when the rank is in the caller's zone", 0, true},
	{"lora.loaded", "0 or 1", 0, "1 when the request's adapter is loaded", 0, false},
	{"lora.loading", "0 or 1", 0, "1 while the request's adapter is being loaded", 0, false},
	{"lora.active", "adapters", 0, "adapters in use on the worker", 0, false},
	{"lora.max", "adapters", 0, "adapters that the worker can hold", 0, false},
	{"lora.in_replica_set", "0 or 1", 0, "1 when the worker is in the adapter's replica set", 0, false},
	{"lora.is_active", "0 or 1", 0, "1 when the adapter has running requests on the worker", 0, false},
	{"lora.last_used_ms", "ms", MissingAge, "time since the adapter was last used on the worker", 0, false},
	{"upstream.score", "score", 0, "the weighted sum of the scorers; pickers only", 0, false},
}
