//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

// subscriptions is how many connections a router has to the engines' event sockets.
func (r *router) subscriptions(engines []*sim.Engine) int {
	r.t.Helper()
	ports := map[string]bool{}
	for _, e := range engines {
		for _, endpoint := range e.EventEndpoints() {
			_, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
			if err != nil {
				r.t.Fatal(err)
			}
			var n int
			if _, err := fmt.Sscan(port, &n); err != nil {
				r.t.Fatal(err)
			}
			ports[fmt.Sprintf("%04X", n)] = true
		}
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
	if err != nil || len(open) == 0 {
		r.t.Fatalf("the router's descriptors: %v", err)
	}
	mine := map[string]bool{}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil {
			mine[to] = true
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 9 && mine["socket:["+f[9]+"]"] && ports[f[2][strings.LastIndexByte(f[2], ':')+1:]] {
			n++
		}
	}
	return n
}

// A router that reads the index of another one has no connection to any engine's events,
// decides by what that one knows and tells it of its decisions; a primary that is killed
// costs no request.
func TestARouterReadsTheIndexOfAnother(t *testing.T) {
	for _, listen := range []string{"unix", "tcp"} {
		t.Run(listen, func(t *testing.T) {
			at := "unix:" + filepath.Join(t.TempDir(), "index")
			url := at
			if listen == "tcp" {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				at = ln.Addr().String()
				url = "http://" + at
				_ = ln.Close()
			}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("token-of-the-index\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var engines []*sim.Engine
			static := untold
			for i := range 3 {
				name := fmt.Sprint("w", i+1)
				e := simtest.Start(t, func(c *sim.Config) { c.Name, c.Model = name, "m" })
				engines = append(engines, e)
				static += fmt.Sprintf("  - {name: %s, url: %q, model: m, kv_events: %s, replay: %s}\n", name, e.URL(), bodyOf(t, e.EventEndpoints()), bodyOf(t, e.ReplayEndpoints()))
			}
			first := func() *router {
				return startRouter(t, static+fmt.Sprintf("index: {serve: {listen: %q, token_file: %q}}\n", at, token))
			}
			primary := first()
			client := startRouter(t, static+fmt.Sprintf("index: {kind: remote, remote: {url: %q, token_file: %q, deadline: 500ms}}\n", url, token))
			prompt := func(topic, end int) []int { return append(tokens(1000*topic, 160), end) }
			eventually(t, soon, func() error { // the subscriptions are there, and what the engines hold is known
				for i, e := range engines {
					fills(t, e, 0, prompt(i+1, 1))
				}
				for name, n := range primary.known("m") {
					if n < 10 {
						return fmt.Errorf("%s has %d blocks", name, n)
					}
				}
				return nil
			})
			if a, b := primary.subscriptions(engines), client.subscriptions(engines); a < 3 || b != 0 {
				t.Errorf("connections to event sockets: the primary has %d, the client %d; want 3 and 0", a, b)
			}
			c := newCrowd(t, client)
			byCache := func() error {
				for i := range engines {
					a, err := c.complete(t.Context(), prompt(i+1, 2))
					if err != nil {
						t.Fatal(err)
					}
					want := fmt.Sprint("w", i+1)
					if got := servedBy(t, a); got != want {
						return fmt.Errorf("prompt %d went to %s, it is on %s", i+1, got, want)
					}
					best := 0.0
					for _, row := range client.decision(a.header).Rows {
						best = max(best, row.Columns["kv.overlap_device"])
					}
					if best != 10 {
						return fmt.Errorf("the decision knew of %v blocks, want 10", best)
					}
				}
				return nil
			}
			eventually(t, soon, byCache)
			eventually(t, soon, func() error {
				if n := sum(primary.metrics(), "routerd_index_serve_records_total", `outcome="answered"`); n < 3 {
					return fmt.Errorf("%v decisions reached the primary", n)
				}
				return nil
			})
			listed := func(want string) {
				t.Helper()
				if _, out, _ := client.cli("worker", "list"); strings.Count(out, want) != 3 {
					t.Errorf("the list does not say %q of each worker:\n%s", want, out)
				}
			}
			listed("remote trusted")

			l := startLoad(client, 4, 0)
			l.reach(t, 100)
			primary.kill()
			l.reach(t, 300)
			a, err := c.complete(t.Context(), prompt(1, 3))
			if err != nil {
				t.Fatal(err)
			}
			servedBy(t, a)
			rows := client.decision(a.header).Rows
			if len(rows) != 3 {
				t.Errorf("%d rows", len(rows))
			}
			for _, row := range rows {
				if row.Columns["kv.overlap_device"] != 0 {
					t.Errorf("the primary is dead, and a decision knew %v", row.Columns)
				}
			}
			listed("remote untrusted")
			if m := client.metrics(); sum(m, "routerd_index_remote_away") != 1 {
				t.Error("the primary is not counted as away")
			}
			shots := l.end()
			noneFailed(t, shots)
			_, p99 := percentiles(shots)
			t.Logf("%d requests of 4 others over the death of the primary, p99 %s", len(shots), p99)

			primary = first()
			eventually(t, 3*soon, byCache) // from replays
			client.quiet("m")
		})
	}
}
