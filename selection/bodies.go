package selection

import (
	"encoding/json"

	"github.com/routerd/routerd/fleet"
)

// The bodies and answers of the API, by which it is documented. Field names are
// those of Dynamo's service. A selection request itself is read by a scanner, see
// scan.go, not into these.

// promptFields are in every body that has a prompt.
type promptFields struct {
	TokenIDs       []uint32       `json:"token_ids,omitempty" doc:"Token ids of the prompt, as the engine has them. An empty list is a prompt without tokens."`
	MmRoutingInfo  *mmRoutingInfo `json:"mm_routing_info,omitempty" doc:"A multimodal prompt as the engine hashes it; counts before token_ids."`
	BlockMmInfos   []*blockMmInfo `json:"block_mm_infos,omitempty" doc:"Of token_ids: what else each block holds, in order; null for a block of text alone."`
	BlockHashes    []int64        `json:"block_hashes,omitempty" api:"max=18446744073709551615" doc:"The prompt as hashes of its full blocks, signed or not, where there are no token ids: then with sequence_hashes, as many, and isl_tokens. A booking of a worker needs none."`
	SequenceHashes []int64        `json:"sequence_hashes,omitempty" api:"max=18446744073709551615" doc:"Of each block, the hash over all blocks up to it, signed or not."`
	IslTokens      *int           `json:"isl_tokens,omitempty" api:"min=1,max=2147483647" doc:"Length of the prompt in tokens; of a prompt of hashes."`
	LoraName       *string        `json:"lora_name,omitempty" doc:"Adapter: part of the hashes. Where a worker of the model lists it, only workers that have it loaded serve."`
	CacheSalt      *string        `json:"cache_salt,omitempty" doc:"Part of the hashes: prompts of different salts share no cache."`
	IsEagle        *bool          `json:"is_eagle,omitempty" doc:"Whether blocks are hashed over one token more, as engines with Eagle do; as the workers have it where left out."`
}

type mmRoutingInfo struct {
	RoutingTokenIDs []uint32       `json:"routing_token_ids" doc:"Token ids, with placeholders expanded."`
	BlockMmInfos    []*blockMmInfo `json:"block_mm_infos" doc:"As block_mm_infos, of these tokens."`
}

// blockMmInfo is what touches one block of tokens; null for nothing.
type blockMmInfo struct {
	MmObjects []mmObject `json:"mm_objects" doc:"Images and other objects that touch the block."`
}

type mmObject struct {
	MmHash  uint64     `json:"mm_hash" doc:"The object's hash."`
	Offsets [][2]int64 `json:"offsets" doc:"Where it begins and ends in the block. Does not count."`
}

type partitionFields struct {
	ModelName    *string `json:"model_name,omitempty" api:"value" doc:"Base model, and with the routing group the partition; default where left out. A worker's has at most 256 bytes."`
	RoutingGroup *string `json:"routing_group,omitempty" api:"value" doc:"Routing group; default where left out. A worker's has at most 256 bytes."`
}

// selectBody is a selection that books nothing.
type selectBody struct {
	bookBody
	Advisory bool `json:"advisory,omitempty" doc:"Answers at once, past the queue, and with the load of the rank."`
}

// bookBody is a selection that books.
type bookBody struct {
	SelectionID *string `json:"selection_id,omitempty" api:"most=256" doc:"The caller's name for the selection, and then the booking; an empty one counts as none."`
	partitionFields
	promptFields
	loadFields
	PriorityJump       *float64         `json:"priority_jump,omitempty" api:"min=0,max=86400" doc:"Seconds that the request counts as having come earlier, among those of its priority that wait."`
	StrictPriority     *uint32          `json:"strict_priority,omitempty" doc:"Priority among those that wait in one class: higher first."`
	SessionID          *string          `json:"session_id,omitempty" api:"most=256" doc:"Session that the request belongs to; an empty one is none."`
	SessionContext     *sessionContext  `json:"session_context,omitempty" doc:"The same with more; counts in place of session_id."`
	AffinityTarget     *targetFields    `json:"affinity_target,omitempty" doc:"Worker that the caller keeps its session on. Counts in place of the binding, and binds nothing; ignored where nobody knows it."`
	PinnedWorker       *pinFields       `json:"pinned_worker,omitempty" doc:"The rank that must serve. Such a request binds no session."`
	AllowedWorkerIDs   []fleet.WorkerID `json:"allowed_worker_ids,omitempty" api:"most=16384" doc:"Workers that may serve; all where left out or null, none where empty."`
	RoutingConstraints *constraints     `json:"routing_constraints,omitempty" api:"value" doc:"Taints of workers that the request needs, prefers or avoids."`
}

