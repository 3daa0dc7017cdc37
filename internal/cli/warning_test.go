package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/plugins/abi"
)

func TestWarningsOfEveryAnswerArePrinted(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"name":"default","revision":2,"active":2,"previous":1,"changed":[],"warnings":[{"code":"drifted","item":"policies.default","message":"not in force"},{"code":"c","stage":"scorers[0]","message":"m"}]}`))
	}))
	defer srv.Close()
	t.Setenv("ROUTERD_ADMIN_URL", srv.URL)
	t.Setenv("ROUTERD_ADMIN_TOKEN", "token")
	lines := []string{
		"policy apply default --use builtin:least-load", "policy apply default --use builtin:least-load --dry-run", "policy activate default 2", "policy rollback default",
		"policy promote default", "policy canary default 2 --percent 1", "policy shadow default 2", "module put x %q", "worker add http://a:1", "reload",
	}
	file := (&router{dir: t.TempDir()}).file(t, "x.wasm", []byte("bytes"))
	for _, line := range lines {
		c := root()
		c.AddCommand(cli.ConfigReload())
		var out strings.Builder
		c.SetOut(&out)
		c.SetArgs(strings.Fields(strings.Replace(line, "%q", file, 1)))
		if err := c.Execute(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		want := "warning drifted at policies.default: not in force\nwarning c at scorers[0]: m\n"
		_, got, _ := strings.Cut(out.String(), "warning")
		if diff := cmp.Diff(want, "warning"+got); diff != "" {
			t.Errorf("%s:\n%s", line, diff)
		}
	}
}

func TestATrialThatDidNotDecideWarns(t *testing.T) {
	r := rolling(t)
	r.book(t, "one")
	r.book(t, "two")
	bad := Guest{Name: "bad", ScoreTypes: ColumnTypes, Score: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(Op(Unreachable)), Column(0))}.Bytes()
	r.run(t, "module put bad %q", r.file(t, "bad.wasm", bad))
	contains(t, r.run(t, "policy apply default --use module:bad --dry-run"), "tried on 2 recorded", "warning faults: 2 of 2 recorded decisions: ")
	zones := Guest{Name: "zones", Columns: []string{"label.zone"}, Score: Column(0), ScoreTypes: ColumnTypes}.Bytes()
	r.run(t, "module put zones %q", r.file(t, "zones.wasm", zones))
	contains(t, r.run(t, "policy apply default --use module:zones --dry-run"), "tried on 2 recorded", "warning lacking: 2 of 2 recorded decisions do not have label.zone ")
	r.run(t, "policy apply default --use module:zones")
	r.book(t, "three")
	out := r.run(t, "policy apply default --use module:zones --dry-run --decisions 1")
	if contains(t, out, "tried on 1 recorded"); strings.Contains(out, "warning") {
		t.Errorf("got\n%s", out)
	}
}

func TestLabelsAreShownAsWholeIDs(t *testing.T) {
	r := start(t)
	r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m --label zone=a")
	r.run(t, "worker add http://127.0.0.1:8001 --name w2 --id 2 --model m")
	r.run(t, "module put zones %q", r.file(t, "zones.wasm", Guest{Name: "zones", Columns: []string{"label.zone"}, Score: Column(0), ScoreTypes: ColumnTypes}.Bytes()))
	r.run(t, "policy apply default --use module:zones --activate")
	r.book(t, "one")
	// The id of "a", in full.
	contains(t, r.run(t, "decisions one"), "w1/0 8119645718696649 8119645718696649", "w2/0 0 0 0?", "label.zone")
}
