package dns_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/fleet"
)

func TestConfigurationsOutOfRangeNameTheField(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*dns.Config)
	}{
		{"", func(*dns.Config) {}},
		{"", func(c *dns.Config) { c.Record, c.Port = dns.SRV, 0 }},
		{"", func(c *dns.Config) { c.Server = "[::1]:53" }},
		{"", func(c *dns.Config) { c.Server, c.Host = "ns.test:53", "_http._tcp.vllm.svc." }},
		{"", func(c *dns.Config) { c.Template.KVEvents = map[int]string{0: "tcp://*:5557"} }},
		{"name", func(c *dns.Config) { c.Name = "a b" }},
		{"name", func(c *dns.Config) { c.Name = strings.Repeat("n", 257) }},
		{"record", func(c *dns.Config) { c.Record = "cname" }},
		{"host", func(c *dns.Config) { c.Host = "" }},
		{"host", func(c *dns.Config) { c.Host = "a..b" }},
		{"host", func(c *dns.Config) { c.Host = strings.Repeat("a", 64) + ".test" }},
		{"host", func(c *dns.Config) { c.Host = "127.0.0.1" }},
		{"host", func(c *dns.Config) { c.Host = "vllm.svc:8000" }},
		{"port", func(c *dns.Config) { c.Port = 0 }},
		{"port", func(c *dns.Config) { c.Port = 65536 }},
		{"port", func(c *dns.Config) { c.Record = dns.SRV }},
		{"server", func(c *dns.Config) { c.Server = "127.0.0.1" }},
		{"server", func(c *dns.Config) { c.Server = "127.0.0.1:0" }},
		{"interval", func(c *dns.Config) { c.Interval = time.Second - 1 }},
		{"timeout", func(c *dns.Config) { c.Timeout = 2 * time.Minute }},
		{"empty_after", func(c *dns.Config) { c.EmptyAfter = -1 }},
		{"template.id", func(c *dns.Config) { c.Template.ID = 1 }},
		{"template.name", func(c *dns.Config) { c.Template.Name = "w" }},
		{"template.url", func(c *dns.Config) { c.Template.URL = "http://127.0.0.1:1" }},
		{"template.engine", func(c *dns.Config) { c.Template.Engine = "ollama" }},
		{"template.kv_events.0", func(c *dns.Config) { c.Template.KVEvents = map[int]string{0: "tcp://127.0.0.1:5557"} }},
		{"template.replay.0", func(c *dns.Config) { c.Template.Replay = map[int]string{0: "tcp://*:x"} }},
		{"template.kv_events", func(c *dns.Config) { c.Template.DPSize, c.Template.KVEvents = 1, map[int]string{1: "tcp://*:5557"} }},
	} {
		cfg := dns.Config{Record: dns.A, Host: "vllm.svc", Port: 8000}.WithDefaults()
		c.change(&cfg)
		err := cfg.Validate()
		if c.field == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("want an error about %s, got %v", c.field, err)
		}
	}
}