// loadFields say how the request counts as load.
type loadFields struct {
	RouterConfigOverride *configOverride `json:"router_config_override,omitempty" doc:"Settings of the policy for this request alone, and how the request counts as load."`
	ExpectedOutputTokens *uint32         `json:"expected_output_tokens,omitempty" api:"max=2147483647" doc:"Estimate of the length of the answer in tokens."`
}

// configOverride are settings of the policy, and how the request counts as load.
type configOverride struct {
	OverlapScoreCredit    *float64 `json:"overlap_score_credit,omitempty" api:"min=0" doc:"How much of a cached prefix counts: 1 is all."`
	PrefillLoadScale      *float64 `json:"prefill_load_scale,omitempty" api:"min=0" doc:"Weight of prefill load in the cost."`
	RouterTemperature     *float64 `json:"router_temperature,omitempty" api:"min=0" doc:"Chance in the pick: 0 takes the cheapest."`
	SharedCacheMultiplier *float64 `json:"shared_cache_multiplier,omitempty" api:"min=0,max=1" doc:"How much of what the shared cache holds counts."`
	OverlapScoreWeight    *float64 `json:"overlap_score_weight,omitempty" api:"min=0" doc:"Old name of prefill_load_scale; counts before it, and 0 also sets overlap_score_credit to 0."`
	AssumeKvReuse         *bool    `json:"assume_kv_reuse,omitempty" doc:"Whether prompts that begin alike share their blocks on a worker; false counts all of this one as its own."`
	TrackPrefillTokens    *bool    `json:"track_prefill_tokens,omitempty" doc:"Whether prompt tokens count as load; false books none."`
}

type sessionContext struct {
	SessionID       string              `json:"session_id" api:"most=256" doc:"Session that the request belongs to; an empty one is none."`
	ParentSessionID *string             `json:"parent_session_id,omitempty" api:"most=256" doc:"Session that this one came from; policies see it."`
	SessionFinal    *bool               `json:"session_final,omitempty" doc:"Whether this is the session's last request; policies see it."`
	InputTrigger    *string             `json:"input_trigger,omitempty" api:"oneof=user_message|tool_result|other" doc:"What caused the request; policies see it."`
	AgentHeaders    map[string][]string `json:"agent_headers,omitempty" api:"most=64" doc:"Headers of the agent; values of at most 16384 bytes, 32768 in all."`
}

type targetFields struct {
	WorkerID fleet.WorkerID `json:"worker_id" doc:"Worker."`
	DpRank   *uint32        `json:"dp_rank,omitempty" doc:"Rank; all of the worker where left out."`
}

type pinFields struct {
	WorkerID fleet.WorkerID `json:"worker_id" doc:"Worker."`
	DpRank   uint32         `json:"dp_rank" doc:"Rank."`
}

type constraints struct {
	RequiredTaints  []string           `json:"required_taints,omitempty" api:"most=64" doc:"Taints that a worker must all have."`
	PreferredTaints map[string]float64 `json:"preferred_taints,omitempty" api:"most=64" doc:"Weight by taint, a finite 32-bit number: above 0 attracts, below 0 repels."`
}

type selectAnswer struct {
	SelectionID            *string        `json:"selection_id,omitempty" doc:"Of the caller, or made for a booking."`
	ModelName              string         `json:"model_name" doc:"Base model."`
	RoutingGroup           string         `json:"routing_group" doc:"Routing group."`
	WorkerID               fleet.WorkerID `json:"worker_id" doc:"Worker to send the request to."`
	DpRank                 uint32         `json:"dp_rank" doc:"Rank of it."`
	Endpoint               string         `json:"endpoint" doc:"Base URL of the worker."`
	BlockSize              int            `json:"block_size" doc:"Tokens in a block."`
	Overlap                overlap        `json:"overlap" doc:"What the worker holds of the prompt, in tokens."`
	EffectivePrefillTokens int            `json:"effective_prefill_tokens" doc:"Prompt tokens that the rank has to compute: all but those that it holds, which count in part where they are not on the device."`
	PotentialDecodeBlocks  int64          `json:"potential_decode_blocks" doc:"Blocks in use on the rank with this prompt."`
	DecodeBusy             *bool          `json:"decode_busy,omitempty" doc:"Whether the rank has as many requests as the class bears; only where the class has such a bound."`
	WorkerLoad             *workerLoad    `json:"worker_load,omitempty" doc:"Load of the rank; only of an advisory."`
}

