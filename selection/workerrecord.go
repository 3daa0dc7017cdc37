package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
)

// frameworkEvents is the one source of KV events that is known: the engine itself.
const frameworkEvents = "framework_v1"

// maxCount bounds counts of a worker.
const maxCount = 1 << 30

// unsupported refuses what the service knows and does not do.
func (f *workerFields) unsupported() error {
	refuse := func(field, allowed string) error {
		return &httpapi.Failure{
			Code: httpapi.CodeUnsupported, Message: field + " is not supported; allowed: " + allowed,
			Details: httpapi.Details{Step: "check", Item: field, Allowed: allowed},
		}
	}
	const none = "null, or no such field"
	for _, t := range []struct {
		field string
		given bool
	}{
		{"kv_transfer_domain", f.KvTransferDomain != nil},
		{"kv_transfer_enforcement", f.KvTransferEnforcement != nil},
		{"kv_transfer_preferred_weight", f.KvTransferPreferredWeight != nil},
		{"router_hint_worker_type", f.RouterHintWorkerType != nil},
		{"router_hint_source_control_endpoints", len(f.RouterHintSourceControlEndpoints) > 0},
	} {
		if t.given {
			return refuse(t.field, none)
		}
	}
	if f.KvEventSourceMode != nil && *f.KvEventSourceMode != frameworkEvents {
		return refuse("kv_event_source_mode", frameworkEvents)
	}
	return nil
}

// ranks are the first rank and how many there are.
func (f *workerFields) ranks() (start, size uint32) {
	size = 1
	if f.DataParallelSize != nil {
		size = *f.DataParallelSize
	}
	return orZero(f.DataParallelStartRank), size
}

// record makes fill, which has what the fields do not say, the record that they
// ask for. It errs on what no worker may have; what is merely missing is for the
// catalog to tell.
func (f *workerFields) record(fill fleet.Record) (fleet.Record, error) {
	if err := f.unsupported(); err != nil {
		return fill, err
	}
	for _, c := range []struct {
		field string
		value *uint64
	}{{"max_num_batched_tokens", f.MaxNumBatchedTokens}, {"total_kv_blocks", f.TotalKvBlocks}} {
		if c.value != nil && *c.value > maxCount {
			return fill, outOfRange(c.field, strconv.FormatUint(*c.value, 10), "0 to "+strconv.Itoa(maxCount))
		}
	}
	if err := f.checkEndpoints(); err != nil {
		return fill, err
	}
	start, size := f.ranks()
	r := fill
	r.URL, r.BlockSize = orZero(f.Endpoint), int(orZero(f.BlockSize))
	r.DPStart, r.DPSize = int(start), int(size)
	r.KVEvents, r.Replay = f.events(start, size), nil
	if replay := orZero(f.ReplayEndpoint); replay != "" && size > 0 {
		r.Replay = map[int]string{int(start): replay}
	}
	r.MaxBatchedTokens, r.TotalKVBlocks = int(orZero(f.MaxNumBatchedTokens)), int(orZero(f.TotalKvBlocks))
	r.StableRoutingID, r.Eagle = orZero(f.StableRoutingID), orZero(f.IsEagle)
	r.Taints = slices.Compact(slices.Sorted(slices.Values(f.Taints)))
	r.TopologyDomains = f.TopologyDomains
	r, err := r.Normalised()
	return r, inWordsOfTheBody(err)
}

// events are the publishers by rank, those of the worker's ranks. The one
// endpoint without a rank is for a worker with one.
func (f *workerFields) events(start, size uint32) map[int]string {
	given := f.KvEventsEndpoints
	if one := orZero(f.KvEventsEndpoint); len(given) == 0 && size == 1 && one != "" {
		given = map[uint32]string{start: one}
	}
	var out map[int]string
	for rank, endpoint := range given {
		if endpoint == "" || rank < start || uint64(rank) >= uint64(start)+uint64(size) {
			continue
		}
		if out == nil {
			out = make(map[int]string, len(given))
		}
		out[int(rank)] = endpoint
	}
	return out
}

