package sim

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"
)

// EventForm says how one event is written in msgpack.
type EventForm string

// The two encodings that vLLM releases have used.
const (
	FormMap   EventForm = "map"   // vLLM 0.24 and later
	FormArray EventForm = "array" // vLLM 0.23
)

// HashForm says how a block hash is written.
type HashForm string

// The two hash forms of vLLM: an unsigned 64-bit number or all 32 bytes.
const (
	HashInt   HashForm = "int"
	HashBytes HashForm = "bytes"
)

// Config describes one simulated engine. DefaultConfig has the defaults.
type Config struct {
	// Name tells the engine apart: it is in the answer's system_fingerprint
	// ("sim-NAME"), in the header X-Sim-Engine, and in the block hashes.
	Name string
	// Model is the id of the base model; Adapters are the loaded LoRA adapters.
	Model    string
	Adapters []string
	// AdapterUpdates switches the routes on that load and unload adapters, vLLM's
	// and SGLang's; AdapterLoad is how long a load takes. SGLang's refuse more than
	// MaxAdapters, 0 for any number, which vLLM's do not look at.
	AdapterUpdates bool
	AdapterLoad    time.Duration
	MaxAdapters    int
	// Face says whose form the engine's answers about itself have.
	Face Face
	// MaxBatchedTokens is what faces tell that name a limit of a batch; nothing is
	// limited by it.
	MaxBatchedTokens int
	// Listen is the HTTP address; port 0 takes a free one.
	Listen string
	// BlockSize is in tokens; Blocks is the capacity of each rank in blocks.
	BlockSize int
	Blocks    int
	// MaxModelLen bounds prompt and answer together, in tokens.
	MaxModelLen int
	// Ranks is the data-parallel size.
	Ranks int

	// Events switches the KV event publisher on. The endpoints are addresses
	// to bind; a port "*" takes a free one for each rank, a fixed port belongs
	// to rank 0 and rank r takes port + r. An empty ReplayListen means no replay.
	Events       bool
	EventsListen string
	ReplayListen string
	// LoadListen is where SGLang's load socket is bound; empty means none.
	LoadListen string
	Topic      string
	EventForm  EventForm
	HashForm   HashForm
	// ReplayTopicFrame puts the topic into replay answers (vLLM 0.26 and later).
	ReplayTopicFrame bool
	// BufferSteps is how many batches each rank keeps for replay.
	BufferSteps int

	// PrefillPerToken and DecodePerToken are the time model; 0 = no waiting.
	PrefillPerToken time.Duration
	DecodePerToken  time.Duration
	// Slots is how many requests run at once on each rank.
	Slots int
	// AnswerTokens is where an answer ends by itself; 0 draws 16 to 47 from the
	// prompt. A request with ignore_eos goes on to its max_tokens.
	AnswerTokens int
	// IdleTimeout closes HTTP connections that are idle for so long; 0 = never.
	IdleTimeout time.Duration
	// Seed changes the text of all answers.
	Seed uint64
}

// DefaultConfig returns an engine with vLLM 0.33's face on free local ports.
func DefaultConfig() Config {
	return Config{
		Name:             "sim",
		Model:            "sim-model",
		Listen:           "127.0.0.1:0",
		MaxBatchedTokens: 16384,
		BlockSize:        16,
		Blocks:           4096,
		MaxModelLen:      131072,
		Ranks:            1,
		Events:           true,
		EventsListen:     "tcp://127.0.0.1:*",
		ReplayListen:     "tcp://127.0.0.1:*",
		EventForm:        FormMap,
		HashForm:         HashInt,
		ReplayTopicFrame: true,
		BufferSteps:      10000,
		Slots:            256,
	}
}

const (
	longestDelay = time.Minute
	longestIdle  = 24 * time.Hour
)

// Validate reports every field that is out of range, by name.
func (c Config) Validate() error {
	errs := []error{
		namePattern("name", c.Name),
		modelName("model", c.Model),
		within("block-size", c.BlockSize, 1, 4096),
		within("blocks", c.Blocks, 1, 10_000_000),
		within("max-model-len", c.MaxModelLen, 1, 10_000_000),
		within("ranks", c.Ranks, 1, 64),
		within("slots", c.Slots, 1, 100_000),
		within("max-adapters", c.MaxAdapters, 0, 10_000),
		within("answer-tokens", c.AnswerTokens, 0, 10_000_000),
		within("buffer-steps", c.BufferSteps, 1, 1_000_000),
		withinTime("prefill-per-token", c.PrefillPerToken, longestDelay),
		withinTime("decode-per-token", c.DecodePerToken, longestDelay),
		withinTime("adapter-load", c.AdapterLoad, longestDelay),
		withinTime("idle-timeout", c.IdleTimeout, longestIdle),
		oneOf("event-form", string(c.EventForm), string(FormMap), string(FormArray)),
		oneOf("hash-form", string(c.HashForm), string(HashInt), string(HashBytes)),
		c.validateAdapters(),
		c.validateFace(),
		c.validateAddresses(),
	}
	return errors.Join(errs...)
}

func (c Config) validateAdapters() error {
	seen := map[string]bool{c.Model: true}
	for _, a := range c.Adapters {
		if err := modelName("adapter", a); err != nil {
			return err
		}
		if seen[a] {
			return fmt.Errorf("adapter %q: the name is taken; allowed: names that differ from the model's and each other's", cut(a))
		}
		seen[a] = true
	}
	return nil
}

func (c Config) validateAddresses() error {
	_, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		err = fmt.Errorf("listen %q: allowed: HOST:PORT", cut(c.Listen))
	}
	if !c.Events {
		return err
	}
	pub, pubErr := splitEndpoint("kv-endpoint", c.EventsListen)
	if c.ReplayListen == "" {
		return errors.Join(err, pubErr)
	}
	replay, replayErr := splitEndpoint("replay-endpoint", c.ReplayListen)
	if pubErr == nil && replayErr == nil && pub.meets(replay, c.Ranks) {
		replayErr = fmt.Errorf("replay-endpoint %q: with %d ranks its ports meet those of kv-endpoint %q; allowed: ports at least %d apart",
			cut(c.ReplayListen), c.Ranks, cut(c.EventsListen), c.Ranks)
	}
	return errors.Join(err, pubErr, replayErr)
}

var (
	nameRule  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	modelRule = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)
)

func namePattern(field, v string) error {
	if nameRule.MatchString(v) {
		return nil
	}
	return fmt.Errorf("%s %q: allowed: 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first", field, cut(v))
}

func modelName(field, v string) error {
	if modelRule.MatchString(v) && !strings.Contains(v, ",") {
		return nil
	}
	return fmt.Errorf("%s %q: allowed: 1 to 200 printable ASCII characters without spaces and commas", field, cut(v))
}

func within(field string, v, least, most int) error {
	if v >= least && v <= most {
		return nil
	}
	return fmt.Errorf("%s %d: allowed: %d to %d", field, v, least, most)
}

func withinTime(field string, v, most time.Duration) error {
	if v >= 0 && v <= most {
		return nil
	}
	return fmt.Errorf("%s %s: allowed: 0 to %s", field, v, most)
}

func oneOf(field, v string, allowed ...string) error {
	for _, a := range allowed {
		if v == a {
			return nil
		}
	}
	return fmt.Errorf("%s %q: allowed: %s", field, cut(v), strings.Join(allowed, ", "))
}

// cut shortens a value for an error message.
func cut(v string) string {
	const most = 80
	if len(v) <= most {
		return v
	}
	return v[:most] + "…"
}
