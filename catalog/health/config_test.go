package health_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/fleet"
)

func TestConfig(t *testing.T) {
	if err := health.DefaultConfig().Validate(); err != nil {
		t.Fatalf("the default: %v", err)
	}
	for _, c := range []struct {
		field  string // empty when it is allowed
		change func(*health.Config)
	}{
		{"", func(c *health.Config) {
			c.Interval, c.Grace, c.SlowStart, c.Passive.Failures, c.MaxEjected = 0, 0, 0, 0, 0
		}},
		{"interval", func(c *health.Config) { c.Interval = time.Millisecond }},
		{"interval", func(c *health.Config) { c.Interval = -1 }},
		{"timeout", func(c *health.Config) { c.Timeout = 0 }},
		{"grace", func(c *health.Config) { c.Grace = 25 * time.Hour }},
		{"grace", func(c *health.Config) { c.Grace = -time.Second }},
		{"base_ejection", func(c *health.Config) { c.BaseEjection = 0 }},
		{"max_ejection", func(c *health.Config) { c.MaxEjection = time.Second }},
		{"max_ejection", func(c *health.Config) { c.MaxEjection = 48 * time.Hour }},
		{"slow_start", func(c *health.Config) { c.SlowStart = 2 * time.Hour }},
		{"failures", func(c *health.Config) { c.Failures = 0 }},
		{"successes", func(c *health.Config) { c.Successes = 101 }},
		{"max_ejected", func(c *health.Config) { c.MaxEjected = 101 }},
		{"passive.failures", func(c *health.Config) { c.Passive.Failures = -1 }},
		{"passive.window", func(c *health.Config) { c.Passive.Window = 0 }},
		{"path", func(c *health.Config) { c.Path = "health" }},
		{"path", func(c *health.Config) { c.Path = "/a b" }},
		{"path", func(c *health.Config) { c.Path = "/a\r\nX: y" }},
		{"path", func(c *health.Config) { c.Path = "/" + strings.Repeat("x", 256) }},
	} {
		cfg := health.DefaultConfig()
		c.change(&cfg)
		err := cfg.Validate()
		var refused *fleet.FieldError
		if (err == nil) != (c.field == "") || err != nil && (!errors.As(err, &refused) || refused.Field != c.field) {
			t.Errorf("%+v: %v, want %q refused", cfg, err, c.field)
		}
	}
}
