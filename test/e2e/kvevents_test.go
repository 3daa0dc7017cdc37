//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

const captures = "../../ingress/wire/testdata/kv_events"

// capture is what the tests read of a capture's description.
type capture struct {
	Messages []struct {
		Events []struct {
			Type      string   `json:"type"`
			Hashes    []string `json:"block_hashes"`
			Parent    *string  `json:"parent"`
			Tokens    []uint32 `json:"token_ids"`
			BlockSize int      `json:"block_size"`
			Medium    string   `json:"medium"`
		} `json:"events"`
	} `json:"messages"`
	Final map[string]map[string][]string `json:"final_state"`
}

func readCapture(t *testing.T, name string) capture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(captures, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var c capture
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// publish starts the Python publisher.
func publish(t *testing.T, name string, flags ...string) (events, replay string) {
	t.Helper()
	cmd := exec.Command(mustEnv(t, "ROUTERD_PYTHON"), append([]string{"publisher.py", filepath.Join(captures, name+".bin")}, flags...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the publisher said nothing")
	}
	if n, err := fmt.Sscanf(lines.Text(), "ready %s %s", &events, &replay); n != 2 {
		t.Fatalf("the publisher said %q: %v", lines.Text(), err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return events, replay
}

// bits is the unsigned 64-bit text of a hash, as the partition view has it.
func bits(h string) string {
	if n, err := strconv.ParseInt(h, 10, 64); err == nil {
		return strconv.FormatUint(uint64(n), 10)
	}
	return h
}

func deviceHashes(state map[string]map[string][]string) []string {
	var all []string
	for medium, hashes := range state["0"] {
		if strings.HasPrefix(medium, "GPU") {
			for _, h := range hashes {
				all = append(all, bits(h))
			}
		}
	}
	slices.Sort(all)
	return all
}

// A publisher that is not ours, in another process and language, feeds the
// router; the partition shows what the capture's description says, and a
// request with a cached prefix goes where it is cached.
func TestForeignPublisherSteersRequests(t *testing.T) {
	for _, c := range []struct {
		name, engine string
		flags        []string
	}{
		{"vllm_0_23_0_chain", "vllm", nil},
		{"vllm_0_33_0_chain", "vllm", []string{"--topic-frame"}},
		{"sglang_0_5_10_chain", "sglang", nil},
		{"sglang_0_5_23_chain", "sglang", []string{"--topic-frame"}},
		{"vllm_0_33_0_chain", "vllm", []string{"--topic-frame", "--drop", "1,3"}},
		{"vllm_0_23_0_lora", "vllm", []string{"--drop", "2"}},
		{"vllm_0_33_0_bytes", "vllm", []string{"--topic-frame"}},
	} {
		t.Run(strings.Join(append([]string{c.name}, c.flags...), " "), func(t *testing.T) {
			described := readCapture(t, c.name)
			events, replay := publish(t, c.name, c.flags...)
			plain := func(sc *sim.Config) { sc.Model, sc.Events = "m", false }
			other, holder := simtest.Start(t, plain), simtest.Start(t, plain)
			size := described.Messages[0].Events[0].BlockSize
			r := startRouter(t, fmt.Sprintf("models: {m: {block_size: %d}}\nworkers:\n  static:\n"+
				"  - {id: 1, name: other, url: %q, model: m}\n"+
				"  - {id: 2, name: holder, url: %q, model: m, engine: %s, kv_events: {\"0\": %q}, replay: {\"0\": %q}}\n",
				size, other.URL(), holder.URL(), c.engine, events, replay))
			want := deviceHashes(described.Final)
			eventually(t, 20*time.Second, func() error {
				got := r.rank("m", "holder").KV.Hashes["device"]
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					return fmt.Errorf("blocks (-want +got)\n%s", diff)
				}
				return nil
			})
			prefix := heldPrefix(described, want)
			if len(prefix) == 0 {
				t.Fatal("the capture ends with no prefix held")
			}
			status, head, answer := r.ask("/v1/completions", map[string]any{"model": "m", "prompt": prefix, "max_tokens": 1})
			if status != 200 || head.Get("x-routerd-worker") != "holder" {
				t.Errorf("status %d from %q, want 200 from holder: %s", status, head.Get("x-routerd-worker"), answer)
			}
		})
	}
}

// Engines that connect to one port of the router are told apart by their topics.
func TestForeignPublishersThatConnectShareAPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	recordings := map[string]string{"one": "vllm_0_23_0_chain", "two": "vllm_0_33_0_chain"}
	yaml := "models: {m: {block_size: 16}}\nworkers:\n  static:\n"
	for name, capture := range recordings {
		e := simtest.Start(t, func(sc *sim.Config) { sc.Model, sc.Events = "m", false })
		pod := name
		if name == "two" {
			pod = strings.TrimPrefix(e.URL(), "http://")
		}
		_, replay := publish(t, capture, "--topic-frame", "--connect", fmt.Sprintf("tcp://127.0.0.1:%d", port), "--topic", "kv@"+pod+"@org/m@1")
		yaml += fmt.Sprintf("  - {name: %s, url: %q, model: m, engine: vllm, kv_events: {\"0\": \"tcp://*:%d\"}, replay: {\"0\": %q}}\n", name, e.URL(), port, replay)
	}
	r := startRouter(t, yaml)
	for name, capture := range recordings {
		described := readCapture(t, capture)
		if size := described.Messages[0].Events[0].BlockSize; size != 16 {
			t.Fatalf("%s has blocks of %d tokens", capture, size)
		}
		want := deviceHashes(described.Final)
		eventually(t, 20*time.Second, func() error {
			v := r.rank("m", name)
			got := v.KV.Hashes["device"]
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" || !v.KV.Trusted {
				return fmt.Errorf("blocks of %s, trusted %v (-want +got)\n%s", name, v.KV.Trusted, diff)
			}
			return nil
		})
	}
}

// heldPrefix is the tokens of the leading blocks of the first chain that are
// held at the end.
func heldPrefix(c capture, held []string) []uint32 {
	for _, m := range c.Messages {
		for _, e := range m.Events {
			if e.Type != "BlockStored" || e.Parent != nil {
				continue
			}
			n := 0
			for n < len(e.Hashes) && slices.Contains(held, bits(e.Hashes[n])) {
				n++
			}
			if n > 0 {
				return e.Tokens[:n*e.BlockSize]
			}
		}
	}
	return nil
}

// sameAsEngine waits until the router believes of an engine's cache what the
// engine says of it.
func sameAsEngine(t *testing.T, r *router, model, name string, e *sim.Engine) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		var truth struct {
			Ranks []struct {
				Hashes map[string][]string `json:"hashes"`
			} `json:"ranks"`
		}
		engineJSON(t, e, "GET", "/sim/blocks", nil, &truth)
		want := append([]string{}, truth.Ranks[0].Hashes["device"]...)
		v := r.rank(model, name)
		got := append([]string{}, v.KV.Hashes["device"]...)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("blocks of %s: %d, want %d (state trusted %t, last %d)", name, len(got), len(want), v.KV.Trusted, v.KV.LastSeq)
		}
		return nil
	})
}

