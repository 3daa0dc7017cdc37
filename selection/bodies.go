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
	TokenIDs       []uint32       `json:"token_ids,omitempty"`
	MmRoutingInfo  *mmRoutingInfo `json:"mm_routing_info,omitempty"`
	BlockMmInfos   []*blockMmInfo `json:"block_mm_infos,omitempty"`
	BlockHashes    []int64        `json:"block_hashes,omitempty"`
	SequenceHashes []int64        `json:"sequence_hashes,omitempty"`
	IslTokens      *int           `json:"isl_tokens,omitempty" api:"min=1"`
	LoraName       *string        `json:"lora_name,omitempty"`
	CacheSalt      *string        `json:"cache_salt,omitempty"`
	IsEagle        *bool          `json:"is_eagle,omitempty"`
}

type mmRoutingInfo struct {
	RoutingTokenIDs []uint32       `json:"routing_token_ids"`
	BlockMmInfos    []*blockMmInfo `json:"block_mm_infos"`
}

// blockMmInfo is what touches one block of tokens; null for nothing.
type blockMmInfo struct {
	MmObjects []mmObject `json:"mm_objects"`
}

type mmObject struct {
	MmHash  uint64     `json:"mm_hash"`
	Offsets [][2]int64 `json:"offsets"`
}

type partitionFields struct {
	ModelName    *string `json:"model_name,omitempty" api:"value"`
	RoutingGroup *string `json:"routing_group,omitempty" api:"value"`
}

// selectBody is a selection that books nothing.
type selectBody struct {
	bookBody
	Advisory bool `json:"advisory,omitempty"`
}

// bookBody is a selection that books.
type bookBody struct {
	SelectionID *string `json:"selection_id,omitempty"`
	partitionFields
	promptFields
	RouterConfigOverride *configOverride  `json:"router_config_override,omitempty"`
	ExpectedOutputTokens *uint32          `json:"expected_output_tokens,omitempty"`
	PriorityJump         *float64         `json:"priority_jump,omitempty" api:"min=0"`
	StrictPriority       *uint32          `json:"strict_priority,omitempty"`
	SessionID            *string          `json:"session_id,omitempty"`
	SessionContext       *sessionContext  `json:"session_context,omitempty"`
	AffinityTarget       *targetFields    `json:"affinity_target,omitempty"`
	PinnedWorker         *pinFields       `json:"pinned_worker,omitempty"`
	AllowedWorkerIDs     []fleet.WorkerID `json:"allowed_worker_ids,omitempty"`
	RoutingConstraints   *constraints     `json:"routing_constraints,omitempty" api:"value"`
}

// configOverride are settings of the policy, and how the request counts as load.
type configOverride struct {
	OverlapScoreCredit    *float64 `json:"overlap_score_credit,omitempty" api:"min=0"`
	PrefillLoadScale      *float64 `json:"prefill_load_scale,omitempty" api:"min=0"`
	RouterTemperature     *float64 `json:"router_temperature,omitempty" api:"min=0"`
	SharedCacheMultiplier *float64 `json:"shared_cache_multiplier,omitempty" api:"min=0,max=1"`
	OverlapScoreWeight    *float64 `json:"overlap_score_weight,omitempty" api:"min=0"` // the old name of prefill_load_scale
	AssumeKvReuse         *bool    `json:"assume_kv_reuse,omitempty"`
	TrackPrefillTokens    *bool    `json:"track_prefill_tokens,omitempty"`
}

type sessionContext struct {
	SessionID       string              `json:"session_id"`
	ParentSessionID *string             `json:"parent_session_id,omitempty"`
	SessionFinal    *bool               `json:"session_final,omitempty"`
	InputTrigger    *string             `json:"input_trigger,omitempty" api:"oneof=user_message|tool_result|other"`
	AgentHeaders    map[string][]string `json:"agent_headers,omitempty"`
}

type targetFields struct {
	WorkerID fleet.WorkerID `json:"worker_id"`
	DpRank   *uint32        `json:"dp_rank,omitempty"`
}

type pinFields struct {
	WorkerID fleet.WorkerID `json:"worker_id"`
	DpRank   uint32         `json:"dp_rank"`
}

type constraints struct {
	RequiredTaints  []string           `json:"required_taints,omitempty"`
	PreferredTaints map[string]float64 `json:"preferred_taints,omitempty"`
}

