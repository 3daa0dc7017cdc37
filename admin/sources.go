package admin

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
)

// Modules keeps guest modules by name; what is put is checked first.
type Modules interface {
	Put(ctx context.Context, name string, wasm []byte, dry bool) (library.Stored, error)
	Delete(name string) error
	ModuleViews
}

// ModuleViews shows the modules.
type ModuleViews interface {
	Get(name string) (store.Module, error)
	List() []store.Module
	Bytes(digest string) ([]byte, error)
	Directory() (library.Status, bool)
}

// Policies keeps policies with their revisions.
type Policies interface {
	Put(ctx context.Context, name string, spec policy.Spec, by string, more ...host.Because) (info host.RevisionInfo, created bool, err error)
	Remove(ctx context.Context, name, by string, more ...host.Because) error
	PolicyViews
	Rollouts
	Trials
}

// PolicyViews shows the policies.
type PolicyViews interface {
	List() []host.PolicyInfo
	Show(name string) (host.PolicyInfo, error)
}

// Rollouts choose the revision that decides, and those that run beside it.
type Rollouts interface {
	Activate(ctx context.Context, name string, number int, by string, more ...host.Because) (active, previous int, err error)
	SetShadow(ctx context.Context, name string, spec host.ShadowSpec, by string, more ...host.Because) (host.Change, error)
	SetCanary(ctx context.Context, name string, spec host.CanarySpec, by string, more ...host.Because) (host.Change, error)
	Promote(ctx context.Context, name, by string, more ...host.Because) (active, previous int, err error)
	Rollback(ctx context.Context, name string, to int, by string, more ...host.Because) (active, previous int, err error)
}

// Trials ask specifications and revisions about recorded requests; nothing
// outside hears of it.
type Trials interface {
	Trial(ctx context.Context, name string, spec policy.Spec, frames []*policy.Recording) (host.TrialResult, error)
	Explain(ctx context.Context, name string, revision int, frame *policy.Recording) (host.ExplainReport, error)
}

// WorkerList shows the workers of all sources.
type WorkerList interface {
	Workers() []Worker
	Worker(ref string) (Worker, bool)
}

// Worker is a worker with what is known of its ranks.
type Worker struct {
	catalog.View
	// Ranks are those that the core knows: none of a worker that is incomplete.
	Ranks []WorkerRank `json:"ranks"`
}

// WorkerRank is one rank's load and cache.
type WorkerRank struct {
	Rank uint32 `json:"rank"`
	// Load is what the requests that were sent there make.
	Load core.LoadView `json:"load"`
	// Report is what the engine says; absent when it says nothing, or has not lately.
	Report *WorkerReport `json:"report,omitempty"`
	// Source is where it is known from what the rank has cached: events, its own, or
	// remote, another router's index, which is then asked how many blocks there are.
	Source string `json:"kv_source,omitempty"`
	// CachedBlocks are by tier. Trusted tells that the event stream lost nothing that
	// was not had again.
	CachedBlocks map[string]int `json:"cached_blocks"`
	Trusted      bool           `json:"trusted"`
	// Untrusted says why it is not trusted, where that is known.
	Untrusted string `json:"untrusted,omitempty"`
	// Unconnected tells that there has been no connection to the publisher of the
	// rank's KV events for some seconds; false where the record names none.
	Unconnected bool `json:"unconnected,omitempty"`
	// EventAgeMs is the time since the last KV event in milliseconds; absent when none
	// came. Dropped are the events that were not taken over, by reason.
	EventAgeMs *int64            `json:"event_age_ms,omitempty"`
	Dropped    map[string]uint64 `json:"dropped"`
}

// WorkerReport is what an engine says of a rank; what it does not say is absent.
type WorkerReport struct {
	Running *int64   `json:"running,omitempty"`
	Queued  *int64   `json:"queued,omitempty"`
	KVUsage *float64 `json:"kv_usage,omitempty"` // used part of the KV cache, 0 to 1
	AgeMs   int64    `json:"age_ms"`             // since it was made, in milliseconds
}

