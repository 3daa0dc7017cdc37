package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// The engines, as fleet.Engines names them.
const (
	vllm   = "vllm"
	sglang = "sglang"
	llmd   = "llm-d"
	trtllm = "trtllm"
)

const (
	maxTokens  = 1 << 30 // as a record allows
	maxVersion = 64      // bytes
)

// mayBeSGLang tells whether nothing says that it is another engine.
func (s *answers) mayBeSGLang() bool {
	kind := s.kind()
	return kind == "" || kind == sglang
}

// kind is the engine by what it says: the owner of its models, else the form of
// its other answers.
func (s *answers) kind() string {
	for _, c := range s.models {
		if kind := ownedBy(c.OwnedBy); kind != "" {
			return kind
		}
	}
	switch {
	case s.info.sglang():
		return sglang
	case len(s.info.VLLM) > 0 || s.sources != nil:
		return vllm
	}
	return s.metrics.kind
}

// facts puts the answers together.
func (s *answers) facts(rec fleet.Record, host string) catalog.Facts {
	f := finder{answers: s, rec: rec, host: host}
	f.Engine = s.kind()
	if f.Engine == "" {
		f.untold("engine", "no owner of models that is known", modelsPath, infoPath, metricsPath)
	}
	if f.Engine == vllm && rec.Engine == llmd {
		f.Engine = llmd
	}
	f.Models = s.base()
	for _, name := range adaptersOf(s.models, f.Models) {
		f.Adapters = append(f.Adapters, fleet.Adapter{Name: name})
	}
	f.More = len(f.Models) == maxModels || len(f.Adapters) == fleet.MaxAdapters
	if len(f.Models) == 0 {
		f.untold("model", "no base model", modelsPath)
	}
	f.findVersion()
	switch f.Engine {
	case sglang:
		f.sglangFacts()
	case trtllm:
		f.trtllmFacts()
	default:
		f.vllmFacts()
	}
	slices.Sort(f.Untold)
	return f.Facts
}

// finder fills in the facts.
type finder struct {
	catalog.Facts
	*answers
	rec  fleet.Record
	host string
}

