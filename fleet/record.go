package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a worker record.
const (
	MaxNameBytes = 256
	MaxRanks     = 4096
	MaxBlockSize = 1 << 20
	MaxLabels    = 64
	MaxTaints    = 64
	MaxAdapters  = 4096
	MaxDomains   = 64
	MaxAsked     = 8 << 20 // bytes
)

// Engines are the engine kinds that a record may name.
func Engines() []string { return []string{DefaultEngine, "sglang", "llm-d", "trtllm"} }

// Adapter is a LoRA adapter that a worker serves beside its base model. ID is
// the number that engines without adapter names put into their events; 0 when
// unknown.
type Adapter struct {
	Name string `json:"name" koanf:"name" doc:"Name that requests use."`
	ID   int64  `json:"id,omitempty" koanf:"id" doc:"Number in the events of engines that know no names."`
}

// Record describes one worker as its source wants it: the body of the worker
// API and an element of `workers.static`. Zero values mean unset.
type Record struct {
	// ID is 0 for a worker named 0; else 0 stands for a number derived from the name.
	ID   WorkerID `json:"id" koanf:"id" doc:"Number of the worker; derived from the name when 0. Name or id is needed."`
	Name string   `json:"name" koanf:"name" doc:"Unique name; the id when empty. Name or id is needed."`
	// URL is empty while nobody knows where the worker is; sources that know refuse
	// that.
	URL   string `json:"url" koanf:"url" doc:"Base URL, http://HOST:PORT."`
	Model string `json:"model" koanf:"model" doc:"Base model that it serves; empty asks the engine."`
	Group string `json:"group" koanf:"group" doc:"Routing group; the frontend serves the group default alone."`
	// Engine is one of Engines.
	Engine string `json:"engine" koanf:"engine" doc:"Engine kind: vllm, sglang, llm-d or trtllm; empty asks the engine."`
	// BlockSize is in tokens; 0 lets the model's configuration or the engine
	// decide.
	BlockSize int `json:"block_size,omitempty" koanf:"block_size" doc:"Tokens a KV block; 0 asks the engine."`
	// DPStart and DPSize give the ranks [DPStart, DPStart+DPSize).
	DPStart int `json:"dp_start,omitempty" koanf:"dp_start" doc:"First data-parallel rank."`
	DPSize  int `json:"dp_size" koanf:"dp_size" doc:"Number of data-parallel ranks; 0 asks the engine."`
	// KVEvents and Replay map a rank to the ZMQ endpoint of its publisher and
	// of its replay socket.
	KVEvents         map[int]string    `json:"kv_events,omitempty" koanf:"kv_events" doc:"ZMQ endpoint of the KV event publisher by rank, tcp://HOST:PORT. With tcp://*:PORT, in workers.dns alone the worker's host, the router binds and the engine connects; several workers may name the same, then the topic kv@POD@MODEL tells whose events they are: POD is the worker's name, or the HOST:PORT of its url."`
	Replay           map[int]string    `json:"replay,omitempty" koanf:"replay" doc:"ZMQ endpoint of the replay socket by rank."`
	MaxBatchedTokens int               `json:"max_batched_tokens,omitempty" koanf:"max_batched_tokens" doc:"Batch limit of the engine."`
	TotalKVBlocks    int               `json:"total_kv_blocks,omitempty" koanf:"total_kv_blocks" doc:"KV capacity of a rank in blocks."`
	Labels           map[string]string `json:"labels,omitempty" koanf:"labels" doc:"Free labels; policies see them as columns."`
	Taints           []string          `json:"taints,omitempty" koanf:"taints" doc:"Taints."`
	Adapters         []Adapter         `json:"adapters,omitempty" koanf:"adapters" doc:"LoRA adapters that it serves."`
	// Eagle is a property of the partition: its blocks are hashed over one token
	// more.
	Eagle           bool              `json:"is_eagle,omitempty" koanf:"is_eagle" doc:"Whether the engine drafts with Eagle, which hashes blocks in another way."`
	StableRoutingID string            `json:"stable_routing_id,omitempty" koanf:"stable_routing_id" doc:"Name of the place of the worker, which a replacement keeps."`
	TopologyDomains map[string]string `json:"topology_domains,omitempty" koanf:"topology_domains" doc:"Where the worker stands, by kind of place."`
	RequireEvents   bool              `json:"require_events,omitempty" koanf:"require_events" doc:"Ready only while every rank has an endpoint in kv_events."`
	NoHealthCheck   bool              `json:"no_health_check,omitempty" koanf:"no_health_check" doc:"Whether others see to its health: it is not probed, not asked for its load and not ejected."`
	// Asked is what a surface with bodies of its own was asked for, in its words, so
	// that it can show and change that; only the source that stores it reads or
	// writes it. Such a surface fills the defaults itself: with it, no DPSize is no
	// rank, and the worker is not ready.
	Asked string `json:"-" koanf:"-"`
}

