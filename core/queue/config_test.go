package queue_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
)

func TestValidateNamesTheField(t *testing.T) {
	second := func(change func(*queue.Class)) queue.Config {
		cl := class("b", 1, queue.WSPT)
		change(&cl)
		return classes(class("default", 1, queue.FCFS), cl)
	}
	cases := []struct {
		name  string
		cfg   queue.Config
		field string // "" is valid
	}{
		{"the default", queue.DefaultConfig(), ""},
		{"two classes", second(func(*queue.Class) {}), ""},
		{"all at their bounds", second(func(c *queue.Class) {
			c.Name, c.Weight, c.Timeout = strings.Repeat("-", 64), 10000, time.Hour
			c.Busy = queue.Busy{PrefillTokens: math.MaxInt64, PrefillFraction: 1000, ActiveRequests: math.MaxInt64}
			c.Limits = queue.Limits{Requests: 0, Tokens: math.MaxInt64, CachedTokens: -1}
		}), ""},
		{"no class", queue.Config{}, "queue.classes"},
		{"no class default", classes(class("b", 1, queue.FCFS)), "queue.classes"},
		{"too many classes", classes(make([]queue.Class, 65)...), "queue.classes"},
		{"the same name twice", second(func(c *queue.Class) { c.Name = "default" }), "queue.classes[1].name"},
		{"no name", second(func(c *queue.Class) { c.Name = "" }), "queue.classes[1].name"},
		{"a long name", second(func(c *queue.Class) { c.Name = strings.Repeat("a", 65) }), "queue.classes[1].name"},
		{"upper case", second(func(c *queue.Class) { c.Name = "B" }), "queue.classes[1].name"},
		{"no letter", second(func(c *queue.Class) { c.Name = "b c" }), "queue.classes[1].name"},
		{"weight 0", second(func(c *queue.Class) { c.Weight = 0 }), "queue.classes[1].weight"},
		{"weight below 0", second(func(c *queue.Class) { c.Weight = -1 }), "queue.classes[1].weight"},
		{"a large weight", second(func(c *queue.Class) { c.Weight = 10001 }), "queue.classes[1].weight"},
		{"lcfs", second(func(c *queue.Class) { c.Order = "lcfs" }), "queue.classes[1].order"},
		{"no order", second(func(c *queue.Class) { c.Order = "" }), "queue.classes[1].order"},
		{"timeout 0", second(func(c *queue.Class) { c.Timeout = 0 }), "queue.classes[1].timeout"},
		{"timeout below 0", second(func(c *queue.Class) { c.Timeout = -1 }), "queue.classes[1].timeout"},
		{"a long timeout", second(func(c *queue.Class) { c.Timeout = time.Hour + 1 }), "queue.classes[1].timeout"},
		{"busy below 0 tokens", second(func(c *queue.Class) { c.Busy.PrefillTokens = -1 }), "queue.classes[1].busy.prefill_tokens"},
		{"busy below a part of 0", second(func(c *queue.Class) { c.Busy.PrefillFraction = -0.1 }), "queue.classes[1].busy.prefill_fraction"},
		{"busy above NaN", second(func(c *queue.Class) { c.Busy.PrefillFraction = math.NaN() }), "queue.classes[1].busy.prefill_fraction"},
		{"busy above infinity", second(func(c *queue.Class) { c.Busy.PrefillFraction = math.Inf(1) }), "queue.classes[1].busy.prefill_fraction"},
		{"busy below 0 requests", second(func(c *queue.Class) { c.Busy.ActiveRequests = -1 }), "queue.classes[1].busy.active_requests"},
		{"requests below unlimited", second(func(c *queue.Class) { c.Limits.Requests = -2 }), "queue.classes[1].limits.requests"},
		{"tokens below unlimited", second(func(c *queue.Class) { c.Limits.Tokens = -2 }), "queue.classes[1].limits.tokens"},
		{"cached tokens below unlimited", second(func(c *queue.Class) { c.Limits.CachedTokens = -2 }), "queue.classes[1].limits.cached_tokens"},
		{"refresh below 0", queue.Config{Classes: queue.DefaultConfig().Classes, RefreshAfter: -1}, "queue.refresh_after"},
		{"a late refresh", queue.Config{Classes: queue.DefaultConfig().Classes, RefreshAfter: 2 * time.Hour}, "queue.refresh_after"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			if c.field == "" {
				if err != nil {
					t.Errorf("got %v; want none", err)
				}
				return
			}
			field, ok := errors.AsType[*fleet.FieldError](err)
			if !ok || field.Field != c.field || field.Allowed == "" {
				t.Errorf("got %v; want a FieldError for %s", err, c.field)
			}
		})
	}
}

func TestBusyWhenAnyBoundIsPassed(t *testing.T) {
	cases := []struct {
		name    string
		busy    queue.Busy
		prefill float64
		active  int64
		batched int64
		want    bool
	}{
		{"no bound", queue.Busy{}, 1e18, math.MaxInt64, 1, false},
		{"tokens at the bound", queue.Busy{PrefillTokens: 50}, 50, 0, 0, false},
		{"tokens above the bound", queue.Busy{PrefillTokens: 50}, 50.5, 0, 0, true},
		{"part at the bound", queue.Busy{PrefillFraction: 0.5}, 1000, 0, 2000, false},
		{"part above the bound", queue.Busy{PrefillFraction: 0.5}, 1001, 0, 2000, true},
		{"part of a batch that is not given", queue.Busy{PrefillFraction: 0.5}, 5_000_000, 0, 0, false},
		{"above a part of a batch that is not given", queue.Busy{PrefillFraction: 0.5}, 5_000_001, 0, 0, true},
		{"requests below the bound", queue.Busy{ActiveRequests: 2}, 1e9, 1, 0, false},
		{"requests at the bound", queue.Busy{ActiveRequests: 2}, 0, 2, 0, true},
		{"one bound of several", queue.Busy{PrefillTokens: 1000, PrefillFraction: 1000, ActiveRequests: 1}, 0, 1, 100, true},
		{"none of several", queue.Busy{PrefillTokens: 1000, PrefillFraction: 10, ActiveRequests: 9}, 1000, 8, 100, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.busy.Holds(c.prefill, c.active, c.batched); got != c.want {
				t.Errorf("got %v", got)
			}
			if got, want := c.busy.Enabled(), c.busy != (queue.Busy{}); got != want {
				t.Errorf("enabled: %v", got)
			}
			cfg := classes(class("default", 1, queue.FCFS), class("b", 1, queue.FCFS))
			cfg.Classes[1].Busy = c.busy
			if got, want := cfg.Enabled(), c.busy.Enabled(); got != want {
				t.Errorf("config enabled: %v", got)
			}
		})
	}
}
