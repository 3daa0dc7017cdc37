//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/sim"
)

var engineLine = regexp.MustCompile(`^ready url=(\S+) events=\S+ replay=\S+$`)

// runEngine runs `routerd sim-engine` with a face until the end of the test and
// returns its URL. host is a loopback address of its own, where fixed ports are free.
func runEngine(t *testing.T, face sim.Face, host string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(mustEnv(t, "ROUTERD_BIN"), append([]string{
		"sim-engine", "--face", string(face), "--listen", host + ":0",
		"--kv-endpoint", "tcp://" + host + ":5557", "--replay-endpoint", "tcp://" + host + ":5567",
	}, flags...)...)
	cmd.Env = routerEnv()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the engine said nothing")
	}
	m := engineLine.FindStringSubmatch(lines.Text())
	if m == nil {
		t.Fatalf("the engine said %q, want its ready line", lines.Text())
	}
	return m[1]
}

// workerView is what the tests read of a worker in the admin API.
type workerView struct {
	Name      string   `json:"name"`
	Model     string   `json:"model"`
	Engine    string   `json:"engine"`
	Version   string   `json:"version"`
	BlockSize int      `json:"block_size"`
	DPSize    int      `json:"dp_size"`
	Blocks    int      `json:"total_kv_blocks"`
	Lifecycle string   `json:"lifecycle"`
	Reasons   []string `json:"reasons"`
	Untold    []string `json:"untold"`
}

// becomes waits until a worker has a lifecycle.
func (r *router) becomes(name, lifecycle string) (v workerView) {
	r.t.Helper()
	eventually(r.t, soon, func() error {
		v = workerView{}
		if r.must("GET", "/v1/workers/"+name, nil, &v); v.Lifecycle != lifecycle {
			return fmt.Errorf("%s is %s: %q", name, v.Lifecycle, v.Reasons)
		}
		return nil
	})
	return v
}

// A newcomer types the URL of an engine and nothing else.
func TestANewcomerAddsOneWorkerByItsURL(t *testing.T) {
	for i, c := range []struct {
		face   sim.Face
		ranks  int
		want   workerView
		untold string // fields, by their names
		events bool   // whether it tells where they are
	}{
		{sim.FaceVLLM09, 1, workerView{Engine: "vllm", Version: "0.9.2", DPSize: 1, Blocks: 500}, "kv_events max_batched_tokens replay", false},
		{sim.FaceVLLM033, 2, workerView{Engine: "vllm", Version: "0.33.0", DPSize: 2, Blocks: 500}, "max_batched_tokens", true},
		{sim.FaceSGLang0510, 2, workerView{Engine: "sglang", Version: "0.5.10", DPSize: 2, Blocks: 500}, "load_reports", true},
		{sim.FaceSGLang0523, 2, workerView{Engine: "sglang", Version: "0.5.23", DPSize: 2, Blocks: 500}, "", true},
		// llm-d's simulator says that it is vLLM.
		{sim.FaceLLMD, 1, workerView{Engine: "vllm", DPSize: 1, Blocks: 500}, "kv_events max_batched_tokens replay version", false},
		{sim.FaceTensorRTLLM, 1, workerView{Engine: "trtllm", Version: "1.0.0", DPSize: 1, Blocks: 500}, "dp_size kv_events max_batched_tokens replay", false},
	} {
		t.Run(string(c.face), func(t *testing.T) {
			host := ownHost(1 + i)
			flags := []string{"--model", "org/m", "--ranks", fmt.Sprint(c.ranks), "--block-size", "32", "--blocks", "500"}
			if c.face == sim.FaceSGLang0523 {
				flags = append(flags, "--load-endpoint", "tcp://"+host+":5577")
			}
			url := runEngine(t, c.face, host, flags...)
			r := startRouter(t, "log: {level: info}\n")

			code, out, said := r.cli("worker", "add", url)
			t.Logf("worker add: %s%s", out, said)
			if code != 0 {
				t.Fatalf("exit code %d", code)
			}
			c.want.Name, c.want.Model, c.want.BlockSize, c.want.Lifecycle = strings.TrimPrefix(url, "http://"), "org/m", 32, "ready"
			got := r.becomes(c.want.Name, "ready")
			r.untold(c.untold, got.Untold)
			got.Untold, got.Reasons = nil, nil
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the worker (-want +got)\n%s", diff)
			}
			r.listed(c.want)
			r.completes("org/m", c.want.Name)
			if c.events {
				r.hasBlocks("org/m", c.want.Name)
			}
		})
	}
}

// untold checks which fields a worker's engine did not tell, each with a why.
func (r *router) untold(want string, got []string) {
	r.t.Helper()
	var fields []string
	for _, u := range got {
		r.t.Logf("untold: %s", u)
		field, why, _ := strings.Cut(u, ": ")
		if why == "" {
			r.t.Errorf("untold: %q has no why", u)
		}
		fields = append(fields, field)
	}
	if diff := cmp.Diff(want, strings.Join(fields, " ")); diff != "" {
		r.t.Errorf("what is untold (-want +got)\n%s", diff)
	}
}

// listed checks the line of a worker in `routerd worker list`, and its JSON.
func (r *router) listed(want workerView) {
	r.t.Helper()
	code, out, said := r.cli("worker", "list")
	r.t.Logf("worker list:\n%s", out)
	for _, cell := range []string{want.Name, want.Model, want.Engine, want.Version, want.Lifecycle} {
		if !strings.Contains(out, cell) {
			r.t.Errorf("worker list does not show %q", cell)
		}
	}
	if code != 0 || said != "" {
		r.t.Errorf("worker list: exit %d, said %q", code, said)
	}
	_, out, _ = r.cli("worker", "list", "--output", "json")
	var got struct {
		Workers []workerView `json:"workers"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Workers) != 1 {
		r.t.Fatalf("worker list --output json: %v in %s", err, out)
	}
	v := got.Workers[0]
	v.Untold, v.Reasons = nil, nil
	if diff := cmp.Diff(want, v); diff != "" {
		r.t.Errorf("worker list --output json (-want +got)\n%s", diff)
	}
}

// completes asks for completions by the model's name.
func (r *router) completes(model, worker string) {
	r.t.Helper()
	for i := range 6 {
		prompt := strings.Repeat(fmt.Sprintf("word%d ", i), 100)
		status, head, answer := r.ask("/v1/completions", map[string]any{"model": model, "prompt": prompt, "max_tokens": 4})
		if status != http.StatusOK || head.Get("x-routerd-worker") != worker {
			r.t.Fatalf("status %d from %q: %s", status, head.Get("x-routerd-worker"), answer)
		}
	}
}

// hasBlocks waits until the events of a worker's ranks have filled its index.
func (r *router) hasBlocks(model, worker string) {
	r.t.Helper()
	eventually(r.t, soon, func() error {
		blocks := 0
		for _, v := range r.partition(model).Ranks {
			if v.Name == worker && v.KV.Trusted {
				blocks += len(v.KV.Hashes["device"])
			}
		}
		if blocks == 0 {
			return fmt.Errorf("no block of %s is known", worker)
		}
		return nil
	})
}