type selectAnswer struct {
	SelectionID            *string        `json:"selection_id,omitempty"`
	ModelName              string         `json:"model_name"`
	RoutingGroup           string         `json:"routing_group"`
	WorkerID               fleet.WorkerID `json:"worker_id"`
	DpRank                 uint32         `json:"dp_rank"`
	Endpoint               string         `json:"endpoint"`
	BlockSize              int            `json:"block_size"`
	Overlap                overlap        `json:"overlap"`
	EffectivePrefillTokens int            `json:"effective_prefill_tokens"`
	PotentialDecodeBlocks  int64          `json:"potential_decode_blocks"`
	DecodeBusy             *bool          `json:"decode_busy,omitempty"`
	WorkerLoad             *workerLoad    `json:"worker_load,omitempty"` // of an advisory
}

// overlap is what the chosen worker holds of the prompt, in tokens: gpu, cpu and
// disk are cumulative, dp is what each of its ranks holds on its devices.
type overlap struct {
	LongestMatched int            `json:"longest_matched"`
	GPU            int            `json:"gpu"`
	DP             map[uint32]int `json:"dp"`
	CPU            int            `json:"cpu"`
	Disk           int            `json:"disk"`
}

type workerLoad struct {
	ActivePrefillTokens  int64 `json:"active_prefill_tokens"`
	PrefillTokenCapacity int   `json:"prefill_token_capacity"` // 10000000 where the worker gives none
	TotalKvBlocks        *int  `json:"total_kv_blocks,omitempty"`
	PrefillBusy          *bool `json:"prefill_busy,omitempty"`
}

type bookedAnswer struct {
	selectAnswer
	SequenceHashes     []int64 `json:"sequence_hashes"`
	IslTokens          int     `json:"isl_tokens"`
	TrackPrefillTokens bool    `json:"track_prefill_tokens"`
}

type reserveBody struct {
	SelectionID string `json:"selection_id"`
	partitionFields
	promptFields
	WorkerID               *fleet.WorkerID `json:"worker_id,omitempty"`
	DpRank                 *uint32         `json:"dp_rank,omitempty"`
	ExpectedOutputTokens   *uint32         `json:"expected_output_tokens,omitempty"`
	EffectivePrefillTokens *int            `json:"effective_prefill_tokens,omitempty" api:"min=0"`
	TrackPrefillTokens     *bool           `json:"track_prefill_tokens,omitempty"`
	RouterConfigOverride   *configOverride `json:"router_config_override,omitempty"`
	SessionID              *string         `json:"session_id,omitempty"`
	SessionContext         *sessionContext `json:"session_context,omitempty"`
}

type reservedAnswer struct {
	SelectionID  string         `json:"selection_id"`
	ModelName    string         `json:"model_name"`
	RoutingGroup string         `json:"routing_group"`
	WorkerID     fleet.WorkerID `json:"worker_id"`
	DpRank       uint32         `json:"dp_rank"`
	Endpoint     string         `json:"endpoint"`
}

type nothingBody struct{}

type outputBlockBody struct {
	DecayFraction *float64 `json:"decay_fraction,omitempty" api:"min=0,max=1"`
}

type statusAnswer struct {
	Status string `json:"status"`
}

// workerFields are what a worker's body and its answer have beside its names.
type workerFields struct {
	Endpoint              *string           `json:"endpoint"`
	KvEventsEndpoint      *string           `json:"kv_events_endpoint"`
	KvEventsEndpoints     map[uint32]string `json:"kv_events_endpoints,omitempty"`
	ReplayEndpoint        *string           `json:"replay_endpoint"`
	BlockSize             *uint32           `json:"block_size"`
	DataParallelStartRank *uint32           `json:"data_parallel_start_rank"`
	DataParallelSize      *uint32           `json:"data_parallel_size"`
	MaxNumBatchedTokens   *uint64           `json:"max_num_batched_tokens"`
	TotalKvBlocks         *uint64           `json:"total_kv_blocks"`
	StableRoutingID       *string           `json:"stable_routing_id"`
	IsEagle               *bool             `json:"is_eagle"`
	Taints                []string          `json:"taints"`
	TopologyDomains       map[string]string `json:"topology_domains"`
	KvEventSourceMode     *string           `json:"kv_event_source_mode,omitempty" api:"oneof=framework_v1"` // framework_v1
	transferFields
}

// transferFields steer the transfer of KV blocks between workers, which this
// service does not do: they may be null and nothing else.
type transferFields struct {
	KvTransferDomain                 *string           `json:"kv_transfer_domain" api:"null"`
	KvTransferEnforcement            *string           `json:"kv_transfer_enforcement" api:"null"`
	KvTransferPreferredWeight        *float64          `json:"kv_transfer_preferred_weight" api:"null"`
	RouterHintWorkerType             *string           `json:"router_hint_worker_type,omitempty" api:"null"`
	RouterHintSourceControlEndpoints map[uint32]string `json:"router_hint_source_control_endpoints,omitempty" api:"null"`
}

