package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/cli"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

// columns lie apart in what the command line prints.
var columns = regexp.MustCompile(` {2,}`)

// table is what a command prints against the router: the cells of its last table,
// by the names of their columns.
func table(t *testing.T, a *app.App, dir string, args ...string) (rows []map[string]string) {
	t.Helper()
	root := &cobra.Command{Use: "routerd", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands()...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--admin-url", a.AdminURL(), "--data-dir", dir))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	parts := strings.Split(strings.TrimSpace(out.String()), "\n\n")
	lines := strings.Split(parts[len(parts)-1], "\n")
	heads := columns.Split(strings.TrimSpace(lines[0]), -1)
	for _, line := range lines[1:] {
		cells := columns.Split(strings.TrimSpace(line), -1)
		if len(cells) != len(heads) {
			break // what is told below it
		}
		row := map[string]string{}
		for i, h := range heads {
			row[h] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// order has an engine misbehave.
func order(t *testing.T, e *sim.Engine, fault string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL()+"/sim/faults", strings.NewReader(fault))
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := answerOf(t, req); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
}

// One rank is well and at work, the other has lost a message of its engine for good.
func TestTheListOfWorkersHasWhatIsKnownOfEachRank(t *testing.T) {
	e := engine(t, "e1", func(c *sim.Config) { c.Ranks = 2 })
	cfg := settings(t)
	rec, err := fleet.Record{Name: "w1", URL: e.URL(), KVEvents: e.EventEndpoints(), Replay: e.ReplayEndpoints(), DPSize: 2}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Workers.Static = []fleet.Record{rec}
	cfg.Workers.Scrape.Interval = 100 * time.Millisecond
	a := start(t, cfg)
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	list := func() map[string]string { return table(t, a, cfg.DataDir, "worker", "list")[0] }
	ranks := func() []map[string]string { return table(t, a, cfg.DataDir, "worker", "show", "w1") }
	for rank := range 2 {
		testkit.Until(t, fmt.Sprintf("rank %d is heard", rank), func() bool {
			fill(t, e, rank, tokensFrom(1000*rank, 64))
			return ranks()[rank]["CACHED"] != "0"
		})
	}
	testkit.Until(t, "both ranks can be trusted", func() bool { return strings.HasPrefix(list()["EVENTS"], "trusted ") })

	// Rank 0 answers a request for ever.
	order(t, e, `{"kind":"stall","path":"/v1/completions","after_chunks":1}`)
	body := `{"model":"m","prompt":"some words to begin with","stream":true,"max_tokens":64,"ignore_eos":true}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.FrontendURL()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-routerd-pin", "w1;rank=0")
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer func() { _ = resp.Body.Close() }()

	// Rank 1 stores blocks below some that nobody heard of.
	order(t, e, `{"kind":"drop_replies","rank":1,"count":1000000}`)
	order(t, e, `{"kind":"drop_events","rank":1}`)
	fill(t, e, 1, tokensFrom(5000, 32))
	fill(t, e, 1, tokensFrom(5000, 96))

	testkit.Until(t, "all of it is shown", func() bool {
		r := ranks()
		return r[0]["RUNNING"] == "1" && r[0]["REQUESTS"] == "1" && r[1]["DROPPED"] != "0"
	})
	stored := stats(t, e, 0).Blocks
	heard := stats(t, e, 1).Blocks - 6 // 2 that nobody heard of and 4 below them
	age := regexp.MustCompile(` [0-9.]+m?s$`)
	var got []map[string]string
	for _, r := range ranks() {
		row := map[string]string{"EVENTS": age.ReplaceAllString(r["EVENTS"], " AGE")}
		for _, c := range []string{"RANK", "REQUESTS", "PREFILL", "DECODE", "RUNNING", "QUEUED", "CACHED", "DROPPED"} {
			row[c] = r[c]
		}
		got = append(got, row)
	}
	want := []map[string]string{
		{"RANK": "0", "REQUESTS": "1", "PREFILL": "0", "DECODE": "1", "RUNNING": "1", "QUEUED": "0", "CACHED": fmt.Sprintf("device=%d", stored), "EVENTS": "trusted AGE", "DROPPED": "0"},
		{"RANK": "1", "REQUESTS": "0", "PREFILL": "0", "DECODE": "0", "RUNNING": "0", "QUEUED": "0", "CACHED": fmt.Sprintf("device=%d", heard), "EVENTS": "untrusted(unknown_parent) AGE", "DROPPED": "unknown_parent=4"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the ranks (-want +got)\n%s", diff)
	}
	row := list()
	one := map[string]string{"EVENTS": age.ReplaceAllString(row["EVENTS"], " AGE")}
	for _, c := range []string{"NAME", "MODEL", "RANKS", "SOURCE", "STATE", "REQUESTS", "CACHED", "DROPPED"} {
		one[c] = row[c]
	}
	if diff := cmp.Diff(map[string]string{
		"NAME": "w1", "MODEL": "m", "RANKS": "2", "SOURCE": "file", "STATE": "ready", "REQUESTS": "1",
		"CACHED": fmt.Sprintf("device=%d", stored+heard), "EVENTS": "untrusted(unknown_parent) AGE", "DROPPED": "unknown_parent=4",
	}, one); diff != "" {
		t.Errorf("the worker (-want +got)\n%s", diff)
	}
}
