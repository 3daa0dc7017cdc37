package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/sharedcache"
)

// Queue says when requests wait and for how long, and when a rank gets nothing
// new.
type Queue struct {
	RefreshAfter Duration              `koanf:"refresh_after" reload:"live" max:"1h" off:"true" doc:"After how long a wait the cached tokens of a request are looked up again when it goes; 0s never does."`
	Classes      map[string]QueueClass `koanf:"classes" reload:"live" doc:"Classes of requests by the name in their x-routerd-class header: 1 to 64 of a-z, 0-9, '_' and '-', at most 64 classes. The class default is always there, and is that of requests that name none or another."`
	Overload     Overload              `koanf:"overload"`
}

// QueueClass says how the requests of one class wait. What the file leaves out
// is as in DefaultQueueClass.
type QueueClass struct {
	Weight  int         `koanf:"weight" reload:"live" min:"1" max:"10000" doc:"Part of the prompt tokens that go while several classes wait."`
	Order   string      `koanf:"order" reload:"live" oneof:"fcfs wspt" doc:"Who is first among those of equal priority: who came first, or the shortest prompt that is not cached."`
	Busy    QueueBusy   `koanf:"busy"`
	Limits  QueueLimits `koanf:"limits"`
	Timeout Duration    `koanf:"timeout" reload:"live" min:"1ms" max:"1h" doc:"How long a request may wait, for a worker or for its session's first request; then it is answered 429."`
}

// QueueBusy says when a rank is busy for a class.
type QueueBusy struct {
	PrefillTokens   int     `koanf:"prefill_tokens" reload:"live" doc:"A rank with more active prefill tokens is busy; 0 is off. Requests wait when every rank that may serve them is busy."`
	PrefillFraction float64 `koanf:"prefill_fraction" reload:"live" min:"0" max:"1000" doc:"The same as a part of max_batched_tokens of the worker, by its record or its engine. A worker without that number is practically never busy by it; 0 is off."`
	ActiveRequests  int     `koanf:"active_requests" reload:"live" doc:"A rank with so many active requests is busy, and takes no more of this class also while others are free; 0 is off."`
}

// QueueLimits bound what waits in a class, for each ready worker.
type QueueLimits struct {
	Requests     Limit `koanf:"requests" reload:"live" doc:"How many requests may wait for each ready worker of the partition; one more is answered 429 at once. 0 lets nobody wait, also no parallel first requests of a session."`
	Tokens       Limit `koanf:"tokens" reload:"live" doc:"How many of their prompt tokens may."`
	CachedTokens Limit `koanf:"cached_tokens" reload:"live" doc:"How many of their prompt tokens that are cached where most are may."`
}

// Overload says above what a rank gets nothing new of any class.
type Overload struct {
	PrefillTokens   int     `koanf:"prefill_tokens" reload:"live" doc:"A rank with more active prefill tokens is overloaded, unless a report of its engine contradicts; 0 is off. Where all are, requests are answered 429 and nobody waits."`
	PrefillFraction float64 `koanf:"prefill_fraction" reload:"live" min:"0" max:"1000" doc:"The same as a part of max_batched_tokens of the worker, by its record or its engine. A worker without that number is practically never overloaded by it; 0 is off."`
	KVFraction      float64 `koanf:"kv_fraction" reload:"live" min:"0" max:"1" doc:"A rank that uses more than this part of total_kv_blocks of the worker, by its record or its engine, is overloaded: as the engine reports it, else as the router counts it. It has no effect on a worker without that number; 0 is off."`
}

// Affinity says for how long a session stays with its worker.
type Affinity struct {
	TTL     Duration `koanf:"ttl" reload:"restart" min:"1s" max:"31536000s" off:"true" doc:"How long a session stays with its worker after its last request has ended; 0s binds none."`
	Entries int      `koanf:"entries" reload:"restart" min:"1" max:"65536" doc:"Sessions that are bound at a time, for each partition; more are routed as if they had none."`
	Mode    string   `koanf:"mode" reload:"live" oneof:"hard soft" doc:"Whether a bound worker that may serve is the pick (hard), or what the policy is told (soft, session.bound)."`
}

// RoutingLoad says how the load of a rank is projected.
type RoutingLoad struct {
	Estimator       string  `koanf:"estimator" reload:"restart" oneof:"none rate learned" doc:"How a prompt's tokens count until its first token is there: whole (none), less by tokens_per_second (rate), or less by what the rank's earlier first tokens took (learned)."`
	TokensPerSecond float64 `koanf:"tokens_per_second" reload:"restart" min:"0" max:"1000000000" doc:"What one rank prefills; of the estimator rate only."`
}

// SharedCache is an external KV cache that every worker can read from.
type SharedCache struct {
	URL      string   `koanf:"url" reload:"live" doc:"Base URL of the cache's server, http://HOST:PORT; empty is off."`
	Deadline Duration `koanf:"deadline" reload:"live" min:"1ms" max:"1s" doc:"How long a request may wait for its answer."`
}

// DefaultQueueClass is a class that is never busy, in order of arrival, with at
// most 256 waiting requests a ready worker and for at most a minute.
func DefaultQueueClass() QueueClass {
	cl := queue.DefaultConfig().Classes[0]
	return QueueClass{
		Weight: cl.Weight, Order: string(cl.Order), Timeout: Duration(cl.Timeout),
		Limits: QueueLimits{Requests: Limit(cl.Limits.Requests), Tokens: Limit(cl.Limits.Tokens), CachedTokens: Limit(cl.Limits.CachedTokens)},
	}
}

