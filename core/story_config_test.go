package core_test

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/core/queue"
)

// start makes the story's world anew.
func (s *story) start(cfg core.Config, policy string) {
	seed := uint64(1)
	cfg.Seed = &seed
	s.around, s.gate = newSurroundings(), &gate{}
	s.held, s.members, s.asked = map[string]*core.Selection{}, map[string]core.Member{}, map[string]*asking{}
	s.world = newWorldIn(s.t, s.around.host(), use(policy), nil, func(c *core.Config) { *c = cfg })
}

// config begins the story anew with a configuration, one line a part of it:
//
//	affinity ttl=10s entries=2 soft writer=7
//	queue refresh=10s
//	class NAME weight=1 order=fcfs busy-requests=1 busy-prefill=0 requests=1 tokens=-1 cached=-1 timeout=1m
//	overload prefill=100 fraction=0.5 kv=0.9
//	estimator rate=100
//	expiry 2s
//	pending ttl=2m entries=4096 bytes=1024
//	policy builtin:least-load
//
// An error leaves the world as it was.
func (s *story) config(d *datadriven.TestData) string {
	cfg := core.DefaultConfig()
	cfg.Queue.Classes = nil
	policy := "builtin:kv-aware"
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "policy" {
			policy = words[1]
			continue
		}
		if err := configure(&cfg, words[0], words[1:]); err != nil {
			return "error: " + err.Error()
		}
	}
	if cfg.Queue.Classes == nil {
		cfg.Queue.Classes = core.DefaultConfig().Queue.Classes
	}
	if err := cfg.Validate(); err != nil {
		return "error: " + err.Error()
	}
	s.end()
	s.start(cfg, policy)
	return "ok"
}

// settings are the words of one line, with or without a value.
func settings(words []string) map[string]string {
	out := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		out[key] = value
	}
	return out
}

func configure(cfg *core.Config, part string, words []string) (err error) {
	set := settings(words)
	duration := func(key string, d *time.Duration) {
		if v, ok := set[key]; ok && err == nil {
			*d, err = time.ParseDuration(v)
		}
	}
	count := func(key string, n *int) {
		if v, ok := set[key]; ok && err == nil {
			*n, err = strconv.Atoi(v)
		}
	}
	fraction := func(key string, f *float64) {
		if v, ok := set[key]; ok && err == nil {
			*f, err = strconv.ParseFloat(v, 64)
		}
	}
	switch part {
	case "affinity":
		_, cfg.Affinity.Soft = set["soft"]
		writer := 0
		count("writer", &writer)
		cfg.Affinity.Writer = uint64(writer)
		duration("ttl", &cfg.Affinity.TTL)
		count("entries", &cfg.Affinity.Entries)
	case "queue":
		duration("refresh", &cfg.Queue.RefreshAfter)
	case "class":
		cfg.Queue.Classes = append(cfg.Queue.Classes, classOf(words[0], set, count, duration))
	case "overload":
		var prefill int
		count("prefill", &prefill)
		cfg.Overload.PrefillTokens = int64(prefill)
		fraction("fraction", &cfg.Overload.PrefillFraction)
		fraction("kv", &cfg.Overload.KVFraction)
	case "estimator":
		cfg.Estimator.Kind = load.EstimateLearned
		if _, ok := set["rate"]; ok {
			cfg.Estimator.Kind = load.EstimateRate
		}
		fraction("rate", &cfg.Estimator.TokensPerSecond)
	case "expiry":
		cfg.Expiry, err = time.ParseDuration(words[0])
	case "pending":
		bytes := int(cfg.Pending.Bytes)
		duration("ttl", &cfg.Pending.TTL)
		count("entries", &cfg.Pending.Entries)
		count("bytes", &bytes)
		cfg.Pending.Bytes = int64(bytes)
	default:
		return fmt.Errorf("no part %q of a configuration", part)
	}
	return err
}

func classOf(name string, set map[string]string, count func(string, *int), duration func(string, *time.Duration)) queue.Class {
	cl := queue.Class{
		Name: name, Weight: 1, Order: queue.Order(cmp.Or(set["order"], "fcfs")), Timeout: time.Minute,
		Limits: queue.Limits{Requests: 256, Tokens: queue.Unlimited, CachedTokens: queue.Unlimited},
	}
	n := func(key string, to *int64) {
		v := int(*to)
		count(key, &v)
		*to = int64(v)
	}
	count("weight", &cl.Weight)
	duration("timeout", &cl.Timeout)
	n("busy-requests", &cl.Busy.ActiveRequests)
	n("busy-prefill", &cl.Busy.PrefillTokens)
	n("requests", &cl.Limits.Requests)
	n("tokens", &cl.Limits.Tokens)
	n("cached", &cl.Limits.CachedTokens)
	return cl
}

// shutGate makes whoever decides from now on wait; the policy must have the
// filter module:gate.
func (s *story) shutGate(*datadriven.TestData) string {
	s.gate.shut()
	return "ok"
}

func (s *story) openGate(d *datadriven.TestData) string {
	s.gate.lift()
	return s.settle(d)
}

// policy publishes the specification in the input; its modules are the gate and
// the oddities.
func (s *story) policy(d *datadriven.TestData) string {
	spec, err := policy.ParseSpec([]byte(d.Input))
	if err != nil {
		return "error: " + err.Error()
	}
	rev := revisionOf(s.t, arg(d, "name", "default"), number(arg(d, "revision", "2")), spec, oddities(s.gate))
	if err := s.world.policies.handle.Publish(rev); err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}
