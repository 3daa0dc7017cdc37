package cli_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/config"
)

func TestModulesArePutListedAndRemoved(t *testing.T) {
	r := start(t)
	wasm := wasmtest.Guest{}.Bytes()
	file := r.file(t, "m.wasm", wasm)
	digest := host.Digest(wasm)
	has(t, r.run(t, "module put mine %q --dry-run", file), "NAME DIGEST SIZE KINDS COLUMNS CHECKED", "mine "+digest)
	has(t, r.run(t, "module list"), "NAME DIGEST SIZE SOURCE SINCE")
	has(t, r.run(t, "module put mine %q --sha256 "+digest, file), "NAME DIGEST", "mine "+digest)
	has(t, r.run(t, "module put mine %q --sha256 "+strings.ToUpper(digest[7:]), file), "NAME DIGEST", "mine "+digest)
	for _, bad := range []string{"", "sha256:", digest[:20], digest + "0"} {
		var wrong *cli.UsageError
		if err := r.fails(t, "module put other %q --sha256 %q", file, bad); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "--sha256") || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	has(t, r.run(t, "module list"), "NAME DIGEST", "mine "+digest[:19]+" ")
	var got struct{ Modules []struct{ Name string } }
	if err := json.Unmarshal([]byte(r.run(t, "module list --output json")), &got); err != nil || got.Modules[0].Name != "mine" {
		t.Errorf("got %+v, %v", got, err)
	}
	has(t, r.run(t, "module rm mine"), "removed module mine")
	var refused *cli.APIError
	if err := r.fails(t, "module rm mine"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound || refused.Code != "not_found" {
		t.Errorf("got %v", err)
	}
	err := r.fails(t, "module put bad %q", r.file(t, "bad.wasm", []byte("random bytes")))
	if !errors.As(err, &refused) || refused.Code != "E_PARSE" || refused.Details.Step == "" || strings.Count(err.Error(), "E_PARSE") != 1 {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "module put ../x %q", file); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "module put mine %q", filepath.Join(r.dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAPolicyIsAppliedActivatedAndRolledBack(t *testing.T) {
	r := start(t)
	r.run(t, "module put mine %q", r.file(t, "m.wasm", wasmtest.Guest{}.Bytes()))
	has(t, r.run(t, "policy apply default --use module:mine --activate"), "policy default revision 2 active, previous 1")
	yaml := "scorers:\n- use: builtin:least-load\n  weight: 2\n"
	warning := "warning weight_never_decides at scorers[0]: "
	has(t, r.run(t, "policy apply default %q", r.file(t, "p.yaml", []byte(yaml))), "policy default revision 3 ready", warning)
	has(t, r.run(t, "policy apply default %q", r.file(t, "p.json", []byte(`{"scorers":[{"use":"builtin:least-load","weight":2}]}`))), "policy default revision 3 ready", warning)
	has(t, r.run(t, "policy activate default 3"), "ACTIVE PREVIOUS", "3 2")
	has(t, r.run(t, "policy rollback default"), "ACTIVE PREVIOUS", "2 3")
	has(t, r.run(t, "policy rollback default --to 1"), "ACTIVE PREVIOUS", "1 2")
	has(t, r.run(t, "policy list"), "NAME ACTIVE STATE SET BY PREVIOUS REVISIONS NOTE", "default 1 active api 2 3 -")
	contains(t, r.run(t, "policy show default"), "policy default, active 1, previous 2", "REVISION STATE MADE BY AT CALLS", "1 active", "2 retired api", "3 retired api",
		"MODULE DIGEST PAGES FUEL", "test sha256:", "AT WHO WHAT REVISION PREVIOUS WHY", "api rollback 2 3", "api rollback 1 2")
	out, err := command(t, yaml, "policy apply other - --admin-url "+r.url+" --data-dir "+r.dir+" --output json")
	if err != nil || !strings.Contains(out, `"revision": 1`) {
		t.Errorf("got %s, %v", out, err)
	}
	var refused *cli.APIError
	if err := r.fails(t, "policy rollback other"); !errors.As(err, &refused) || refused.Details.Step != "no_history" || !strings.Contains(err.Error(), "no_history") {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "policy apply default %q", r.file(t, "twice.yaml", []byte("scorers: []\nscorers: []\n"))); !strings.Contains(err.Error(), "scorers") {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "policy apply default %q", r.file(t, "bad.yaml", []byte("scorers:\n- use: builtin:least-load\n  wieght: 2\n"))); !strings.Contains(err.Error(), "wieght") {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "policy apply default --use module:mine --config %q", `{"a":1}`); !errors.As(err, &refused) || refused.Code != "E_CONFIGURE" {
		t.Errorf("got %v", err)
	}
}

func TestAWorkerDrains(t *testing.T) {
	r := start(t)
	r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m --block-size 16")
	if out := r.run(t, "worker drain w1 --timeout 1h"); !strings.Contains(out, "draining") || !strings.Contains(out, "drains until") {
		t.Errorf("got %s", out)
	}
	has(t, r.run(t, "worker drain w1 --wait"), "worker w1 has nothing left")
	if out := r.run(t, "worker show w1"); !strings.Contains(out, "draining") || !strings.Contains(out, "RANK") {
		t.Errorf("got %s", out)
	}
	if out := r.run(t, "worker undrain w1"); strings.Contains(out, "drains until") {
		t.Errorf("got %s", out)
	}
	var refused *cli.APIError
	if err := r.fails(t, "worker drain w9"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "worker drain w1 --timeout 25h"); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v", err)
	}
}

func TestWorkersAreAddedFromFlagsAndFiles(t *testing.T) {
	r := start(t)
	header := "ID NAME URL MODEL GROUP ENGINE RANKS SOURCE STATE REQUESTS CACHED EVENTS DROPPED REASONS"
	has(t, r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m --group g --dp-size 2 --kv-events tcp://127.0.0.1:5 --kv-events 1=tcp://127.0.0.1:6 --replay 1=tcp://127.0.0.1:7 --label zone=a --taint slow --adapter sql --adapter chat=4 --block-size 16"),
		header, "1 w1 http://127.0.0.1:8000 m g vllm 2 api ready 0 0 - 0 -")
	var got struct{ Workers []map[string]any }
	if err := json.Unmarshal([]byte(r.run(t, "worker list --output json")), &got); err != nil || len(got.Workers) != 1 {
		t.Fatal(got, err)
	}
	want := map[string]any{
		"id": 1.0, "name": "w1", "url": "http://127.0.0.1:8000", "model": "m", "group": "g", "engine": "vllm", "block_size": 16.0, "dp_size": 2.0,
		"kv_events": map[string]any{"0": "tcp://127.0.0.1:5", "1": "tcp://127.0.0.1:6"}, "replay": map[string]any{"1": "tcp://127.0.0.1:7"},
		"labels": map[string]any{"zone": "a"}, "taints": []any{"slow"}, "adapters": []any{map[string]any{"name": "sql"}, map[string]any{"name": "chat", "id": 4.0}},
		"source": "api", "lifecycle": "ready", "reasons": []any{}, "ranks": []any{},
	}
	if diff := cmp.Diff(want, got.Workers[0]); diff != "" {
		t.Error(diff)
	}
	r.run(t, "worker add http://127.0.0.1:8001 --model m")
	r.run(t, "worker add %q", r.file(t, "w.json", []byte(`{"id":"18446744073709551615","url":"http://127.0.0.1:8002","model":"m"}`)))
	r.run(t, "worker add %q", r.file(t, "w.yaml", []byte("name: rack/4\nurl: http://127.0.0.1:8003\nmodel: m\nkv_events:\n  0: tcp://127.0.0.1:9\n")))
	out := r.run(t, "worker list")
	for _, w := range []string{"127.0.0.1:8001", "18446744073709551615", "rack/4"} {
		if !strings.Contains(out, w) {
			t.Errorf("%s is missing\n%s", w, out)
		}
	}
	has(t, r.run(t, "worker rm rack/4"), "removed worker rack/4")
	has(t, r.run(t, "worker rm 18446744073709551615"), "removed worker 18446744073709551615")
	var refused *cli.APIError
	if err := r.fails(t, "worker add http://127.0.0.1:8000 --name w9"); !errors.As(err, &refused) || refused.Status != http.StatusConflict {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "worker add %q", r.file(t, "none.json", []byte(`{"url":"http://127.0.0.1:1"}`))); !strings.Contains(err.Error(), "name nor id") {
		t.Errorf("got %v", err)
	}
	if err := r.fails(t, "worker add %q", r.file(t, "odd.json", []byte(`{"id":2,"url":"http://127.0.0.1:1","modl":"m"}`))); !strings.Contains(err.Error(), "modl") {
		t.Errorf("got %v", err)
	}
}

func TestDecisionsAreExplained(t *testing.T) {
	r := start(t)
	r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m")
	r.run(t, "worker add http://127.0.0.1:8001 --name w2 --id 2 --model m")
	r.book(t, "first")
	r.book(t, "second")
	out := r.run(t, "decisions")
	has(t, out, "ID AT PARTITION POLICY TOKENS CLASS PICK BY FAULT US WAITED US", "second", "first")
	has(t, r.run(t, "decisions --limit 1"), "ID", "second")
	for line, want := range map[string]string{
		"--partition other":         "no decisions match: there is no partition other (",
		"--partition m:other":       "no decisions match: there is no partition m:other (",
		"--partition m --worker w9": "no decisions match",
	} {
		has(t, r.run(t, "decisions "+line), want)
	}
	has(t, r.run(t, "decisions --partition m:default --limit 1"), "ID", "second")
	if a, b := r.run(t, "decisions --worker w1"), r.run(t, "decisions --worker 2"); strings.Count(a, "\n")+strings.Count(b, "\n") != 4 {
		t.Errorf("the two workers' lists:\n%s\n%s", a, b)
	}
	id := strings.Fields(strings.Split(out, "\n")[1])[0]
	one := r.run(t, "decisions %q", id)
	for _, want := range []string{"decision " + id, "32 tokens", "policy default@1 picked w", "best total", "  stages: scorer builtin:kv-aware", "TOTAL", "  builtin:kv-aware", "load.active_requests", "\n*  w", "w1/0", "w2/0", "* picked"} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is missing\n%s", want, one)
		}
	}
	var got struct{ Rows []any }
	if err := json.Unmarshal([]byte(r.run(t, "decisions first --output json")), &got); err != nil || len(got.Rows) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := r.fails(t, "decisions none"); !strings.Contains(err.Error(), "no such decision") {
		t.Errorf("got %v", err)
	}
}