// checkEndpoints refuses what no socket can connect to, also where nobody will.
func (f *workerFields) checkEndpoints() error {
	for _, e := range []struct {
		field    string
		endpoint *string
		check    func(field, endpoint string) error
	}{{"kv_events_endpoint", f.KvEventsEndpoint, fleet.CheckEvents}, {"replay_endpoint", f.ReplayEndpoint, fleet.CheckEndpoint}} {
		if endpoint := orZero(e.endpoint); endpoint != "" {
			if err := e.check(e.field, endpoint); err != nil {
				return err
			}
		}
	}
	if n := len(f.KvEventsEndpoints); n > fleet.MaxRanks {
		return outOfRange("kv_events_endpoints", strconv.Itoa(n)+" ranks", "at most "+strconv.Itoa(fleet.MaxRanks))
	}
	for _, rank := range slices.Sorted(maps.Keys(f.KvEventsEndpoints)) {
		if endpoint := f.KvEventsEndpoints[rank]; endpoint != "" {
			if err := fleet.CheckEvents("kv_events_endpoints."+strconv.FormatUint(uint64(rank), 10), endpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// inWordsOfTheBody names a refused field of a record as the body does.
func inWordsOfTheBody(err error) error {
	field, ok := errors.AsType[*fleet.FieldError](err)
	if !ok {
		return err
	}
	for _, word := range [][2]string{
		{"id", "worker_id"},
		{"url", "endpoint"},
		{"model", "model_name"},
		{"group", "routing_group"},
		{"dp_start", "data_parallel_start_rank"},
		{"dp_size", "data_parallel_size"},
	} {
		if field.Field == word[0] {
			return &fleet.FieldError{Field: word[1], Value: field.Value, Allowed: field.Allowed}
		}
	}
	return field
}

// change takes over the fields that p gives.
func (f *workerFields) change(p *workerFields) {
	replace(&f.Endpoint, p.Endpoint)
	replace(&f.KvEventsEndpoint, p.KvEventsEndpoint)
	replace(&f.ReplayEndpoint, p.ReplayEndpoint)
	replace(&f.BlockSize, p.BlockSize)
	replace(&f.DataParallelStartRank, p.DataParallelStartRank)
	replace(&f.DataParallelSize, p.DataParallelSize)
	replace(&f.MaxNumBatchedTokens, p.MaxNumBatchedTokens)
	replace(&f.TotalKvBlocks, p.TotalKvBlocks)
	replace(&f.StableRoutingID, p.StableRoutingID)
	replace(&f.IsEagle, p.IsEagle)
	replace(&f.KvEventSourceMode, p.KvEventSourceMode)
	if p.KvEventsEndpoints != nil {
		f.KvEventsEndpoints = p.KvEventsEndpoints
	}
	if p.Taints != nil {
		f.Taints = p.Taints
	}
	if p.TopologyDomains != nil {
		f.TopologyDomains = p.TopologyDomains
	}
	f.transferFields = p.transferFields
}

func replace[T any](field **T, by *T) {
	if by != nil {
		*field = by
	}
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// asked writes the fields for a record to keep.
func (f *workerFields) asked() (string, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode the worker's fields: %w", err)
	}
	return string(b), nil
}

// fieldsOf are the fields of a record: as they were given, or, of a worker that was
// not put through this service, those that say the same.
func fieldsOf(r *fleet.Record) workerFields {
	var f workerFields
	if r.Asked != "" && json.Unmarshal([]byte(r.Asked), &f) == nil {
		f.Taints, f.TopologyDomains = r.Taints, r.TopologyDomains
		return f.whole()
	}
	f = workerFields{
		Endpoint: given(r.URL), BlockSize: given(uint32(r.BlockSize)), DataParallelStartRank: given(uint32(r.DPStart)),
		MaxNumBatchedTokens: given(uint64(r.MaxBatchedTokens)), TotalKvBlocks: given(uint64(r.TotalKVBlocks)),
		StableRoutingID: given(r.StableRoutingID), IsEagle: given(r.Eagle),
		Taints: r.Taints, TopologyDomains: r.TopologyDomains,
	}
	if r.DPSize <= 1 { // 0 is for the engine to tell
		f.KvEventsEndpoint, f.ReplayEndpoint = given(r.KVEvents[r.DPStart]), given(r.Replay[r.DPStart])
		return f.whole()
	}
	f.DataParallelSize, f.KvEventsEndpoints = given(uint32(r.DPSize)), make(map[uint32]string, len(r.KVEvents))
	for rank, endpoint := range r.KVEvents {
		f.KvEventsEndpoints[uint32(rank)] = endpoint
	}
	return f.whole()
}

// whole has no lists that are null.
func (f workerFields) whole() workerFields {
	if f.Taints == nil {
		f.Taints = []string{}
	}
	if f.TopologyDomains == nil {
		f.TopologyDomains = map[string]string{}
	}
	return f
}

// given is nil for a zero value, which a record has for what nobody gave.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// reasonText is a reason of the catalog in the words of this API.
func reasonText(key fleet.PartitionKey, reason string) string {
	word, rest, _ := strings.Cut(reason, ": ")
	switch word {
	case "url_missing":
		return "endpoint is required"
	case "block_size_unknown":
		return "block_size must be greater than 0"
	case "dp_size_zero":
		return "data_parallel_size must be greater than 0"
	case "kv_events_missing":
		return "kv_events endpoint is required for dp_rank " + strings.TrimPrefix(rest, "rank ")
	case "replay_unranked":
		return "replay_endpoint is supported only for data_parallel_size 1"
	case "block_size_mismatch", "is_eagle_mismatch":
		return fmt.Sprintf("reconciliation failed: %s mismatch for model=%s routing_group=%s: %s", strings.TrimSuffix(word, "_mismatch"), key.Model, key.Group, rest)
	}
	return "reconciliation failed: " + reason
}
