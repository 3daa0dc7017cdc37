package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/routerd/routerd/internal/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "routerd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func load(t *testing.T, text string, env []string, args ...string) (*config.Loaded, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Input{File: write(t, text), Env: env, Flags: fs})
}

func mustLoad(t *testing.T, text string, env []string, args ...string) *config.Loaded {
	t.Helper()
	l, err := load(t, text, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func refused(t *testing.T, text string, env []string, want ...string) {
	t.Helper()
	_, err := load(t, text, env)
	var ce *config.Error
	if !errors.As(err, &ce) {
		t.Fatalf("Load gave %v, want a *config.Error", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not say %q:\n%v", w, err)
		}
	}
}

func TestAnEmptyFileGivesTheDefaults(t *testing.T) {
	got := mustLoad(t, "", nil).Config
	if diff := cmp.Diff(config.DefaultConfig(), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestF1_EveryUnknownKeyIsNamedWithTheNearestKnownOne(t *testing.T) {
	refused(t, "frontend:\n  grce: 5s\nrooting:\n  seed: 1\n",
		[]string{"ROUTERD_FRONTEND__LISTN=127.0.0.1:1", "ROUTERD_ADMIN_URL=x", "PATH=/bin"},
		"routerd.yaml:2:3: frontend.grce: unknown key; the nearest known one is frontend.grace",
		"routerd.yaml:3:1: rooting: unknown key; the nearest known one is routing",
		"ROUTERD_FRONTEND__LISTN: unknown key; the nearest known one is ROUTERD_FRONTEND__LISTEN")
	refused(t, "", []string{"ROUTERD_INDEX__PEERS=http://127.0.0.1:1"}, "ROUTERD_INDEX__PEERS: index.peers: the file alone can give it")
	refused(t, "", []string{"ROUTERD_MODELS__M__BLOCK_SIZE=16"}, "ROUTERD_MODELS__M__BLOCK_SIZE: models.m.block_size: the file alone can give it")
	refused(t, "", []string{"ROUTERD_QUEUE=x"}, "ROUTERD_QUEUE: queue: the file alone can give it")
}

func TestVariablesThatKubernetesMakesOfAServiceAreNoKeys(t *testing.T) {
	mustLoad(t, "", []string{
		"ROUTERD_SERVICE_HOST=10.0.0.1", "ROUTERD_SERVICE_PORT=8080", "ROUTERD_SERVICE_PORT_HTTP=8080", "ROUTERD_PORT=tcp://10.0.0.1:8080",
		"ROUTERD_PORT_8080_TCP=tcp://10.0.0.1:8080", "ROUTERD_PORT_8080_TCP_PROTO=tcp", "ROUTERD_PORT_8080_TCP_PORT=8080", "ROUTERD_PORT_8080_TCP_ADDR=10.0.0.1",
	})
	refused(t, "", []string{"ROUTERD_PORTS=1"}, "ROUTERD_PORTS: unknown key")
	refused(t, "", []string{"ROUTERD_SERVICE_HOSTS=1"}, "ROUTERD_SERVICE_HOSTS: unknown key")
}

func TestUnknownKeysInsideListsAndMapsAreNamed(t *testing.T) {
	refused(t, "workers:\n  static:\n  - {name: w1, url: 'http://127.0.0.1:1', modle: m}\nmodels:\n  a.b/c: {blok_size: 16}\n", nil,
		"workers.static[0].modle: unknown key; the nearest known one is workers.static[0].model",
		"models.a.b/c.blok_size: unknown key")
}

func TestF2_EnvironmentOverridesTheFileAndFlagsOverrideBoth(t *testing.T) {
	file := "frontend:\n  max_body: 1MiB\n  grace: 5s\n"
	env := []string{"ROUTERD_FRONTEND__GRACE=7s", "ROUTERD_FRONTEND__RETRIES=1", "ROUTERD_FRONTEND__FIRST_BYTE_TIMEOUT=3s"}
	l := mustLoad(t, file, env, "--frontend.retries=0", "--frontend.trust_headers=false")
	f := l.Config.Frontend
	if f.MaxBody != 1<<20 || f.Grace.Std() != 7*time.Second || f.Retries != 0 || f.TrustHeaders || f.FirstByteTimeout.Std() != 3*time.Second {
		t.Errorf("got %+v", f)
	}
	text, err := l.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"max_body: 1MiB # routerd.yaml:2:3", "grace: 7s # ROUTERD_FRONTEND__GRACE", "retries: 0 # --frontend.retries",
		"half_close: abort\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("printed configuration lacks %q:\n%s", want, text)
		}
	}
}

func TestF3_ModelNamesKeepDotsAndSlashes(t *testing.T) {
	l := mustLoad(t, "models: {\"Qwen/Qwen2.5-7B-Instruct\": {block_size: 16}}\n", nil)
	want := map[string]config.Model{"Qwen/Qwen2.5-7B-Instruct": {BlockSize: 16, Tokenize: "engine"}}
	if diff := cmp.Diff(want, l.Config.Models); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestF4_DurationsThatAreNotOneAreRefused(t *testing.T) {
	for _, key := range []string{"frontend.grace", "frontend.first_byte_timeout", "plugins.call_deadline", "plugins.pool_wait"} {
		section, name, _ := strings.Cut(key, ".")
		for _, v := range []string{"30", "1d", "-5s", `""`, "1h30", "1e3s", "true", "[1s]", "999999999h"} {
			refused(t, section+":\n  "+name+": "+v+"\n", nil, "routerd.yaml:2:3: "+key+": ", "is not allowed; allowed: a length of time")
		}
	}
	refused(t, "plugins:\n  call_deadline: 0s\n", nil, "plugins.call_deadline", "1ms to 10s")
	if got := mustLoad(t, "frontend:\n  grace: 0s\n", nil).Config.Frontend.Grace; got != 0 {
		t.Errorf("grace 0s is off, got %s", got)
	}
	refused(t, "", []string{"ROUTERD_FRONTEND__GRACE=30"}, `ROUTERD_FRONTEND__GRACE: frontend.grace: "30" is not allowed`)
}

func TestValuesOutOfRangeNameKeyValueAndRange(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"frontend: {retries: 11}", `frontend.retries: "11" is not allowed; allowed: a whole number from 0 to 10`},
		{"frontend: {retries: '1'}", `frontend.retries: "1" is not allowed`},
		{"frontend: {max_body: 12XB}", `frontend.max_body: "12XB" is not allowed; allowed: a size`},
		{"frontend: {half_close: maybe}", `frontend.half_close: "maybe" is not allowed; allowed: abort, ignore`},
		{"frontend: {trust_headers: 'yes'}", `frontend.trust_headers: "yes" is not allowed; allowed: true or false`},
		{"frontend: {listen: '8080'}", `frontend.listen: "8080" is not allowed; allowed: HOST:PORT`},
		{"frontend: 5", `frontend: "5" is not allowed; allowed: a mapping`},
		{"workers: {static: {}}", `workers.static: "map[]" is not allowed; allowed: a list`},
		{"workers: {static: [{name: w1, url: 'ftp://x'}]}", `workers.static[0].url: "ftp://x" is not allowed; allowed: scheme http`},
		{"models: {m: {tokenize: never}}", `models.m.tokenize: "never" is not allowed; allowed: engine, text, off`},
		{"policies: {fast: {scorers: []}}", `policies.fast: scorers: "[]" is not allowed; allowed: 1 to 16 scorers`},
		{`policies: {fast: {scorers: [{use: "builtin:nope"}]}}`, `policies.fast: `},
		{`policies: {fast: {scorers: [{use: "builtin:kv-aware", config: {host_weight: 2}}]}}`, `host_weight`},
		{`policies: {fast: {scorers: [{use: "builtin:kv-aware"}], fallback: "builtin:nope"}}`, `builtin:nope`},
		{"frontend: {listen: '127.0.0.1:8081'}", `admin.listen: "127.0.0.1:8081" is not allowed; allowed: an address that frontend.listen does not have`},
		{"frontend: {grace: 1s, grace: 2s}", `mapping key "grace" already defined at [1:12]`},
		{"frontend: [", "YAML"},
		{"a: &x 1\nfrontend: *x\n", "unknown key"},
		{"{}\n---\n{}\n", "2 documents"},
	} {
		refused(t, c.text, nil, c.want)
	}
}

func TestM5_WorkersThatShareAnIDNameOrEndpointAreRefused(t *testing.T) {
	refused(t, `workers:
  static:
  - {id: 5, name: a, url: "http://127.0.0.1:1"}
  - {id: 6, name: b, url: "http://127.0.0.1:2"}
  - {id: 5, name: c, url: "http://127.0.0.1:3"}
  - {id: 7, name: b, url: "http://127.0.0.1:4"}
  - {id: 8, name: d, url: "HTTP://127.0.0.1:4/"}
`, nil,
		`routerd.yaml:5:6: workers.static[2].id: "5" is not allowed; allowed: a value that workers.static[0] does not have`,
		`workers.static[3].name: "b" is not allowed; allowed: a value that workers.static[1] does not have`,
		`workers.static[4].url: "http://127.0.0.1:4" is not allowed; allowed: a value that workers.static[3] does not have`)
}

// Of ids that nobody typed nothing is said, nor of what workers that are refused lack.
func TestOnlyWhatWasTypedStandsTwice(t *testing.T) {
	_, err := load(t, `workers: {static: [{url: "http://h:1"}, {name: a, url: "ftp://x"}, {name: b, url: "ftp://y"}, {name: c, url: "http://h:2"}, {name: c, url: "http://h:3"}]}`, nil)
	if got := fmt.Sprint(err); strings.Contains(got, `.id: "`) || !strings.Contains(got, `static[4].name: "c" is not allowed; allowed: a value that workers.static[3] does not have`) {
		t.Errorf("got %s", got)
	}
}

func TestASeedPolicyIsParsedLikeThePolicyAPI(t *testing.T) {
	l := mustLoad(t, "policies:\n  fast: {scorers: [{use: 'builtin:least-load', weight: 2.5}]}\n", nil)
	got := l.Config.Policies["fast"]
	if len(got.Scorers) != 1 || got.Scorers[0].Use != "builtin:least-load" || *got.Scorers[0].Weight != 2.5 || got.Fallback != "builtin:kv-aware" {
		t.Errorf("got %+v", got)
	}
}

func TestAMissingFileIsTheSystemsError(t *testing.T) {
	_, err := config.Load(config.Input{File: filepath.Join(t.TempDir(), "none.yaml")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestThePrintedConfigurationLoadsToTheSame(t *testing.T) {
	first := mustLoad(t, `
data_dir: /tmp/x
models: {"a.b/c": {block_size: 16, policy: fast}}
routing: {rules: [{model: a.b/c, policy: fast}], seed: 7}
policies: {fast: {scorers: [{use: "builtin:kv-aware", config: {host_weight: 0.5}}]}}
workers:
  static:
  - {name: w1, url: "http://127.0.0.1:8000/", model: a.b/c, kv_events: {"0": "tcp://127.0.0.1:5557"}, labels: {zone: a}}
`, nil)
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	second := mustLoad(t, string(text), nil)
	if diff := cmp.Diff(first.Config, second.Config); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
}

func TestPoliciesHaveNamesThatThePolicyAPITakes(t *testing.T) {
	spec := ": {scorers: [{use: 'builtin:kv-aware'}]}}"
	for _, name := range []string{"p", "Fast", "-a", ".a", "a_b", "a b", "a/b", "é1", strings.Repeat("a", 64)} {
		refused(t, "policies: {"+name+spec, nil, `routerd.yaml:1:12: policies: "`+name+`" is not allowed; allowed: names of 2 to 63`)
	}
	for _, name := range []string{"v2", "a.b-c", strings.Repeat("a", 63)} {
		mustLoad(t, "policies: {"+name+spec, nil)
	}
}

func TestAnEmptyDataFolderIsRefused(t *testing.T) {
	refused(t, "data_dir: ''\n", nil, `routerd.yaml:1:1: data_dir: "" is not allowed; allowed: the path of a folder`)
	refused(t, "data_dir: ' '\n", nil, `data_dir: " " is not allowed`)
	refused(t, "", []string{"ROUTERD_DATA_DIR="}, `ROUTERD_DATA_DIR: data_dir: "" is not allowed`)
}

func TestListenersHaveAHost(t *testing.T) {
	for _, bad := range []string{"", ":80", " :80", " 127.0.0.1:80", "127.0.0.1 :80", "local host:80", "127.0.0.1:80 ", "127.0.0.1: 80", "[]:80", "[ ::1]:80", "[fe80::1%a b]:80", "::1:80", "h:", "h:+1", "h:65536"} {
		refused(t, "frontend: {listen: '"+bad+"'}\n", nil, `frontend.listen: "`+bad+`" is not allowed`)
	}
	for _, good := range []string{"127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80", "localhost:0", "router_1.example:80", "0.0.0.0:80"} {
		mustLoad(t, "frontend: {listen: '"+good+"'}\n", nil)
	}
}

func TestAnEmptyNameOfTheFileIsRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"--config="}} {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		config.AddFlags(fs)
		fs.String(config.FileFlag, "", "")
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.Input{Flags: fs})
		_, bad := errors.AsType[*config.Error](err)
		if bad != (len(args) > 0) {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

func TestHeadersThatNoPolicyMaySeeAreRefused(t *testing.T) {
	t.Parallel()
	_, err := load(t, "plugins:\n  headers: [x-team, cookie]\n", nil)
	if err == nil || !strings.Contains(err.Error(), "plugins.headers[1]") || !strings.Contains(err.Error(), "no credential") {
		t.Errorf("got %v; want plugins.headers[1] refused", err)
	}
}
