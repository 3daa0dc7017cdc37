package config_test

import (
	"testing"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
)

func TestWhereTheConfigurationNamesAModel(t *testing.T) {
	inGroup := func(group string) fleet.PartitionKey { return fleet.PartitionKey{Model: "m", Group: group} }
	for _, c := range []struct {
		name   string
		change func(*config.Config)
		in, of bool // of the default group, of another one
	}{
		{"nowhere", func(*config.Config) {}, false, false},
		{"models", func(c *config.Config) { c.Models = map[string]config.Model{"m": config.DefaultModel()} }, true, true},
		{"another model", func(c *config.Config) { c.Models = map[string]config.Model{"m2": config.DefaultModel()} }, false, false},
		{"a rule", func(c *config.Config) { c.Routing.Rules = []config.Rule{{Model: "m"}} }, true, true},
		{"a rule of a group", func(c *config.Config) { c.Routing.Rules = []config.Rule{{Model: "m", Group: "g"}} }, false, true},
		{"a rule of all models", func(c *config.Config) { c.Routing.Rules = []config.Rule{{Class: "c"}} }, false, false},
		{"an adapter", func(c *config.Config) { c.LoRA.Manage = []adapters.Adapter{{Name: "a", Model: "m"}} }, true, true},
		{"a worker", func(c *config.Config) { c.Workers.Static = []fleet.Record{{Name: "w", Model: "m"}} }, true, false},
		{"a worker whose engine says it", func(c *config.Config) { c.Workers.Static = []fleet.Record{{Name: "w"}} }, false, false},
		{"a name server's", func(c *config.Config) {
			c.Workers.DNS = []dns.Config{{Host: "h", Template: fleet.Record{Model: "m", Group: "g"}}}
		}, false, true},
	} {
		cfg := config.DefaultConfig()
		c.change(&cfg)
		if in, of := cfg.Names(inGroup("default")), cfg.Names(inGroup("g")); in != c.in || of != c.of {
			t.Errorf("%s: got %v and %v of another group", c.name, in, of)
		}
	}
}
