package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/config"
)

func TestEveryKeyIsLiveOrNeedsARestart(t *testing.T) {
	restart := []string{}
	row := regexp.MustCompile("^\\| `([^`]+)` \\|.*\\| (\\w*) \\| [^|]*\\|$")
	rows := 0
	for line := range strings.Lines(config.Reference()) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		switch {
		case m == nil, m[2] != "live" && m[2] != "restart":
			t.Errorf("neither live nor restart: %s", line)
		case strings.HasPrefix(m[1], "workers.dns[]."): // parts of one key
		case m[2] == "restart":
			restart = append(restart, m[1])
		}
	}
	if rows < 50 {
		t.Errorf("%d rows", rows)
	}
	if diff := cmp.Diff([]string{
		"data_dir", "frontend.listen", "admin.listen", "selection.listen", "selection.expiry", "selection.pending_ttl",
		"selection.pending_entries", "selection.pending_bytes", "workers.dns", "workers.resync", "routing.load.estimator", "routing.load.tokens_per_second", "plugins.module_dir",
		"index.kind", "index.max_bytes", "index.peers", "index.peer_token_file", "index.peer_timeout", "index.dump", "index.dump_interval", "index.predicted_ttl",
		"index.decisions.ttl", "index.decisions.max_blocks", "index.decisions.max_bytes",
		"index.remote.url", "index.remote.token_file", "index.remote.deadline", "index.serve.listen", "index.serve.token_file",
		"ingress.owners", "ingress.rcv_hwm", "ingress.max_message", "ingress.reconnect_ivl", "ingress.reconnect_ivl_max", "ingress.heartbeat",
		"ingress.unconnected_after", "ingress.replay_timeout", "ingress.replay_retry_min", "ingress.replay_retry_max", "ingress.replay_tries",
		"ingress.buffer_messages", "ingress.buffer_bytes", "ingress.curve.server_key", "ingress.curve.secret_key_file", "affinity.ttl", "affinity.entries",
	}, restart); diff != "" {
		t.Errorf("keys that need a restart (-want +got)\n%s", diff)
	}
}

func TestChangedNamesEveryKeyThatDiffers(t *testing.T) {
	const was = `
models: {"a.b/c": {block_size: 16}, old: {}}
policies: {fast: {scorers: [{use: "builtin:kv-aware"}]}}
workers: {static: [{name: w1, url: "http://127.0.0.1:8000"}]}
`
	for _, c := range []struct {
		name, now string
		live      []string
		fixed     []config.Fixed
	}{
		{"the same text", was, nil, nil},
		{"the same in other words", `
workers: {static: [{url: "http://127.0.0.1:8000/", name: "w1", group: default}]}
policies: {fast: {scorers: [{use: "builtin:kv-aware"}], fallback: "builtin:kv-aware"}}
models: {old: {tokenize: engine}, "a.b/c": {block_size: 16}}
frontend: {grace: 30000ms}
`, nil, nil},
		{"nested, new and gone", `
data_dir: /elsewhere
frontend: {listen: "127.0.0.1:9", retries: 1}
admin: {listen: "127.0.0.1:10"}
models: {"a.b/c": {block_size: 32, tokenize: "off"}, new: {}}
policies: {fast: {scorers: [{use: "builtin:kv-aware", weight: 2}]}, more: {scorers: [{use: "builtin:kv-aware"}]}}
routing: {rules: [{policy: fast}]}
log: {level: debug}
`, []string{
			"frontend.retries", "log.level", "models.a.b/c.block_size", "models.a.b/c.tokenize", "models.new", "models.old",
			"policies.fast", "policies.more", "routing.rules", "workers.static",
		}, []config.Fixed{
			{Key: "admin.listen", Was: "127.0.0.1:8081", Now: "127.0.0.1:10"},
			{Key: "data_dir", Was: "/here", Now: "/elsewhere"},
			{Key: "frontend.listen", Was: "127.0.0.1:8080", Now: "127.0.0.1:9"},
		}},
		{"an empty list is none", was + "routing: {rules: []}\n", nil, nil},
	} {
		env := []string{"ROUTERD_DATA_DIR=/here"}
		if c.fixed != nil {
			env = nil
		}
		live, fixed := config.Changed(mustLoad(t, was, []string{"ROUTERD_DATA_DIR=/here"}).Config, mustLoad(t, c.now, env).Config)
		if diff := cmp.Diff(c.live, live); diff != "" {
			t.Errorf("%s: live (-want +got)\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.fixed, fixed); diff != "" {
			t.Errorf("%s: fixed (-want +got)\n%s", c.name, diff)
		}
	}
}

// A restart is asked for in the words of the file.
func TestListsThatNeedARestartAreToldAsTheFileHasThem(t *testing.T) {
	const was = `
index: {peers: ["http://127.0.0.1:9101", "http://127.0.0.1:9102"]}
workers:
  dns:
  - host: _http._tcp.vllm.svc.
    template: {kv_events: {0: "tcp://*:5557"}, labels: {zone: a}}
  - {name: batch, record: a, host: batch.svc., port: 8000, interval: 90s, server: "127.0.0.1:53"}
`
	_, got := config.Changed(mustLoad(t, was, nil).Config, mustLoad(t, "", nil).Config)
	want := []config.Fixed{
		{Key: "index.peers", Was: `["http://127.0.0.1:9101", "http://127.0.0.1:9102"]`, Now: "[]"},
		{
			Key: "workers.dns", Was: `[{name: _http._tcp.vllm.svc, record: srv, host: _http._tcp.vllm.svc., interval: 10s, timeout: 5s, empty_after: 30s, ` +
				`template: {kv_events: {"0": "tcp://*:5557"}, labels: {zone: a}}}, ` +
				`{name: batch, record: a, host: batch.svc., port: 8000, interval: 1m30s, timeout: 5s, empty_after: 30s, server: "127.0.0.1:53"}]`,
			Now: "[]",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
