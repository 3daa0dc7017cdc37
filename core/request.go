package core

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// Kind says what a selection is for.
type Kind uint8

// The kinds.
const (
	// Query selects and books nothing.
	Query Kind = iota
	// Book selects and reserves under the selection id.
	Book
	// Advisory reads what would be chosen right now and changes nothing, not
	// even whose turn it is.
	Advisory
)

// String is the kind's name in records and metrics.
func (k Kind) String() string {
	switch k {
	case Query:
		return "query"
	case Book:
		return "book"
	case Advisory:
		return "advisory"
	}
	return "unknown"
}

// MaxIDBytes bounds selection ids, request ids, sessions, tenants and classes.
const MaxIDBytes = 256

// MaxAllowed bounds an allow-set, in workers.
const MaxAllowed = 16_384

// Bounds of the request headers that policies may see.
const (
	MaxHeaders     = 16
	MaxHeaderBytes = 256 // of a value
)

// Request is one selection to make. Select reads it and keeps nothing of it but
// the strings; it writes only Seed.
type Request struct {
	Kind Kind
	// SelectionID is the caller's name of a booking; empty lets the core choose.
	SelectionID string
	// Surface names the surface that asks, for records.
	Surface   string
	Partition fleet.PartitionKey
	// Class is the request's class, which may choose another policy.
	Class  string
	Prompt Prompt
	// Adapter is the LoRA adapter, which the serving workers must list; empty
	// for the base model.
	Adapter string
	// Pin names the worker, and perhaps the rank, that must serve.
	Pin *Pin
	// Allow lists the workers that may serve, by name or decimal id: nil allows
	// all, empty but not nil allows none.
	Allow []string
	// Exclude lists workers that must not serve; whole workers, whatever the
	// rank.
	Exclude []fleet.Worker

	// Session, ParentSession and SessionFinal are the flat form of the session;
	// where SessionContext names a session, that counts instead.
	Session, ParentSession string
	SessionFinal           bool
	SessionContext         *SessionContext
	// Target names the worker, and perhaps the rank, whose session the caller keeps
	// itself: it stands in for the session's binding where it is eligible and is
	// ignored where it is not known. The session's own binding is left alone then.
	Target *Pin
	Tenant string
	// Constraints narrow and weigh the workers by their taints and labels.
	Constraints Constraints
	// Priority orders the requests that wait in one class: higher first, before
	// all else.
	Priority int
	// PriorityJump moves the request ahead among those of its priority, as if it
	// had come that much earlier; 0 to 24 h.
	PriorityJump time.Duration
	// MaxTokens limits the output and ExpectedOutput estimates it, in tokens; 0
	// when unknown.
	MaxTokens, ExpectedOutput int
	Temperature               float64
	Streaming                 bool
	// Headers are the request's headers that the operator lets policies see, by
	// name in lower case: policies see the ids of their values, which no record
	// holds. Select does not keep the map.
	Headers map[string]string
	// Overrides are values of the policy's configuration for this request.
	Overrides map[string]json.RawMessage
	// Seed decides ties. A nil Seed is drawn and stored here, so that further
	// attempts with the same Request keep it.
	Seed *uint64
	// Arrival is when the request came; zero means now.
	Arrival time.Time
	// Attempt counts the dispatches of one request, from 0. A further one does not
	// wait in the queue again.
	Attempt uint32
	// Leased tells that the caller sees to it that its booking ends: the core does
	// not let it expire.
	Leased bool
	// AssumeReuse says whether prompts that begin alike share their blocks on a
	// worker: where it is false, those of this one count as its own, whoever else
	// has them. It is no word about what is cached. nil is true.
	AssumeReuse *bool
	// TrackPrefill says whether prompt tokens count as load: where it is false, none
	// are booked, and the policy sees none on any worker. nil is true.
	TrackPrefill *bool
	// Detail asks for Selection.Detail.
	Detail bool
	// RequestID names the request in decision ids.
	RequestID string
}