// Partition is the partition that the record asks for.
func (r Record) Partition() PartitionKey {
	return PartitionKey{Model: r.Model, Group: r.Group}.Normalised()
}

// Ranks lists the record's ranks in ascending order.
func (r Record) Ranks() []uint32 {
	ranks := make([]uint32, r.DPSize)
	for i := range ranks {
		ranks[i] = uint32(r.DPStart + i)
	}
	return ranks
}

// Owns tells whether a rank is one of the worker's.
func (r Record) Owns(rank uint32) bool {
	return int64(rank) >= int64(r.DPStart) && int64(rank) < int64(r.DPStart)+int64(r.DPSize)
}

// Equal tells whether two records are the same wish.
func (r Record) Equal(o Record) bool {
	return r.ID == o.ID && r.Name == o.Name && r.URL == o.URL && r.Model == o.Model && r.Group == o.Group &&
		r.Engine == o.Engine && r.BlockSize == o.BlockSize && r.DPStart == o.DPStart && r.DPSize == o.DPSize &&
		r.MaxBatchedTokens == o.MaxBatchedTokens && r.TotalKVBlocks == o.TotalKVBlocks &&
		maps.Equal(r.KVEvents, o.KVEvents) && maps.Equal(r.Replay, o.Replay) && maps.Equal(r.Labels, o.Labels) &&
		slices.Equal(r.Taints, o.Taints) && slices.Equal(r.Adapters, o.Adapters) &&
		r.Eagle == o.Eagle && r.StableRoutingID == o.StableRoutingID && maps.Equal(r.TopologyDomains, o.TopologyDomains) &&
		r.RequireEvents == o.RequireEvents && r.NoHealthCheck == o.NoHealthCheck && r.Asked == o.Asked
}

// Normalised returns the record as a source wants it: id from the name or the name
// from the id, the group "default" where none is named, the URL in one spelling
// (lower-case scheme and host, no trailing slash). What it leaves unset, the worker's
// engine may tell. An error names the first field that is out of range. An empty URL
// stays.
func (r Record) Normalised() (Record, error) {
	r, err := r.normalise()
	if err != nil {
		return r, err
	}
	return r, r.check()
}

// normalise is Normalised but for what is out of range.
func (r Record) normalise() (Record, error) {
	if r.Name == "" {
		if r.ID == 0 {
			return r, &FieldError{Field: "name", Value: "", Allowed: "a name, or an id from 1 to 18446744073709551615"}
		}
		r.Name = r.ID.String()
	}
	if r.ID == 0 && r.Name != "0" {
		r.ID = IDFromName(r.Name)
	}
	r.Group = r.Partition().Group
	if r.URL != "" {
		u, err := NormaliseURL(r.URL)
		if err != nil {
			return r, err
		}
		if strings.HasSuffix(u, "/v1") {
			return r, &FieldError{Field: "url", Value: u, Allowed: "the URL without /v1, which requests add"}
		}
		r.URL = u
	}
	return r, nil
}

// Filled returns the normalised record with a value in every field that must have one
// in a worker that serves: model "default", engine vllm, and as many ranks as kv_events
// and replay name, at least one.
func (r Record) Filled() (Record, error) {
	r, err := r.normalise()
	if err != nil {
		return r, err
	}
	r.Model = r.Partition().Model
	if r.Engine == "" {
		r.Engine = DefaultEngine
	}
	if r.DPSize == 0 && r.Asked == "" {
		r.DPSize = r.namedRanks()
	}
	return r, r.check()
}

// namedRanks is how many ranks kv_events and replay name, at least one. It is 0, not told,
// where one of them can be none, which check then says.
func (r Record) namedRanks() int {
	n := 1
	for _, urls := range []map[int]string{r.KVEvents, r.Replay} {
		for rank := range urls {
			if rank < r.DPStart || rank >= MaxRanks {
				return 0
			}
			n = max(n, rank+1-r.DPStart)
		}
	}
	return n
}

// Located refuses a record that does not say where the worker is, for sources
// that must know.
func (r Record) Located() error {
	if r.URL == "" {
		return &FieldError{Field: "url", Allowed: urlForm}
	}
	return nil
}