func TestWrongUsageIsAUsageError(t *testing.T) {
	r := start(t)
	for _, line := range []string{
		"policy apply default", "policy apply default file --use module:x", "policy apply default file --config {}",
		"policy apply default --use module:x --config {", "policy activate default x", "policy activate default 0", "policy apply default --use module:x --dry-run --activate", "policy apply default --use module:x --decisions 5",
		"policy shadow default x", "policy shadow default 0", "policy shadow default off --sample 1", "policy canary default 2", "policy canary default 1.5 --percent 1", "policy canary default off --percent 5",
		"policy canary default 2 --header x", "decisions --policy default@1", "policy rollback default --to -1",
		"module list --output xml", "module lst", "worker add http://a:1 --kv-events x=tcp://a:1", "worker add http://a:1 --kv-events tcp://a:1 --kv-events 0=tcp://a:2",
		"worker add http://a:1 --adapter a=b", "worker add file --name x", "worker add http://",
	} {
		var usage *cli.UsageError
		if err := r.fails(t, line); !errors.As(err, &usage) {
			t.Errorf("%s: got %T %v", line, err, err)
		}
	}
	for _, url := range []string{"127.0.0.1:8081", "ftp://a:1", "http://user:CANARY@a:1", "http://"} {
		_, err := command(t, "", "module list --admin-url "+url)
		var usage *cli.UsageError
		if !errors.As(err, &usage) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

func TestTheRouterIsFoundByTheEnvironment(t *testing.T) {
	r := start(t)
	token, err := os.ReadFile(filepath.Join(r.dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("ROUTERD_ADMIN_URL", r.url+"/")
	t.Setenv("ROUTERD_ADMIN_TOKEN", "")
	if _, err := command(t, "", "module list"); err == nil || !strings.Contains(err.Error(), "admin.token is missing") {
		t.Errorf("got %v", err)
	}
	t.Setenv("ROUTERD_ADMIN_TOKEN", string(token))
	if _, err := command(t, "", "module list"); err != nil {
		t.Error(err)
	}
	wrong := r.file(t, "wrong", []byte("another-token-000000\n"))
	var refused *cli.APIError
	if _, err := command(t, "", "module list --token-file "+wrong); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized || strings.Contains(err.Error(), "another") ||
		!strings.Contains(err.Error(), "token of "+wrong) || !strings.Contains(err.Error(), "--data-dir") || !strings.Contains(err.Error(), "ROUTERD_ADMIN_TOKEN") {
		t.Errorf("got %v", err)
	}
	t.Setenv("ROUTERD_ADMIN_TOKEN", "another-token-000000")
	if _, err := command(t, "", "module list"); err == nil || !strings.Contains(err.Error(), "token of ROUTERD_ADMIN_TOKEN") || strings.Contains(err.Error(), "another") {
		t.Errorf("got %v", err)
	}
	t.Setenv("ROUTERD_ADMIN_URL", "http://127.0.0.1:1")
	if _, err := command(t, "", "module list"); err == nil || !strings.Contains(err.Error(), "reach the admin API") {
		t.Errorf("got %v", err)
	}
}

func TestP2_TheDefaultBindIsLoopback(t *testing.T) {
	host, _, err := net.SplitHostPort(config.DefaultConfig().Admin.Listen)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("got %q, %v", host, err)
	}
}

func TestEachCommandHasAnExample(t *testing.T) {
	text := cli.Reference(root())
	for _, c := range []string{
		"module list", "module put NAME FILE", "module rm NAME", "policy list", "policy show NAME", "policy apply NAME [FILE]", "policy activate NAME REVISION",
		"policy shadow NAME REVISION|off", "policy canary NAME REVISION|off", "policy promote NAME", "policy rollback NAME", "worker list", "worker show ID|NAME", "worker add URL|FILE", "worker drain ID|NAME", "worker undrain ID|NAME", "worker rm ID|NAME", "decisions [ID]",
	} {
		_, rest, ok := strings.Cut(text, "\n## routerd "+c+"\n")
		section, _, _ := strings.Cut(rest, "\n## ")
		if !ok || !strings.Contains(section, "```\nrouterd "+strings.Fields(c)[0]) {
			t.Errorf("%s has no example", c)
		}
	}
	for _, group := range []string{"module", "policy", "worker"} {
		if out, err := command(t, "", group); err != nil || !strings.Contains(out, "Available Commands") {
			t.Errorf("%s: got %s, %v", group, out, err)
		}
	}
}