// untold says where a field was looked for, and what the places said instead of it.
// What follows a semicolon in why is a hint, which is given whatever they said.
func (f *finder) untold(field, why string, places ...string) {
	why, hint, hinted := strings.Cut(why, "; ")
	said := []string{}
	for _, place := range places {
		text := place + ": " + why
		if err := f.silence[place]; err != nil {
			text = place + ": " + err.Error()
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if len(places) == 0 {
		said = append(said, why)
	}
	if hinted {
		said = append(said, hint)
	}
	f.Untold = append(f.Untold, field+": "+strings.Join(said, "; "))
}

// take is the first of the values from 1 to most, 0 for none.
func take(most int, values ...int) int {
	for _, v := range values {
		if v >= 1 && v <= most {
			return v
		}
	}
	return 0
}

func (f *finder) findVersion() {
	version, place := f.version, versionPath
	if f.Engine == sglang {
		version, place = f.info.Version, infoPath
	}
	if printable(version) {
		f.Version = version
		return
	}
	f.untold("version", "no version", place)
}

// printable tells whether a version can be shown: not empty and not too long, without
// control characters and spaces around it.
func printable(version string) bool {
	return version != "" && len(version) <= maxVersion && utf8.ValidString(version) &&
		strings.TrimSpace(version) == version && !strings.ContainsFunc(version, unicode.IsControl)
}

func (f *finder) need(field string, value int, why string, places ...string) {
	if value == 0 {
		f.untold(field, why, places...)
	}
}

// vllmFacts are those of vLLM and of llm-d's simulator.
func (f *finder) vllmFacts() {
	f.BlockSize = f.metrics.blockSize
	f.need("block_size", f.BlockSize, "no "+vllmConfigInfo+" with a block_size from 1 to "+strconv.Itoa(fleet.MaxBlockSize), metricsPath)
	f.MaxBatchedTokens = take(maxTokens, int(f.info.vllm.Scheduler.MaxBatchedTokens))
	f.need("max_batched_tokens", f.MaxBatchedTokens, "no max_num_batched_tokens; vLLM tells it in its developer mode only (VLLM_SERVER_DEV_MODE=1)", infoPath)
	ranks, why := f.vllmRanks()
	f.DPSize = take(fleet.MaxRanks-f.rec.DPStart, ranks)
	if why == "" {
		why = "no label engine in " + vllmConfigInfo
	}
	f.need("dp_size", f.DPSize, why, metricsPath)
	if f.DPSize > 0 {
		// num_gpu_blocks is the sum of all ranks of the server.
		f.TotalKVBlocks = take(maxTokens, f.metrics.blocks/f.DPSize)
		why = "no " + vllmConfigInfo + " with num_gpu_blocks"
	}
	f.need("total_kv_blocks", f.TotalKVBlocks, why, metricsPath)
	f.vllmSockets()
}

// vllmRanks counts the ranks of this server, or says why they cannot be counted.
func (f *finder) vllmRanks() (ranks int, why string) {
	seen := slices.Sorted(maps.Keys(f.metrics.ranks))
	switch {
	case len(seen) > 0 && f.unregisters() && seen[len(seen)-1] > 0:
		// Up to 0.9 each rank of a server forgets the metrics of the one before.
		return 0, fmt.Sprintf("vLLM %s shows the last rank alone, here %d; it does not tell how many there are", f.Version, seen[len(seen)-1])
	case len(seen) > 0:
		return len(seen), ""
	case len(f.sources) > 0:
		return len(f.sources), ""
	case f.metrics.kind == vllm && f.metrics.blockSize > 0:
		return 1, "" // no label: one engine behind this server
	}
	return 0, ""
}

func (f *finder) unregisters() bool {
	return strings.HasPrefix(f.Version, "0.9.") || strings.HasPrefix(f.Version, "0.8.")
}

func (f *finder) vllmSockets() {
	var events, replay sockets
	switch p := f.info.vllm.KVEvents; {
	case f.sources != nil:
		events, replay = resolved(f.sources, f.host)
	case p != nil && f.DPSize > 0:
		events, replay = configured(*p, f.host, f.rec.DPStart, f.DPSize, infoPath)
	default:
		for _, field := range []string{"kv_events", "replay"} {
			f.untold(field, "nothing of KV events; vLLM tells from 0.33 on", sourcesPath)
		}
		return
	}
	f.KVEvents, f.Replay = f.keep("kv_events", events), f.keep("replay", replay)
}

// keep leaves out the ranks that the worker does not have.
func (f *finder) keep(field string, s sockets) map[int]string {
	kept := map[int]string{}
	for _, rank := range slices.Sorted(maps.Keys(s.byRank)) {
		if rank < f.rec.DPStart || rank >= f.rec.DPStart+max(f.DPSize, 1) {
			s.why = fmt.Sprintf("rank %d is none of the %d from dp_start %d on", rank, max(f.DPSize, 1), f.rec.DPStart)
			continue
		}
		kept[rank] = s.byRank[rank]
	}
	if s.why != "" && len(kept) < max(f.DPSize, 1) {
		f.untold(field, s.why)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// sglangFacts are those of SGLang.
func (f *finder) sglangFacts() {
	place := infoPath
	if f.silence[infoPath] != nil && f.silence[oldInfoPath] == nil {
		place = oldInfoPath
	}
	var e sgEvent
	if f.info.KVEvents != nil {
		e = *f.info.KVEvents
	}
	page := take(fleet.MaxBlockSize, int(f.info.PageSize), f.metrics.blockSize)
	// With a context-parallel cache a block of the events is more than a page.
	f.BlockSize = take(fleet.MaxBlockSize, int(e.BlockSize), page)
	f.need("block_size", f.BlockSize, "no page_size", place, metricsPath)
	if page > 0 {
		f.TotalKVBlocks = take(maxTokens, int(f.info.Tokens)/page, f.metrics.tokens/page)
	}
	f.need("total_kv_blocks", f.TotalKVBlocks, "no max_total_num_tokens", place, metricsPath)
	f.MaxBatchedTokens = take(maxTokens, int(f.info.Prefill))
	f.need("max_batched_tokens", f.MaxBatchedTokens, "no max_prefill_tokens", place)
	f.DPSize = take(fleet.MaxRanks-f.rec.DPStart, int(e.DPSize), int(f.info.DPSize), len(f.metrics.ranks))
	f.need("dp_size", f.DPSize, "no dp_size", place)
	if f.info.empty() {
		for _, field := range []string{"kv_events", "replay", "load_reports"} {
			f.untold(field, "nothing of sockets", place)
		}
		return
	}
	events, replay, load := f.info.sockets(f.host, place, f.rec.DPStart, max(f.DPSize, 1))
	f.KVEvents, f.Replay, f.LoadReports = f.keep("kv_events", events), f.keep("replay", replay), f.keep("load_reports", load)
}

// trtllmFacts are those of TensorRT-LLM's own server, whose KV events have no
// socket: a publisher beside it has to be named in the record.
func (f *finder) trtllmFacts() {
	f.BlockSize = take(fleet.MaxBlockSize, f.metrics.blockSize)
	f.TotalKVBlocks = take(maxTokens, f.metrics.blocks)
	why := "no kvCacheStats since somebody read last; TensorRT-LLM has them with enable_iter_perf_stats and under load"
	f.need("block_size", f.BlockSize, why, metricsPath)
	f.need("total_kv_blocks", f.TotalKVBlocks, why, metricsPath)
	for _, field := range []string{"dp_size", "max_batched_tokens", "kv_events", "replay"} {
		f.untold(field, "TensorRT-LLM tells it nowhere")
	}
}