// overlap is what the chosen worker holds of the prompt, in tokens: gpu, cpu and
// disk are cumulative, dp is what each of its ranks holds on its devices.
type overlap struct {
	LongestMatched int            `json:"longest_matched" doc:"Tokens from the start that a rank holds on any tier: the most of any rank."`
	GPU            int            `json:"gpu" doc:"Those on the device: the most of any rank."`
	DP             map[uint32]int `json:"dp" doc:"Those on the device, by rank."`
	CPU            int            `json:"cpu" doc:"Those on the device or in host memory: the most of any rank."`
	Disk           int            `json:"disk" doc:"Those on the device, in host memory, on disk or in shared storage: the most of any rank."`
}

type workerLoad struct {
	ActivePrefillTokens  int64 `json:"active_prefill_tokens" doc:"Prompt tokens booked on the rank that are left to compute."`
	PrefillTokenCapacity int   `json:"prefill_token_capacity" doc:"max_num_batched_tokens of the worker, 10000000 where it gives none."`
	TotalKvBlocks        *int  `json:"total_kv_blocks,omitempty" doc:"total_kv_blocks of the worker, where it gives them."`
	PrefillBusy          *bool `json:"prefill_busy,omitempty" doc:"Whether the rank has as many prompt tokens as the class bears; only where the class has such a bound."`
}

type bookedAnswer struct {
	selectAnswer
	SequenceHashes     []int64 `json:"sequence_hashes" doc:"Of each full block of the prompt, the hash over all blocks up to it."`
	IslTokens          int     `json:"isl_tokens" doc:"Length of the prompt in tokens."`
	TrackPrefillTokens bool    `json:"track_prefill_tokens" doc:"Whether prompt tokens count as load."`
}

type reserveBody struct {
	SelectionID string `json:"selection_id" api:"most=256" doc:"Of a kept selection, or, with worker_id, the name of the new booking."`
	partitionFields
	promptFields
	WorkerID               *fleet.WorkerID `json:"worker_id,omitempty" doc:"Worker to book. Left out: the kept selection, and no other field but model_name and routing_group counts."`
	DpRank                 *uint32         `json:"dp_rank,omitempty" doc:"Rank to book; the worker's only one may be left out."`
	EffectivePrefillTokens *int            `json:"effective_prefill_tokens,omitempty" api:"min=0,max=2147483647" doc:"Prompt tokens that are left to prefill, at most the length of the prompt; 0 where left out."`
	TrackPrefillTokens     *bool           `json:"track_prefill_tokens,omitempty" doc:"Whether prompt tokens count as load; before the one in router_config_override."`
	loadFields
}

type reservedAnswer struct {
	SelectionID  string         `json:"selection_id" doc:"Name of the booking."`
	ModelName    string         `json:"model_name" doc:"Base model."`
	RoutingGroup string         `json:"routing_group" doc:"Routing group."`
	WorkerID     fleet.WorkerID `json:"worker_id" doc:"Worker to send the request to."`
	DpRank       uint32         `json:"dp_rank" doc:"Rank of it."`
	Endpoint     string         `json:"endpoint" doc:"Base URL of the worker."`
}

type nothingBody struct{}

type outputBlockBody struct {
	DecayFraction *float64 `json:"decay_fraction,omitempty" api:"min=0,max=1" doc:"How much the request's own blocks still count for; as before where left out."`
}

type statusAnswer struct {
	Status string `json:"status" doc:"ok."`
}

