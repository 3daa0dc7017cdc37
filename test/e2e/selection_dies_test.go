//go:build e2e

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// refusedAtMost is how often a forwarder may be sent to an engine that is gone, after
// the answer that broke: one connection that is refused tells of it.
const refusedAtMost = 1

// starts has an engine stand where a worker is to be put.
func (p *plane) starts(t *testing.T, id uint64) {
	t.Helper()
	p.engines[id] = simtest.Start(t, func(c *sim.Config) { c.Name, c.Model, c.Ranks = fmt.Sprint("e", id), "m", 2 })
}

// dies ends the engine of a session's worker in the middle of an answer, under its
// booking: the answer breaks off, the booking can be freed, and a forwarder that then
// selects again for the session comes to another worker. It returns the one that is gone.
func (p *plane) dies(t *testing.T, name string) uint64 {
	t.Helper()
	prompt := tokens(77_000, 64)
	to := p.books(t, wants(prompt, "session_id", name))
	engineJSON(t, p.engines[to.Worker], "POST", "/sim/faults", map[string]any{"kind": "stall", "after_chunks": 2, "count": 1}, nil)
	long := map[string]any{"model": "m", "prompt": prompt, "max_tokens": 16, "stream": true}
	resp, err := p.clients.begin(t.Context(), "/v1/completions", long, "x-routerd-pin", to.pin())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("the answer begins with %q, %v", line, err)
	}
	p.says(t, http.StatusOK, "POST", "/reservations/"+to.ID+"/prefill_complete", nil)
	if err := p.engines[to.Worker].Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); err == nil && strings.Contains(string(rest), "[DONE]") {
		t.Error("the answer has come to its end, though its engine is gone")
	}
	p.frees(t, to.ID)

	refused := 0
	for {
		again := p.books(t, wants(prompt, "session_id", name))
		if again.Worker != to.Worker {
			p.frees(t, again.ID)
			break
		}
		if a, err := p.clients.complete(t.Context(), prompt, "x-routerd-pin", again.pin()); err != nil || a.status < http.StatusInternalServerError {
			t.Fatalf("an engine that is gone answers: %d %v %s", a.status, err, a.body)
		}
		p.frees(t, again.ID)
		if refused++; refused > refusedAtMost {
			t.Fatalf("selected worker %d again, after %d refused connections", to.Worker, refused)
		}
	}
	t.Logf("another worker was selected after %d refused connections", refused)
	return to.Worker
}