type workerBody struct {
	WorkerID *uint64 `json:"worker_id" api:"required"`
	partitionFields
	workerFields
	// Of these null is no way to leave them out.
	KvEventsEndpoints                map[uint32]string `json:"kv_events_endpoints,omitempty" api:"value"`
	Taints                           []string          `json:"taints,omitempty" api:"value"`
	TopologyDomains                  map[string]string `json:"topology_domains,omitempty" api:"value"`
	RouterHintSourceControlEndpoints map[uint32]string `json:"router_hint_source_control_endpoints,omitempty" api:"value"`
}

type workerPatch struct {
	workerFields
}

type workerAnswer struct {
	WorkerID     uint64 `json:"worker_id"`
	ModelName    string `json:"model_name"`
	RoutingGroup string `json:"routing_group"`
	Lifecycle    string `json:"lifecycle" api:"oneof=incomplete|schedulable|draining|unschedulable"`
	workerFields
	NotSchedulableReasons []string `json:"not_schedulable_reasons,omitempty"`
}

type readyAnswer struct {
	Ready              bool           `json:"ready"`
	SchedulableWorkers int            `json:"schedulable_workers"`
	Workers            []workerAnswer `json:"workers"`
}

type partitionLoads struct {
	ModelName        string     `json:"model_name"`
	RoutingGroup     string     `json:"routing_group"`
	Loads            []rankLoad `json:"loads"`
	PendingCount     int        `json:"pending_count"`
	PendingIslTokens int64      `json:"pending_isl_tokens"`
}

type rankLoad struct {
	WorkerID               fleet.WorkerID `json:"worker_id"`
	DpRank                 uint32         `json:"dp_rank"`
	PotentialPrefillTokens int64          `json:"potential_prefill_tokens"`
	PotentialDecodeBlocks  int64          `json:"potential_decode_blocks"`
	ActiveRequests         int64          `json:"active_requests"`
}

// lookupBody is a prompt to look at.
type lookupBody struct {
	partitionFields
	promptFields
	RouterConfigOverride *configOverride `json:"router_config_override,omitempty"`
}

type overlapAnswer struct {
	BlockSize   int           `json:"block_size"`
	NumBlocks   int           `json:"num_blocks"`
	Workers     []rankOverlap `json:"workers"`
	SharedCache sharedCache   `json:"shared_cache"`
}

// rankOverlap counts blocks. Host and disk blocks are those from the prompt's
// start that the rank holds there or on a faster tier; extensions are what they
// add to the faster ones.
type rankOverlap struct {
	WorkerID                  fleet.WorkerID `json:"worker_id"`
	DpRank                    uint32         `json:"dp_rank"`
	DeviceBlocks              int            `json:"device_blocks"`
	HostPinnedBlocks          int            `json:"host_pinned_blocks"`
	DiskBlocks                int            `json:"disk_blocks"`
	HostPinnedExtensionBlocks int            `json:"host_pinned_extension_blocks"`
	DiskExtensionBlocks       int            `json:"disk_extension_blocks"`
	SharedBeyondDeviceBlocks  *int           `json:"shared_beyond_device_blocks"`
}

type sharedCache struct {
	Enabled        bool        `json:"enabled"`
	TotalHitBlocks int         `json:"total_hit_blocks"`
	Ranges         [][2]uint32 `json:"ranges"`
	Error          *string     `json:"error"`
}

type queryBody struct {
	partitionFields
	TokenIDs  []uint32 `json:"token_ids" api:"required"`
	LoraName  *string  `json:"lora_name,omitempty"`
	CacheSalt *string  `json:"cache_salt,omitempty"`
}

type queryByHashBody struct {
	partitionFields
	BlockHashes []int64 `json:"block_hashes" api:"required"`
}

// queryAnswer is what each rank holds, in tokens: scores (of the devices) by worker
// and rank, and by worker as of a selection. Who holds nothing is left out.
// frequencies is always empty, as in Dynamo's service.
type queryAnswer struct {
	Scores      map[string]map[string]int `json:"scores"`
	Frequencies []int                     `json:"frequencies"`
	Instances   map[string]overlap        `json:"instances"`
}

// dumpedPartition is one partition of a dump, by the name MODEL:GROUP.
type dumpedPartition struct {
	BlockSize int               `json:"block_size"`
	Events    []json.RawMessage `json:"events"`
}

type peerBody struct {
	Endpoint string `json:"endpoint"`
}