// workerFields are what a worker's body and its answer have beside its names.
type workerFields struct {
	Endpoint              *string           `json:"endpoint" doc:"Base URL, http://HOST:PORT; no other worker has it."`
	KvEventsEndpoint      *string           `json:"kv_events_endpoint" doc:"ZMQ address of the KV events of a worker with one rank; tcp://*:PORT is a port of the router that the engine connects to. Required to be schedulable, here or by rank."`
	KvEventsEndpoints     map[uint32]string `json:"kv_events_endpoints,omitempty" api:"most=4096" doc:"ZMQ address of the KV events, by rank; counts before kv_events_endpoint."`
	ReplayEndpoint        *string           `json:"replay_endpoint" doc:"ZMQ address that replays events; only for a worker with one rank."`
	BlockSize             *uint32           `json:"block_size" api:"max=1048576" doc:"Tokens in a block, the same for all of a partition; the engine is asked where left out."`
	DataParallelStartRank *uint32           `json:"data_parallel_start_rank" api:"max=4095" doc:"First rank; 0 where left out."`
	DataParallelSize      *uint32           `json:"data_parallel_size" api:"max=4096" doc:"Number of ranks; 1 where left out. First rank and this are at most 4096 together."`
	MaxNumBatchedTokens   *uint64           `json:"max_num_batched_tokens" api:"max=1073741824" doc:"Batch limit of the engine in tokens."`
	TotalKvBlocks         *uint64           `json:"total_kv_blocks" api:"max=1073741824" doc:"Blocks in the cache of a rank."`
	StableRoutingID       *string           `json:"stable_routing_id" api:"most=256" doc:"Name of the place of the worker, which a replacement keeps."`
	IsEagle               *bool             `json:"is_eagle" doc:"Whether blocks are hashed over one token more; the same for all of a partition."`
	Taints                []string          `json:"taints" api:"most=64" doc:"Taints of the worker."`
	TopologyDomains       map[string]string `json:"topology_domains" api:"most=64" doc:"Where the worker stands, by kind of place."`
	KvEventSourceMode     *string           `json:"kv_event_source_mode,omitempty" api:"oneof=framework_v1" doc:"Who publishes the events: the engine."`
	transferFields
}

// transferFields steer the transfer of KV blocks between workers, which this
// service does not do: they may be null and nothing else.
type transferFields struct {
	KvTransferDomain                 *string           `json:"kv_transfer_domain" api:"null" doc:"Not supported."`
	KvTransferEnforcement            *string           `json:"kv_transfer_enforcement" api:"null" doc:"Not supported."`
	KvTransferPreferredWeight        *float64          `json:"kv_transfer_preferred_weight" api:"null" doc:"Not supported."`
	RouterHintWorkerType             *string           `json:"router_hint_worker_type,omitempty" api:"null" doc:"Not supported."`
	RouterHintSourceControlEndpoints map[uint32]string `json:"router_hint_source_control_endpoints,omitempty" api:"null" doc:"Not supported."`
}

type workerBody struct {
	WorkerID *fleet.WorkerID `json:"worker_id" api:"required" doc:"Number of the worker, one of its kind in the router."`
	partitionFields
	workerFields
	// Of these null is no way to leave them out.
	KvEventsEndpoints                map[uint32]string `json:"kv_events_endpoints,omitempty" api:"value,most=4096" doc:"ZMQ address of the KV events, by rank; counts before kv_events_endpoint."`
	Taints                           []string          `json:"taints,omitempty" api:"value,most=64" doc:"Taints of the worker."`
	TopologyDomains                  map[string]string `json:"topology_domains,omitempty" api:"value,most=64" doc:"Where the worker stands, by kind of place."`
	RouterHintSourceControlEndpoints map[uint32]string `json:"router_hint_source_control_endpoints,omitempty" api:"value,most=0" doc:"Not supported."`
}

type workerPatch struct {
	workerFields
}

type workerAnswer struct {
	WorkerID     uint64 `json:"worker_id" doc:"Number of the worker."`
	ModelName    string `json:"model_name" doc:"Base model."`
	RoutingGroup string `json:"routing_group" doc:"Routing group."`
	Lifecycle    string `json:"lifecycle" api:"oneof=incomplete|schedulable|draining|unschedulable" doc:"schedulable; incomplete while it lacks something; draining while it gets no new requests; unschedulable when it is removed or ejected."`
	workerFields
	NotSchedulableReasons []string `json:"not_schedulable_reasons,omitempty" doc:"What it lacks."`
}

type readyAnswer struct {
	Ready              bool           `json:"ready" doc:"Whether any worker is schedulable."`
	SchedulableWorkers int            `json:"schedulable_workers" doc:"How many are."`
	Workers            []workerAnswer `json:"workers" doc:"All workers."`
}

type partitionLoads struct {
	ModelName        string     `json:"model_name" doc:"Base model."`
	RoutingGroup     string     `json:"routing_group" doc:"Routing group."`
	Loads            []rankLoad `json:"loads" doc:"Load of each schedulable rank."`
	PendingCount     int        `json:"pending_count" doc:"Selections that wait in the queue."`
	PendingIslTokens int64      `json:"pending_isl_tokens" doc:"Prompt tokens of those."`
}