func (r Record) check() error {
	for _, f := range []struct{ field, value string }{{"name", r.Name}, {"model", r.Partition().Model}, {"group", r.Group}} {
		if err := CheckName(f.field, f.value); err != nil {
			return err
		}
	}
	if err := r.checkHeaderName(); err != nil {
		return err
	}
	if r.Engine != "" && !slices.Contains(Engines(), r.Engine) {
		return &FieldError{Field: "engine", Value: r.Engine, Allowed: strings.Join(Engines(), ", ")}
	}
	for _, f := range []struct {
		field          string
		value, low, up int
	}{
		{"block_size", r.BlockSize, 0, MaxBlockSize},
		{"dp_start", r.DPStart, 0, MaxRanks - 1},
		{"dp_size", r.DPSize, 0, MaxRanks - r.DPStart},
		{"max_batched_tokens", r.MaxBatchedTokens, 0, 1 << 30},
		{"total_kv_blocks", r.TotalKVBlocks, 0, 1 << 30},
		{"labels (count)", len(r.Labels), 0, MaxLabels},
		{"taints (count)", len(r.Taints), 0, MaxTaints},
		{"adapters (count)", len(r.Adapters), 0, MaxAdapters},
		{"topology_domains (count)", len(r.TopologyDomains), 0, MaxDomains},
		{"asked (bytes)", len(r.Asked), 0, MaxAsked},
	} {
		if f.value < f.low || f.value > f.up {
			return &FieldError{Field: f.field, Value: strconv.Itoa(f.value), Allowed: fmt.Sprintf("%d to %d", f.low, f.up)}
		}
	}
	return r.checkParts()
}

func (r Record) checkParts() error {
	ranks := r.DPSize
	if ranks == 0 && r.Asked == "" { // nobody told yet
		ranks = MaxRanks - r.DPStart
	}
	for _, m := range []struct {
		field string
		urls  map[int]string
		check func(field, endpoint string) error
	}{{"kv_events", r.KVEvents, CheckEvents}, {"replay", r.Replay, CheckEndpoint}} {
		for _, rank := range slices.Sorted(maps.Keys(m.urls)) {
			if rank < r.DPStart || rank >= r.DPStart+ranks {
				return &FieldError{
					Field: m.field, Value: strconv.Itoa(rank),
					Allowed: fmt.Sprintf("ranks %d to %d (dp_start, dp_size)", r.DPStart, r.DPStart+ranks-1),
				}
			}
			if err := m.check(fmt.Sprintf("%s.%d", m.field, rank), m.urls[rank]); err != nil {
				return err
			}
		}
	}
	if err := r.checkAdapters(); err != nil {
		return err
	}
	if err := checkTexts("labels", r.Labels); err != nil {
		return err
	}
	if err := checkTexts("topology_domains", r.TopologyDomains); err != nil {
		return err
	}
	if r.StableRoutingID != "" {
		if err := CheckName("stable_routing_id", r.StableRoutingID); err != nil {
			return err
		}
	}
	for i, t := range r.Taints {
		if err := CheckName(fmt.Sprintf("taints[%d]", i), t); err != nil {
			return err
		}
	}
	return nil
}

func checkTexts(field string, texts map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		if err := CheckName(field+" key", k); err != nil {
			return err
		}
		if v := texts[k]; len(v) > MaxNameBytes {
			return &FieldError{Field: field + "." + k, Value: v, Allowed: "at most 256 bytes"}
		}
	}
	return nil
}

func (r Record) checkAdapters() error {
	names, ids := map[string]bool{r.Model: true}, map[int64]bool{}
	for i, a := range r.Adapters {
		field := fmt.Sprintf("adapters[%d].name", i)
		if err := CheckName(field, a.Name); err != nil {
			return err
		}
		if names[a.Name] {
			return &FieldError{Field: field, Value: a.Name, Allowed: "a name that the record does not use yet"}
		}
		if a.ID != 0 && ids[a.ID] {
			return &FieldError{Field: fmt.Sprintf("adapters[%d].id", i), Value: strconv.FormatInt(a.ID, 10), Allowed: "a number that the record does not use yet, or 0 for unknown"}
		}
		names[a.Name], ids[a.ID] = true, true
	}
	return nil
}

// checkHeaderName refuses worker names that a request header could not mean:
// a list is split at commas, a pin at its semicolon, blanks around are cut, and
// a number is an id.
func (r Record) checkHeaderName() error {
	switch {
	case strings.ContainsAny(r.Name, ",;") || strings.TrimSpace(r.Name) != r.Name:
		return &FieldError{Field: "name", Value: r.Name, Allowed: "a name without commas, semicolons and blanks around it"}
	case strings.Trim(r.Name, "0123456789") == "" && r.Name != r.ID.String():
		return &FieldError{Field: "name", Value: r.Name, Allowed: "a number only when it is the worker's id"}
	}
	return nil
}

// CheckName refuses, as a *FieldError about the field, what is no name in a record: of a
// worker, a model, a group, an adapter. A worker's own name has further rules.
func CheckName(field, v string) error {
	if v == "" || len(v) > MaxNameBytes {
		return &FieldError{Field: field, Value: v, Allowed: "1 to 256 bytes"}
	}
	for _, c := range v {
		if c < 0x20 || c == 0x7f || c == '\uFFFD' {
			return &FieldError{Field: field, Value: v, Allowed: "printable UTF-8 text"}
		}
	}
	return nil
}