func defaultQueue() Queue {
	return Queue{
		RefreshAfter: Duration(queue.DefaultConfig().RefreshAfter),
		Classes:      map[string]QueueClass{queue.DefaultClass: DefaultQueueClass()},
	}
}

func defaultAffinity() Affinity {
	return Affinity{TTL: Duration(30 * time.Minute), Entries: affinity.MaxEntries, Mode: "hard"}
}

// Core is the queue's configuration in the core's words, classes by name.
func (q Queue) Core() queue.Config {
	cfg := queue.Config{RefreshAfter: q.RefreshAfter.Std()}
	for _, name := range slices.Sorted(maps.Keys(q.Classes)) {
		c := q.Classes[name]
		cfg.Classes = append(cfg.Classes, queue.Class{
			Name: name, Weight: c.Weight, Order: queue.Order(c.Order), Timeout: c.Timeout.Std(),
			Busy:   queue.Busy{PrefillTokens: int64(c.Busy.PrefillTokens), PrefillFraction: c.Busy.PrefillFraction, ActiveRequests: int64(c.Busy.ActiveRequests)},
			Limits: queue.Limits{Requests: int64(c.Limits.Requests), Tokens: int64(c.Limits.Tokens), CachedTokens: int64(c.Limits.CachedTokens)},
		})
	}
	return cfg
}

// Core is the overload limit in the core's words.
func (o Overload) Core() load.Overload {
	return load.Overload{PrefillTokens: int64(o.PrefillTokens), PrefillFraction: o.PrefillFraction, KVFraction: o.KVFraction}
}

// Core is the affinity in the core's words.
func (a Affinity) Core() affinity.Config {
	return affinity.Config{TTL: a.TTL.Std(), Entries: a.Entries, Soft: a.Mode == "soft"}
}

// Core is the estimator in the core's words.
func (l RoutingLoad) Core() load.Estimator {
	return load.Estimator{Kind: load.EstimatorKind(l.Estimator), TokensPerSecond: l.TokensPerSecond}
}

// Client is the configuration of the shared cache's client; ok is false where it
// is off.
func (s SharedCache) Client() (cfg sharedcache.Config, ok bool) {
	return sharedcache.Config{URL: s.URL, Deadline: s.Deadline.Std()}, s.URL != ""
}

// className is the form of the names of classes.
var className = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

const maxQueueClasses = 64

// selection fills and checks what spans several keys of queue, routing.load,
// lora and shared_cache.
func (l *loader) selection(cfg *Config) {
	classes := []string{"queue", "classes"}
	for _, name := range slices.Sorted(maps.Keys(cfg.Queue.Classes)) {
		if !className.MatchString(name) {
			l.problems = append(l.problems, badValue(l.origin(below(classes, name)), dotted(classes), name, "names of 1 to 64 of a-z, 0-9, '_' and '-'"))
		}
	}
	if n := len(cfg.Queue.Classes); n > maxQueueClasses {
		l.problems = append(l.problems, badValue(l.origin(classes), dotted(classes), fmt.Sprintf("%d classes", n), "at most 64 classes, default among them"))
	}
	l.rules(cfg)
	if rl := cfg.Routing.Load; rl.TokensPerSecond != 0 && rl.Estimator != string(load.EstimateRate) {
		path := []string{"routing", "load", "tokens_per_second"}
		l.problems = append(l.problems, badValue(l.origin(path), dotted(path), decimalText(rl.TokensPerSecond), "0, or a number beside routing.load.estimator: rate"))
	} else {
		l.refusedField([]string{"routing", "load"}, rl.Core().Validate())
	}
	if len(cfg.LoRA.Manage) == 0 {
		cfg.LoRA.Manage = nil
	}
	l.refusedField([]string{"lora"}, cfg.LoRA.Validate())
	if sc, ok := cfg.SharedCache.Client(); ok {
		l.refusedField([]string{"shared_cache"}, sc.Validate())
	}
}

// rules refuses what no policy can be found by. Whether a policy of that name was
// made is not known here.
func (l *loader) rules(cfg *Config) {
	for i, r := range cfg.Routing.Rules {
		if r.Policy == "" {
			path := []string{"routing", "rules", strconv.Itoa(i), "policy"}
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path), "", "the name of a policy"))
		}
	}
}

// refusedField takes over what a package's own validator refuses below a path;
// it writes indexes as in manage[2].name.
func (l *loader) refusedField(path []string, err error) {
	fe, ok := errors.AsType[*fleet.FieldError](err)
	if !ok {
		return
	}
	field, _, _ := strings.Cut(fe.Field, " ") // what follows says more of the field
	path = append(path, strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) })...)
	l.problems = append(l.problems, badValue(l.origin(path), dotted(path), fe.Value, fe.Allowed))
}

// classDefaults fills what a class of the file leaves out.
func classDefaults(v any) any {
	given, ok := v.(map[string]any)
	if !ok && v != nil {
		return v
	}
	d := DefaultQueueClass()
	return filled(given, map[string]any{
		"weight": d.Weight, "order": d.Order, "timeout": d.Timeout,
		"limits": map[string]any{"requests": d.Limits.Requests, "tokens": d.Limits.Tokens, "cached_tokens": d.Limits.CachedTokens},
	})
}

// filled is given with what it lacks of the defaults.
func filled(given, defaults map[string]any) map[string]any {
	out := maps.Clone(defaults)
	for key, value := range given {
		inner, nested := value.(map[string]any)
		if d, ok := defaults[key].(map[string]any); ok && (nested || value == nil) {
			out[key] = filled(inner, d)
			continue
		}
		out[key] = value
	}
	return out
}
