package app_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// peerDump is what a peer knows of worker 1, whose two blocks are those of tokens
// 1…8, in blocks of 4.
const peerDump = `{"m:default":{"block_size":4,"events":[{"worker_id":1,"storage_tier":"device","residency_domain":"worker","event":{"event_id":0,"data":{"stored":` +
	`{"parent_hash":null,"start_position":null,"blocks":[{"block_hash":101,"tokens_hash":14643705804678351452,"mm_extra_info":null},{"block_hash":102,"tokens_hash":16777012769546811212,"mm_extra_info":null}]}},"dp_rank":0}}],` +
	`"ranks":[{"worker_id":1,"dp_rank":0,"main_group":0,"right_size":true}]}}`

// warmConfig is a router with worker 1 in blocks of that size, whose events nobody
// publishes.
func warmConfig(t *testing.T, blockSize int, peers ...string) config.Config {
	t.Helper()
	cfg := withService(t)
	rec, err := fleet.Record{
		NoHealthCheck: true, ID: 1, Name: "w1", URL: "http://127.0.0.1:9", Model: "m", BlockSize: blockSize,
		KVEvents: map[int]string{0: "ipc://" + filepath.Join(t.TempDir(), "nobody")},
	}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Workers.Static = []fleet.Record{rec}
	cfg.Index.Peers, cfg.Index.PeerTimeout = peers, config.Duration(300*time.Millisecond)
	return cfg
}

// serviceText is what a route of the service answers.
func serviceText(t *testing.T, a *app.App, method, path, body string) string {
	t.Helper()
	status, text := callService(t, a, method, path, "", body)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	return text
}

const eightTokens = `{"model_name":"m","token_ids":[1,2,3,4,5,6,7,8]}`

// A router that starts knows at once what its peer knew, and hands it on.
func TestAStartTakesTheIndexOfAPeerOver(t *testing.T) {
	peer := fakeWorker(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/dump" || r.Header.Get("Authorization") != "Bearer token-of-the-data-plane" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, peerDump)
	})
	cfg := warmConfig(t, 4, peer)
	cfg.Index.PeerTokenFile = tokenIn(t, "token-of-the-data-plane\n")
	a := start(t, cfg)
	defer func() { _ = a.Stop(t.Context()) }()
	if got := serviceText(t, a, http.MethodPost, "/query", eightTokens); !strings.Contains(got, `"scores":{"1":{"0":8}}`) {
		t.Errorf("got %s", got)
	}
	if got := serviceText(t, a, http.MethodGet, "/dump", ""); got != peerDump {
		t.Errorf("handed on: %s", got)
	}
}

// A peer that is away, slow, refuses, sends rubbish or breaks off costs its time, a
// line in the log and nothing else; the next one is asked.
func TestAPeerThatDoesNotHandItsIndexOverCostsAStartNothingElse(t *testing.T) {
	slow := fakeWorker(t, func(_ http.ResponseWriter, r *http.Request) { silent(r) })
	trickles := fakeWorker(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, peerDump[:100])
		_ = http.NewResponseController(w).Flush()
		silent(r)
	})
	refuses := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	rubbish := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	elsewhere := fakeWorker(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:9/", http.StatusFound)
	})
	good := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, peerDump) })
	bad := []string{"http://127.0.0.1:1", "unix:" + filepath.Join(t.TempDir(), "none"), slow, trickles, refuses, rubbish, elsewhere}
	log := &testkit.Log{}
	began := time.Now()
	a, err := app.Start(t.Context(), warmConfig(t, 4, append(bad, good)...), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Stop(t.Context()) }()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the start took %s", took)
	}
	for _, peer := range bad {
		if !strings.Contains(log.String(), "peer="+peer+" ") {
			t.Errorf("the log does not name %s", peer)
		}
	}
	if got := serviceText(t, a, http.MethodPost, "/query", eightTokens); !strings.Contains(got, `"scores":{"1":{"0":8}}`) {
		t.Errorf("got %s", got)
	}
}

// What a peer knows in blocks of another size, of other workers or of no partition
// here counts for nothing.
func TestOnlyWhatFitsIsTakenOverFromAPeer(t *testing.T) {
	for name, c := range map[string]struct {
		blockSize int
		dump      string
	}{
		"another block size": {8, peerDump},
		"another worker":     {4, strings.ReplaceAll(peerDump, `"worker_id":1`, `"worker_id":2`)},
		"another partition":  {4, strings.Replace(peerDump, "m:default", "other:default", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			peer := fakeWorker(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.dump) })
			a := start(t, warmConfig(t, c.blockSize, peer))
			defer func() { _ = a.Stop(t.Context()) }()
			if got := serviceText(t, a, http.MethodPost, "/query", eightTokens); !strings.Contains(got, `"scores":{}`) {
				t.Errorf("got %s", got)
			}
			if got, want := serviceText(t, a, http.MethodGet, "/dump", ""), fmt.Sprintf(`{"m:default":{"block_size":%d,"events":[]}}`, c.blockSize); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
