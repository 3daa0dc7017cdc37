package config_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/core"
	coreload "github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/sharedcache"
)

// The configuration's defaults are those of the packages that it configures.
func TestTheDefaultsOfTheCoreAreTheCoresOwn(t *testing.T) {
	cfg, own := config.DefaultConfig(), core.DefaultConfig()
	got := core.Config{Queue: cfg.Queue.Core(), Affinity: cfg.Affinity.Core(), Estimator: cfg.Routing.Load.Core(), Overload: cfg.Queue.Overload.Core()}
	want := core.Config{Queue: own.Queue, Affinity: own.Affinity, Estimator: coreload.Estimator{Kind: coreload.EstimateNone}, Overload: own.Overload}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(adapters.DefaultConfig(), cfg.LoRA); diff != "" {
		t.Errorf("lora (-want +got)\n%s", diff)
	}
	if sc, on := cfg.SharedCache.Client(); on || sc != sharedcache.DefaultConfig() {
		t.Errorf("the shared cache is %+v, on: %t", sc, on)
	}
}

func TestAClassHasTheDefaultsOfWhatItLeavesOut(t *testing.T) {
	l := mustLoad(t, `
queue:
  refresh_after: 2s
  classes:
    batch: {}
    chat: {weight: 9, order: wspt, busy: {active_requests: 4, prefill_fraction: 0.5}, limits: {tokens: 1000, requests: 0}, timeout: 5s}
    bulk: {limits: {requests: unlimited}, busy: {prefill_tokens: 8192}}
  overload: {prefill_tokens: 65536, prefill_fraction: 1.5, kv_fraction: 0.9}
`, nil)
	plain := queue.DefaultConfig().Classes[0]
	class := func(name string, change func(*queue.Class)) queue.Class {
		c := plain
		c.Name = name
		change(&c)
		return c
	}
	want := queue.Config{RefreshAfter: 2 * time.Second, Classes: []queue.Class{
		class("batch", func(*queue.Class) {}),
		class("bulk", func(c *queue.Class) { c.Limits.Requests, c.Busy.PrefillTokens = queue.Unlimited, 8192 }),
		class("chat", func(c *queue.Class) {
			c.Weight, c.Order, c.Timeout = 9, queue.WSPT, 5*time.Second
			c.Busy = queue.Busy{ActiveRequests: 4, PrefillFraction: 0.5}
			c.Limits = queue.Limits{Requests: 0, Tokens: 1000, CachedTokens: queue.Unlimited}
		}),
		class("default", func(*queue.Class) {}),
	}}
	if diff := cmp.Diff(want, l.Config.Queue.Core()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := l.Config.Queue.Core().Validate(); err != nil {
		t.Error(err)
	}
	wantOver := coreload.Overload{PrefillTokens: 65536, PrefillFraction: 1.5, KVFraction: 0.9}
	if diff := cmp.Diff(wantOver, l.Config.Queue.Overload.Core()); diff != "" {
		t.Errorf("overload (-want +got)\n%s", diff)
	}
}

func TestTheClassDefaultIsAlwaysThere(t *testing.T) {
	l := mustLoad(t, "queue: {classes: {default: {busy: {active_requests: 2}}}}\n", nil)
	want := config.DefaultQueueClass()
	want.Busy.ActiveRequests = 2
	if diff := cmp.Diff(map[string]config.QueueClass{"default": want}, l.Config.Queue.Classes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	l = mustLoad(t, "queue: {classes: {chat: {}}}\n", nil)
	if got := len(l.Config.Queue.Classes); got != 2 {
		t.Errorf("%d classes, want chat and default", got)
	}
}

func TestWhatTheQueueCannotBeIsRefusedWithItsPlace(t *testing.T) {
	class := func(fields string) string { return "queue: {classes: {chat: {" + fields + "}}}" }
	var many strings.Builder
	many.WriteString("queue:\n  classes:\n")
	for i := range 64 {
		fmt.Fprintf(&many, "    c%d: {}\n", i)
	}
	for _, c := range []struct{ text, want string }{
		{class("weight: 0"), `queue.classes.chat.weight: "0" is not allowed; allowed: a whole number from 1 to 10000`},
		{class("weight: 10001"), `queue.classes.chat.weight: "10001"`},
		{class("order: lifo"), `queue.classes.chat.order: "lifo" is not allowed; allowed: fcfs, wspt`},
		{class("timeout: 0s"), `queue.classes.chat.timeout: "0s" is not allowed`},
		{class("timeout: 61m"), "1ms to 1h"},
		{class("limits: {requests: -1}"), `queue.classes.chat.limits.requests: "-1" is not allowed; allowed: a whole number from 0 to 1099511627776, or unlimited`},
		{class("limits: {requests: many}"), `queue.classes.chat.limits.requests: "many"`},
		{class("limits: {requests: '5'}"), `queue.classes.chat.limits.requests: "5"`},
		{class("limits: {requests: 0x5}"), `queue.classes.chat.limits.requests: "0x5"`},
		{class("limits: {tokens: 1.5}"), `queue.classes.chat.limits.tokens: "1.5"`},
		{class("busy: {active_requests: -1}"), `queue.classes.chat.busy.active_requests: "-1" is not allowed; allowed: a whole number from 0`},
		{class("busy: {prefill_fraction: 1001}"), `queue.classes.chat.busy.prefill_fraction: "1001" is not allowed; allowed: a decimal number from 0 to 1000`},
		{class("bussy: {}"), "unknown key; the nearest known one is queue.classes.chat.busy"},
		{"queue: {classes: {Chat: {}}}", `routerd.yaml:1:19: queue.classes: "Chat" is not allowed; allowed: names of 1 to 64 of a-z`},
		{"queue: {classes: {chat: 5}}", `queue.classes.chat: "5" is not allowed; allowed: a mapping`},
		{many.String(), `queue.classes: "65 classes" is not allowed; allowed: at most 64`},
		{"queue: {refresh_after: 61m}", `queue.refresh_after: "61m" is not allowed`},
		{"queue: {overload: {kv_fraction: 1.1}}", `queue.overload.kv_fraction: "1.1" is not allowed; allowed: a decimal number from 0 to 1`},
		{"affinity: {entries: 0}", `affinity.entries: "0" is not allowed; allowed: a whole number from 1 to 65536`},
		{"affinity: {entries: 65537}", `affinity.entries: "65537"`},
		{"affinity: {mode: firm}", `affinity.mode: "firm" is not allowed; allowed: hard, soft`},
		{"routing: {load: {estimator: guess}}", `routing.load.estimator: "guess" is not allowed; allowed: none, rate, learned`},
		{"routing: {load: {estimator: rate}}", `routing.load.tokens_per_second: "0" is not allowed; allowed: a number above 0`},
		{"routing: {load: {tokens_per_second: 5}}", `routerd.yaml:1:18: routing.load.tokens_per_second: "5" is not allowed; allowed: 0, or a number beside routing.load.estimator: rate`},
		{"routing: {rules: [{policy: a}, {class: chat}]}", `routerd.yaml:1:32: routing.rules[1].policy: "" is not allowed; allowed: the name of a policy`},
		{"lora: {slots: 0}", `lora.slots: "0" is not allowed; allowed: a whole number from 1 to 1024`},
		{"lora: {manage: [{name: a, model: m}]}", `lora.manage[0].path: "" is not allowed; allowed: 1 to 4096`},
		{"lora: {manage: [{name: a, model: m, path: p}, {name: a, model: m, path: q}]}", `routerd.yaml:1:48: lora.manage[1].name: "a" is not allowed; allowed: a name that no other`},
		{"shared_cache: {url: 'ftp://x'}", `routerd.yaml:1:16: shared_cache.url: "ftp://x" is not allowed; allowed: scheme http`},
		{"shared_cache: {deadline: 0s}", `shared_cache.deadline: "0s" is not allowed`},
		{"shared_cache: {deadline: 2s}", "1ms to 1s"},
	} {
		refused(t, c.text, nil, c.want)
	}
}

// Whatever form a bad value comes in, the error has the field and its range.
func TestR7_BadAffinityTTLsAreRefusedWithFieldValueAndRange(t *testing.T) {
	for _, v := range []string{"0", "-1", "-1s", "1e19", "1e19s", ".nan", "NaN", ".inf", "Infinity", "abc", "31536001", "31536001s", "999ms", "''", "~", "9999999999999s"} {
		refused(t, "affinity:\n  ttl: "+v+"\n", nil, "routerd.yaml:2:3: affinity.ttl: ", "is not allowed; allowed: a length of time", "1s to 31536000s, or 0s for off")
	}
	for _, v := range []string{"0", "-1", "1e19", "NaN", "Infinity", "abc", "31536001", "31536001s"} {
		refused(t, "", []string{"ROUTERD_AFFINITY__TTL=" + v}, `ROUTERD_AFFINITY__TTL: affinity.ttl: "`+v+`" is not allowed`, "1s to 31536000s")
	}
	for text, want := range map[string]time.Duration{"0s": 0, "1s": time.Second, "31536000s": 8760 * time.Hour} {
		if got := mustLoad(t, "affinity: {ttl: "+text+"}\n", nil).Config.Affinity.TTL.Std(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestNumbersThatAreNotWholeAreWrittenInDecimal(t *testing.T) {
	for _, v := range []string{"-0.1", "1e0", ".5", "5.", "+1", "1_0", "0x1", "01", ".nan", ".inf", "NaN", "'0.5'", "half", "true", "[]", "1e19"} {
		refused(t, "queue: {overload: {kv_fraction: "+v+"}}\n", nil, "queue.overload.kv_fraction: ", "is not allowed; allowed: a decimal number from 0 to 1")
	}
	refused(t, "", []string{"ROUTERD_QUEUE__OVERLOAD__KV_FRACTION=1e-1"}, `kv_fraction: "1e-1" is not allowed`)
	l := mustLoad(t, "routing: {load: {estimator: rate, tokens_per_second: 20000000.5}}\n", []string{"ROUTERD_QUEUE__OVERLOAD__PREFILL_FRACTION=0.25"})
	if l.Config.Routing.Load.TokensPerSecond != 20000000.5 || l.Config.Queue.Overload.PrefillFraction != 0.25 {
		t.Errorf("got %+v", l.Config)
	}
	for _, v := range []string{"1000000000", "1000000000.0", "0.000001"} {
		mustLoad(t, "routing: {load: {estimator: rate}}\n", []string{"ROUTERD_ROUTING__LOAD__TOKENS_PER_SECOND=" + v})
	}
}

func TestThePrintedSelectionLoadsToTheSame(t *testing.T) {
	first := mustLoad(t, `
queue:
  refresh_after: 0s
  classes:
    chat: {weight: 9, order: wspt, busy: {prefill_fraction: 0.75}, limits: {requests: 10, tokens: unlimited}}
  overload: {prefill_tokens: 5, prefill_fraction: 12.25, kv_fraction: 1}
affinity: {ttl: 31536000s, entries: 10, mode: soft}
routing: {load: {estimator: rate, tokens_per_second: 123456789.5}, rules: [{class: chat, policy: default}]}
lora: {slots: 2, manage: [{name: a, model: m, path: /x}]}
shared_cache: {url: "http://127.0.0.1:9000", deadline: 20ms}
`, nil)
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	second := mustLoad(t, string(text), nil)
	if diff := cmp.Diff(first.Config, second.Config, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
	for _, want := range []string{"requests: 10\n", "tokens: unlimited\n", "tokens_per_second: 123456789.5", "ttl: 8760h"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the printed configuration lacks %q:\n%s", want, text)
		}
	}
}

// What the guides show as a file is one.
func TestTheGuidesConfigurationsLoad(t *testing.T) {
	for guide, atLeast := range map[string]int{"operate": 4, "fleet": 2, "selection": 2} {
		text, err := os.ReadFile("../../docs/guide/" + guide + ".md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(# routerd.yaml\n.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) < atLeast {
			t.Errorf("%s: only %d configurations", guide, len(blocks))
		}
		for _, b := range blocks {
			mustLoad(t, b[1], nil)
		}
	}
}