type rankLoad struct {
	WorkerID               fleet.WorkerID `json:"worker_id" doc:"Worker."`
	DpRank                 uint32         `json:"dp_rank" doc:"Rank."`
	PotentialPrefillTokens int64          `json:"potential_prefill_tokens" doc:"Prompt tokens that are left to compute."`
	PotentialDecodeBlocks  int64          `json:"potential_decode_blocks" doc:"Blocks in use."`
	ActiveRequests         int64          `json:"active_requests" doc:"Bookings."`
}

// lookupBody is a prompt to look at.
type lookupBody struct {
	partitionFields
	promptFields
	RouterConfigOverride *configOverride `json:"router_config_override,omitempty" doc:"Settings of the policy for this request alone, and how the request counts as load."`
}

type overlapAnswer struct {
	BlockSize   int           `json:"block_size" doc:"Tokens in a block."`
	NumBlocks   int           `json:"num_blocks" doc:"Full blocks of the prompt."`
	Workers     []rankOverlap `json:"workers" doc:"What each schedulable rank holds, in blocks."`
	SharedCache sharedCache   `json:"shared_cache" doc:"What the shared cache holds, in blocks."`
}

// rankOverlap counts blocks. Host and disk blocks are those from the prompt's
// start that the rank holds there or on a faster tier; extensions are what they
// add to the faster ones.
type rankOverlap struct {
	WorkerID                  fleet.WorkerID `json:"worker_id" doc:"Worker."`
	DpRank                    uint32         `json:"dp_rank" doc:"Rank."`
	DeviceBlocks              int            `json:"device_blocks" doc:"Blocks from the start that it holds on the device."`
	HostPinnedBlocks          int            `json:"host_pinned_blocks" doc:"Those on the device or in host memory."`
	DiskBlocks                int            `json:"disk_blocks" doc:"Those on any tier."`
	HostPinnedExtensionBlocks int            `json:"host_pinned_extension_blocks" doc:"What host memory adds."`
	DiskExtensionBlocks       int            `json:"disk_extension_blocks" doc:"What disk and shared storage add."`
	SharedBeyondDeviceBlocks  *int           `json:"shared_beyond_device_blocks" doc:"Blocks of the shared cache beyond those on the device; null where it was not asked."`
}

type sharedCache struct {
	Enabled        bool        `json:"enabled" doc:"Whether a shared cache was asked."`
	TotalHitBlocks int         `json:"total_hit_blocks" doc:"Blocks that it holds."`
	Ranges         [][2]uint32 `json:"ranges" doc:"Which: first block, and the one after the last."`
	Error          *string     `json:"error" doc:"Why there is no answer of it."`
}

type queryBody struct {
	partitionFields
	TokenIDs  []uint32 `json:"token_ids" api:"required" doc:"Token ids of the prompt, as the engine has them. An empty list is a prompt without tokens."`
	LoraName  *string  `json:"lora_name,omitempty" doc:"Adapter: part of the hashes. Where a worker of the model lists it, only workers that have it loaded serve."`
	CacheSalt *string  `json:"cache_salt,omitempty" doc:"Part of the hashes: prompts of different salts share no cache."`
}

type queryByHashBody struct {
	partitionFields
	BlockHashes []int64 `json:"block_hashes" api:"required,max=18446744073709551615" doc:"The prompt as hashes of its full blocks, signed or not, where there are no token ids: then with sequence_hashes, as many, and isl_tokens. A booking of a worker needs none."`
}

// queryAnswer is what each rank holds, in tokens: scores (of the devices) by worker
// and rank, and by worker as of a selection. Who holds nothing is left out.
// frequencies is always empty, as in Dynamo's service.
type queryAnswer struct {
	Scores      map[string]map[string]int `json:"scores" doc:"Tokens from the start on the device, by worker and rank; who holds nothing is left out."`
	Frequencies []int                     `json:"frequencies" doc:"Always empty."`
	Instances   map[string]overlap        `json:"instances" doc:"What each worker holds, in tokens."`
}

// dumpedPartition is one partition of a dump, by the name MODEL:GROUP.
type dumpedPartition struct {
	BlockSize int               `json:"block_size" doc:"Tokens in a block."`
	Events    []json.RawMessage `json:"events" doc:"Stored blocks in the form of KV events; KEY is MODEL:GROUP."`
}

type peerBody struct {
	Endpoint string `json:"endpoint" doc:"Address of the peer."`
}