// Drains take workers out for new requests. catalog.Reconciler is one.
type Drains interface {
	Drain(ref string, limit time.Duration) (catalog.View, error)
	Undrain(ctx context.Context, ref string) (catalog.View, error)
}

// WorkerSources shows how the sources of workers stand. catalog.Sources is one.
type WorkerSources interface {
	Status() []catalog.SourceStatus
}

// WorkerSource keeps the workers that were put by API.
type WorkerSource interface {
	Put(ctx context.Context, rec fleet.Record) (view catalog.View, created bool, err error)
	Delete(ctx context.Context, ref string) (fleet.Record, error)
}

// Partitions shows what the core knows.
type Partitions interface {
	Partitions() []core.PartitionView
}

// KvStatus tells how the cache of a rank stands; hashes asks for the blocks one
// by one.
type KvStatus interface {
	Status(key fleet.PartitionKey, w fleet.Worker, hashes bool) KV
}

// Where what is known of a rank's cache comes from.
const (
	KVFromEvents    = "events"    // the engine's own KV events
	KVFromDecisions = "decisions" // what the router decided
	KVRemote        = "remote"    // another router's index; how many blocks there are is known there
)

// KV is what is known of one rank's cache.
type KV struct {
	Source  string         // KVFromEvents, KVFromDecisions or KVRemote
	Blocks  map[string]int // blocks by tier
	Trusted bool           // whether the event stream has no unrepaired gap
	// Untrusted says why it is not trusted, where that is known.
	Untrusted string
	// Unconnected tells that there has been no connection to the publisher for some
	// seconds.
	Unconnected bool
	Fault       string            // what is wrong with the connection; empty while nothing is known to be
	LastSeq     uint64            // of the last batch that was applied
	LastAt      time.Time         // when that was; zero for none
	Dropped     map[string]uint64 // events that were dropped, by reason
	LeftOut     int               // size in tokens of the blocks that were left out because the partition has another; 0 for none
	// Hashes are the engine's names of the blocks by tier, each list in the order
	// of kvcache.EngineHash; nil unless asked for.
	Hashes map[string][]string
}

// Decisions keeps the records of the last decisions.
type Decisions interface {
	List(f core.DecisionFilter) []core.DecisionRecord
	Get(id string) (core.DecisionRecord, bool)
	// Recording is the decision of an id, to be made again.
	Recording(id string) (core.Recorded, bool)
}

// Parts are what the API shows and changes. All but Limits are required, and all
// are safe for concurrent use.
type Parts struct {
	Modules      Modules
	Policies     Policies
	Workers      WorkerList
	WorkerSource WorkerSource
	Drains       Drains
	Sources      WorkerSources
	Partitions   Partitions
	Kv           KvStatus
	Decisions    Decisions
	Metrics      prometheus.Gatherer
	Config       Reloader
	// Limits are those of the plugin runtime that hold now. Nil leaves them out of
	// what is shown of a policy.
	Limits func() host.Limits
	// Ready returns nil when the router is ready, else why not: a text without
	// addresses, since it is shown to everybody.
	Ready func() error
}

var (
	_ Modules       = (*library.Library)(nil)
	_ Policies      = (*host.PolicySource)(nil)
	_ Drains        = (*catalog.Reconciler)(nil)
	_ WorkerSources = (*catalog.Sources)(nil)
	_ WorkerSource  = (*api.Source)(nil)
	_ Partitions    = (*core.SelectionCore)(nil)
	_ Decisions     = (*core.DecisionLog)(nil)
)

func (p *Parts) validate() error {
	if p.Modules == nil || p.Policies == nil || p.Workers == nil || p.WorkerSource == nil || p.Partitions == nil ||
		p.Kv == nil || p.Decisions == nil || p.Metrics == nil || p.Config == nil || p.Ready == nil {
		return errors.New("admin: a part is missing")
	}
	return nil
}