// After any run the index equals what the engines say, also after a restart, a
// gap and lost replay answers.
func TestIndexEqualsTheEngines(t *testing.T) {
	small := func(name string) func(*sim.Config) {
		return func(c *sim.Config) { c.Name, c.Model, c.Blocks = name, "m", 128 }
	}
	a, b := simtest.Start(t, small("a")), simtest.Start(t, small("b"))
	r := startRouter(t, "workers:\n  static:\n"+worker(1, "a", "m", a)+worker(2, "b", "m", b))
	clients := newCrowd(t, r)
	talk := func(rounds int) {
		t.Helper()
		for i := range rounds {
			prompt := strings.Repeat(fmt.Sprintf("word%d ", i%7), 40) + fmt.Sprint(i)
			if status, _, answer := r.ask("/v1/completions", map[string]any{"model": "m", "prompt": prompt, "max_tokens": 20}); status != 200 {
				t.Fatalf("status %d: %s", status, answer)
			}
		}
	}
	check := func(when string) {
		t.Helper()
		t.Log(when)
		sameAsEngine(t, r, "m", "a", a)
		sameAsEngine(t, r, "m", "b", b)
	}
	talk(60)
	check("after a run that evicts")
	for _, f := range []map[string]any{
		{"kind": "drop_events", "count": 3},
		{"kind": "reset_prefix_cache"},
	} {
		engineJSON(t, a, "POST", "/sim/faults", f, nil)
		talk(30)
		// Wherever those went: a says more than what it dropped, so that it shows.
		for i := range 6 {
			prompt := strings.Repeat(fmt.Sprintf("%v%d ", f["kind"], i), 40)
			got, err := clients.ask(t.Context(), "/v1/completions", map[string]any{"model": "m", "prompt": prompt, "max_tokens": 20}, "x-routerd-pin", "a")
			if err != nil || got.status != 200 {
				t.Fatalf("status %d, %v: %s", got.status, err, got.body)
			}
		}
		check(fmt.Sprintf("after %v", f["kind"]))
	}
	engineJSON(t, a, "POST", "/sim/restart", nil, nil)
	talk(30)
	check("after a restart")
	engineJSON(t, b, "POST", "/sim/faults", map[string]any{"kind": "drop_replies", "count": 2}, nil)
	engineJSON(t, b, "POST", "/sim/faults", map[string]any{"kind": "drop_events", "count": 2}, nil)
	talk(30)
	check("after a gap whose replay answers were lost twice")
	r.idle("m", 5*time.Second)
}
