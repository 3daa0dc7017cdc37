package cli_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/plugins/abi"
)

// rolling is a router with two workers whose default policy has the revisions 1
// (active), 2 of builtin:least-load and 3 of a module.
func rolling(t *testing.T) *router {
	t.Helper()
	r := start(t)
	r.run(t, "worker add http://127.0.0.1:8000 --name w1 --id 1 --model m")
	r.run(t, "worker add http://127.0.0.1:8001 --name w2 --id 2 --model m")
	r.run(t, "module put high %q", r.file(t, "m.wasm", Guest{Name: "high", Score: Column(0), ScoreTypes: ColumnTypes}.Bytes()))
	r.run(t, "policy apply default --use builtin:least-load")
	r.run(t, "policy apply default --use module:high")
	return r
}

func TestARevisionIsShadowedCanariedAndPromoted(t *testing.T) {
	r := rolling(t)
	has(t, r.run(t, "policy shadow default 3 --sample 0.5"), "ACTIVE PREVIOUS CANARY SHADOW", "1 - - 3 at sample 0.5")
	has(t, r.run(t, "policy canary default 2 --percent 100 --by session --header X-Try=blue"), "ACTIVE", "1 - 2 at 100 % by session and header x-try 3 at sample 0.5")
	r.book(t, "one")
	has(t, r.run(t, "policy list"), "NAME", "default 1 active built-in - 3 canary 2 at 100 % by session and header x-try; shadow 3 at sample 0.5")
	out := r.run(t, "policy show default")
	contains(t, out, "1 active", "2 canary api", "3 shadow api", "canary 2 at 100 % by session and header x-try=blue, since", "shadow 3 at sample 0.5, since",
		"SEEN SAMPLED SHED DECIDED AGREED MASKED REGRET MEAN MAX LOAD ACTIVE SHADOW FUEL US FAULTS", "api shadow 3 - sample 0.5", "api canary 2")
	if strings.Count(out, "blue") != 1 || !strings.Contains(out, ": 1 calls") {
		t.Errorf("got\n%s", out)
	}
	has(t, r.run(t, "policy promote default"), "ACTIVE PREVIOUS", "2 1")
	var refused *cli.APIError
	if err := r.fails(t, "policy promote default"); !errors.As(err, &refused) || refused.Status != http.StatusConflict || refused.Details.Step != "no_rollout" {
		t.Errorf("got %v", err)
	}
	r.run(t, "policy canary default 3 --header x-try=1")
	has(t, r.run(t, "policy rollback default"), "ACTIVE PREVIOUS", "2 1", "canary of revision 3 ended")
	r.run(t, "policy shadow default 3")
	for _, what := range []string{"canary", "shadow"} {
		out = r.run(t, "policy "+what+" default off")
	}
	has(t, out, "ACTIVE PREVIOUS CANARY SHADOW", "2 1 - -")
	if err := r.fails(t, "policy canary default 3 --percent 101"); !strings.Contains(err.Error(), "0 to 100") {
		t.Errorf("got %v", err)
	}
	r.run(t, "policy canary default 3 --percent 5")
	r.run(t, "policy shadow default 3")
	has(t, r.run(t, "policy rollback default"), "ACTIVE PREVIOUS", "2 1", "canary of revision 3 ended; shadow of 3 goes on")
	has(t, r.run(t, "policy rollback default --to 3"), "ACTIVE PREVIOUS", "3 2", "shadow of 3 ended")
	has(t, r.run(t, "policy rollback default"), "ACTIVE PREVIOUS", "2 3")
	var got struct{ Shadow *struct{ Revision int } }
	if err := json.Unmarshal([]byte(r.run(t, "policy shadow default 3 --output json")), &got); err != nil || got.Shadow.Revision != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestADryRunPrintsWhatWouldChange(t *testing.T) {
	r := rolling(t)
	r.run(t, "policy activate default 2")
	r.book(t, "one")
	r.book(t, "two")
	out := r.run(t, "policy apply default --use module:high --dry-run")
	contains(t, out, "policy default: nothing is kept; it is the same as revision 3", "columns: kv.overlap_device, ", "tried on 2 recorded decisions against revision 2",
		"DECIDED COMPARED AGREED DISAGREED REGRET MAX EMPTIED LACKING FAULTS", "SCORER SCORED DECISIVE", "module:high 2", "DECISION ACTIVE PICKS THIS PICKS", "two.")
	spec := r.file(t, "p.yaml", []byte("scorers:\n- use: builtin:least-load\n- use: builtin:round-robin\n  weight: 0\n"))
	contains(t, r.run(t, "policy apply default %q --dry-run --decisions 1", spec), "nothing is kept; it would be a new revision", "tried on 1 recorded", "warning weight_never_decides at scorers[1]: ")
	contains(t, r.run(t, "policy apply default %q", spec), "policy default revision 4 ready", "warning weight_never_decides at scorers[1]: ")
	var got struct {
		DryRun bool `json:"dry_run"`
		Trial  struct{ Frames int }
	}
	if err := json.Unmarshal([]byte(r.run(t, "policy apply default --use module:high --dry-run --output json")), &got); err != nil || !got.DryRun || got.Trial.Frames != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestADecisionIsPrintedBesideAnotherRevisions(t *testing.T) {
	r := rolling(t)
	drops := Guest{Name: "drops", Kinds: []string{"filter"}, Filter: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(SetMask(0, 0)), I32(0))}.Bytes()
	r.run(t, "module put drops %q", r.file(t, "d.wasm", drops))
	r.run(t, "policy apply default %q --activate", r.file(t, "f.yaml", []byte("filters: [{use: 'module:drops'}]\nscorers: [{use: 'module:high'}]\n")))
	r.book(t, "one")
	r.book(t, "two")
	out := r.run(t, "decisions two")
	contains(t, out, "policy default@4 picked w2/0: best total", "stages: filter module:drops, scorer module:high", "WORKER TOTAL module:high DROPPED BY kv.", "* w2/0 1 1 -", "w1/0 - - module:drops", "* picked")
	out = r.run(t, "decisions two --policy default@2")
	contains(t, out, "policy default@4 picked w2/0", "policy default@2 would pick w1/0, another: best total", "stages: scorer builtin:least-load",
		"WORKER default@4 TOTAL default@4 module:high default@4 DROPPED BY default@2 TOTAL default@2 builtin:least-load kv.", "* w2/0 1 1 - -1 -1", "+ w1/0 - - module:drops 0 0", "* picked, + picked by default@2")
	contains(t, r.run(t, "decisions two --policy default"), "policy default@4 would pick w2/0, the same", "*+ w2/0")
	var got struct{ Same *bool }
	if err := json.Unmarshal([]byte(r.run(t, "decisions two --policy default@2 --output json")), &got); err != nil || got.Same == nil || *got.Same {
		t.Errorf("got %+v, %v", got, err)
	}
	r.run(t, "module put traps %q", r.file(t, "t.wasm", Guest{Name: "traps", Score: Cat(Get(0), Load32(abi.OffRows), I32(2), Op(I32Eq), If(Op(Unreachable)), Column(0)), ScoreTypes: ColumnTypes}.Bytes()))
	r.run(t, "policy apply default %q", r.file(t, "t.yaml", []byte("scorers: [{use: 'module:traps', on_error: fail}]\n")))
	contains(t, r.run(t, "decisions two --policy default@5"), "policy default@5 would pick nobody, another: it fails the request; stage module:traps faulted: E_TRAP", "* picked")
	if err := r.fails(t, "decisions two --policy default@9"); !strings.Contains(err.Error(), "revision 9") {
		t.Errorf("got %v", err)
	}
}

func TestADecisionsTableKeepsToTheWidthOfTheLine(t *testing.T) {
	r := rolling(t)
	r.book(t, "one")
	t.Setenv("COLUMNS", "70")
	_, table, _ := strings.Cut(r.run(t, "decisions one"), "\n\n")
	parts := strings.Count(table, "WORKER")
	for line := range strings.Lines(table) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 70 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	if parts < 3 || strings.Count(table, "w1/0") != parts || strings.Count(table, "load.active_requests") != 1 {
		t.Errorf("got %d parts\n%s", parts, table)
	}
	t.Setenv("COLUMNS", "1") // a column a part, whatever its width
	if out := r.run(t, "decisions one"); !strings.Contains(out, "kv.overlap_device") {
		t.Errorf("got\n%s", out)
	}
	t.Setenv("COLUMNS", "")
	if out := r.run(t, "decisions one"); strings.Count(out, "WORKER") != 1 {
		t.Errorf("got\n%s", out)
	}
}

// cobra's own error; the program's exit code for it is that of wrong usage.
func TestAShareOutOfRangeNamesFlagValueAndWhatIsAllowed(t *testing.T) {
	r := rolling(t)
	for _, c := range []struct{ verb, flag, allowed string }{{"canary", "--percent", "a number from 0 to 100"}, {"shadow", "--sample", "a number above 0 to 1"}} {
		for _, value := range []string{"nan", "NaN", "abc", "", "inf", "-1", "101", "1e400"} {
			err := r.fails(t, "policy "+c.verb+" default 3 "+c.flag+"=%q", value)
			for _, part := range []string{c.flag, strconv.Quote(value), c.allowed} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %q: got %v, want %q", c.flag, value, err, part)
				}
			}
		}
	}
	r.run(t, "policy canary default 3 --percent 0.5")
	r.run(t, "policy canary default off")
	r.run(t, "policy shadow default 3")
	contains(t, r.run(t, "policy show default"), "sample 1")
}