// Prompt is what is known of the prompt. Of a batch, Tokens, Blocks and Count
// describe the first prompt and More the others. The whole is what the worker
// has to do: it makes the load, and the length that a policy sees (isl_tokens,
// isl_blocks). Only the first prompt's blocks are looked up in the index.
type Prompt struct {
	// Tokens are the prompt's ids. When not nil they win over Blocks, Sequences and
	// Count.
	Tokens []uint32
	// Blocks are local block hashes that the caller computed: of the engine's own tokens
	// where Exact, else of the text, which only an index that learns from decisions
	// knows.
	Blocks []kvcache.BlockHash
	// Count is the length in tokens, an estimate unless Exact.
	Count int
	// More is the number of tokens of the further prompts of a batch, perhaps an
	// estimate; it has no hashes, and comes on top of Tokens, Blocks or Count.
	More int
	// Exact tells that Count and Blocks come from the engine's own tokens; it
	// is implied by Tokens.
	Exact bool
	// Scope is the adapter whose blocks the prompt's are, where Request.Adapter names
	// none: it is part of the hashes and narrows nothing.
	Scope string
	// Text are approximate blocks of the prompt's text where Tokens hold images or other
	// items at places that are not known: two such prompts may differ though their tokens
	// do not. When not nil, the prompt is looked up by its tokens, whose blocks engines
	// never take for those of an item, and by Text, whichever finds more; it is recorded
	// and shared as load by Text alone.
	Text []kvcache.BlockHash
	// Salt is the cache salt, which separates the blocks of tenants.
	Salt string
	// Sequences are the sequence hashes of Blocks where the caller has its own:
	// load counts by these. Empty, or as many as Blocks; without Blocks as many as the
	// caller likes.
	Sequences []kvcache.SequenceHash
	// Bigram tells whether blocks of Tokens hold pairs of neighbouring tokens
	// (EAGLE); nil is as the partition's workers do.
	Bigram *bool
	// Multimodal are, by block of Tokens, the hashes of the images and other items
	// that touch the block, in any order. What is beyond its end has none.
	Multimodal [][]uint64
}

// Pin names a worker by id or, when ID is nil, by name, and optionally a rank.
type Pin struct {
	ID   *fleet.WorkerID
	Name string
	Rank *uint32
}

// check refuses what no partition could answer.
func (r *Request) check() error {
	for _, f := range []struct{ field, value string }{
		{"selection_id", r.SelectionID},
		{"class", r.Class},
		{"session", r.Session},
		{"parent_session", r.ParentSession},
		{"tenant", r.Tenant},
		{"request_id", r.RequestID},
	} {
		if len(f.value) > MaxIDBytes {
			return invalid(&fleet.FieldError{Field: f.field, Value: f.value, Allowed: "at most 256 bytes"})
		}
	}
	if err := r.checkHeaders(); err != nil {
		return err
	}
	if err := r.checkSession(); err != nil {
		return err
	}
	for _, f := range []struct {
		field string
		value int
	}{{"prompt.count", r.Prompt.Count}, {"prompt.more", r.Prompt.More}, {"max_tokens", r.MaxTokens}, {"expected_output", r.ExpectedOutput}} {
		if f.value < 0 || f.value > math.MaxInt32 {
			return invalid(&fleet.FieldError{Field: f.field, Value: strconv.Itoa(f.value), Allowed: "0 to 2147483647"})
		}
	}
	if t := r.Temperature; math.IsNaN(t) || math.IsInf(t, 0) {
		return invalid(&fleet.FieldError{Field: "temperature", Value: strconv.FormatFloat(t, 'g', -1, 64), Allowed: "a finite number"})
	}
	if r.Kind > Advisory {
		return invalid(&fleet.FieldError{Field: "kind", Value: strconv.Itoa(int(r.Kind)), Allowed: "query, book, advisory"})
	}
	if n := len(r.Allow); n > MaxAllowed {
		return invalid(&fleet.FieldError{Field: "allow", Value: strconv.Itoa(n) + " workers", Allowed: "at most " + strconv.Itoa(MaxAllowed) + " workers"})
	}
	if p := r.Pin; p != nil && p.ID == nil && p.Name == "" {
		return invalid(&fleet.FieldError{Field: "pin", Value: "", Allowed: "a worker's id or name"})
	}
	return nil
}

func (r *Request) checkHeaders() error {
	if n := len(r.Headers); n > MaxHeaders {
		return invalid(&fleet.FieldError{Field: "headers", Value: strconv.Itoa(n), Allowed: "at most 16 headers"})
	}
	for name, value := range r.Headers {
		if len(name) > MaxHeaderBytes || name != strings.ToLower(name) {
			return invalid(&fleet.FieldError{Field: "headers", Value: clip(name, 80), Allowed: "names in lower case of at most 256 bytes"})
		}
		if n := len(value); n > MaxHeaderBytes {
			// The value itself may be a secret.
			return invalid(&fleet.FieldError{Field: "headers." + name, Value: strconv.Itoa(n) + " bytes", Allowed: "at most 256 bytes"})
		}
	}
	return nil
}

// header is the value of a header that policies may see; empty for none.
func (r *Request) header(name string) string { return r.Headers[name] }
