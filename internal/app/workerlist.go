package app

import (
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// tokenizeUnsupported is the reason of a worker that serves but whose engine
// does not tokenise messages: its chats are routed on load alone.
const tokenizeUnsupported = "tokenize_unsupported"

// adapterFailed begins the reason of a worker that serves but whose engine did not
// load or unload a managed adapter; it is tried again.
const adapterFailed = "adapter_failed: "

// adapterNoSlot begins the reason of a worker whose slots are filled by adapters that
// nobody manages, so that a managed one has no place there.
const adapterNoSlot = "adapter_no_slot: "

// eventsUnconnected begins the reason of a worker that serves but of which nobody can be
// reached who publishes a rank's KV events.
const eventsUnconnected = "kv_events_unconnected: "

// eventsFailed begins the reason of a worker that serves but whose KV events do not come as
// they should: the socket, or what the engine says over it, is wrong.
const eventsFailed = "kv_events_failed: "

// breakerOnTrial is the reason of a worker that serves one call at a time.
const breakerOnTrial = "breaker_half_open: one call at a time, until enough have gone well"

// workerList is the catalog's workers with what the core, the tokenizer and the
// manager of adapters know of them.
type workerList struct {
	catalog   *catalog.Reconciler
	indexes   indexes
	scraper   *scrape.Scraper
	core      *core.SelectionCore
	tokenizer *prompt.Tokenizer
	adapters  *adapters.Manager
	upstream  *upstream.Client
}

var _ admin.WorkerList = workerList{}

// Workers lists all workers by id.
func (l workerList) Workers() []admin.Worker {
	views, ranks, managed, now := l.catalog.Workers(), l.ranks(), l.adapters.Adapters(), time.Now()
	out := make([]admin.Worker, len(views))
	for i := range views {
		out[i] = l.worker(views[i], ranks[views[i].ID], managed, now)
	}
	return out
}

// Worker finds a worker by id or name.
func (l workerList) Worker(ref string) (admin.Worker, bool) {
	v, ok := l.catalog.Worker(ref)
	if !ok {
		return admin.Worker{}, false
	}
	return l.worker(v, l.ranks()[v.ID], l.adapters.Adapters(), time.Now()), true
}

func (l workerList) worker(v catalog.View, ranks []core.RankView, managed []adapters.View, now time.Time) admin.Worker {
	l.add(&v, ranks, managed)
	out := admin.Worker{View: v, Ranks: make([]admin.WorkerRank, len(ranks))}
	for i, r := range ranks {
		w := fleet.Worker{ID: v.ID, Rank: r.Rank}
		kv := l.indexes.Status(v.Partition(), w, false)
		rank := admin.WorkerRank{Rank: r.Rank, Load: r.Load, Source: kv.Source, CachedBlocks: kv.Blocks, Trusted: kv.Trusted, Untrusted: kv.Untrusted, Unconnected: kv.Unconnected, Dropped: kv.Dropped}
		if !kv.LastAt.IsZero() {
			age := now.Sub(kv.LastAt).Milliseconds()
			rank.EventAgeMs = &age
		}
		if report, ok := l.scraper.Report(w); ok {
			rank.Report = reported(report, now)
		}
		for _, reason := range []string{ofEvents(r.Rank, v.KVEvents[int(r.Rank)], &kv), ofBlocks(r.Rank, &kv)} {
			if reason != "" {
				out.Reasons = append(out.Reasons, reason)
			}
		}
		out.Ranks[i] = rank
	}
	return out
}

// ofEvents is what is wrong with the connection of a rank's events; empty for nothing.
func ofEvents(rank uint32, endpoint string, kv *admin.KV) string {
	switch {
	case kv.Fault != "":
		return fmt.Sprintf("%srank %d: %s: %s", eventsFailed, rank, endpoint, kv.Fault)
	case kv.Unconnected && fleet.Binds(endpoint):
		return fmt.Sprintf("%srank %d: nothing of its engine has come to %s", eventsUnconnected, rank, endpoint)
	case kv.Unconnected:
		return fmt.Sprintf("%srank %d: not connected to %s", eventsUnconnected, rank, endpoint)
	}
	return ""
}

// ofBlocks is what is wrong with the blocks that a rank's events tell of; empty for nothing.
func ofBlocks(rank uint32, kv *admin.KV) string {
	switch kv.Untrusted {
	case hashMismatch:
		return fmt.Sprintf("kv_%s: rank %d: its overlap counts as not trusted", hashMismatch, rank)
	case kvcache.DropBlockSizeMismatch.String():
		return fmt.Sprintf("kv_%s: rank %d: its events tell of blocks of %d tokens; its overlap counts as not trusted", kv.Untrusted, rank, kv.LeftOut)
	}
	return ""
}

// reported is what an engine says of a rank.
func reported(r load.Report, now time.Time) *admin.WorkerReport {
	out := &admin.WorkerReport{AgeMs: now.Sub(r.At).Milliseconds()}
	if r.Running >= 0 {
		out.Running = &r.Running
	}
	if r.Queued >= 0 {
		out.Queued = &r.Queued
	}
	if r.KVUsage >= 0 {
		out.KVUsage = &r.KVUsage
	}
	return out
}

// ranks are what the core knows of each worker's ranks.
func (l workerList) ranks() map[fleet.WorkerID][]core.RankView {
	out := map[fleet.WorkerID][]core.RankView{}
	for _, p := range l.core.Partitions() {
		for _, r := range p.Ranks {
			out[r.Worker] = append(out[r.Worker], r)
		}
	}
	return out
}

func (l workerList) add(v *catalog.View, ranks []core.RankView, managed []adapters.View) {
	v.Reasons = append(slices.Clone(v.Reasons), rankReasons(v.Reasons, ranks)...)
	if v.Lifecycle == core.Ready && l.upstream.OnTrial(v.URL) {
		v.Reasons = append(v.Reasons, breakerOnTrial)
	}
	if l.tokenizer.Refusing(v.Name) {
		v.Reasons = append(v.Reasons, tokenizeUnsupported)
	}
	for _, a := range managed {
		if a.Worker != v.Name || a.Reason == "" {
			continue
		}
		begins := adapterFailed
		if a.State == adapters.NoSlot {
			begins = adapterNoSlot
		}
		v.Reasons = append(v.Reasons, begins+a.Adapter+": "+a.Reason)
	}
}

// rankReasons are the core's reasons that a worker's own are not: once where all of
// its ranks have them, else with the rank.
func rankReasons(own []string, ranks []core.RankView) (out []string) {
	having := map[string]int{}
	for _, r := range ranks {
		for _, reason := range r.Reasons {
			having[reason]++
		}
	}
	for _, r := range ranks {
		for _, reason := range r.Reasons {
			if having[reason] < len(ranks) {
				reason = fmt.Sprintf("rank %d: %s", r.Rank, reason)
			}
			if !slices.Contains(own, reason) && !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}
