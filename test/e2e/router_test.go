//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

var readyLine = regexp.MustCompile(`^ready frontend=(\S+) admin=(\S+)(?: selection=(\S+))?(?: index=\S+)?$`)

// router is a running `routerd serve`.
type router struct {
	t               *testing.T
	cmd             *exec.Cmd
	frontend, admin string
	selection       string // as the ready line says it; empty when it is off
	token           string
	dataDir         string
	log             *testkit.Log
	ended           chan struct{}
}

func mustEnv(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set; run make e2e", name)
	}
	return v
}

// startRouter runs the built program with a configuration on free ports and
// waits until it is ready. It is killed at the end of the test unless it has
// ended.
func startRouter(t *testing.T, yaml string) *router {
	t.Helper()
	return startRouterIn(t, t.TempDir(), yaml)
}

// startRouterIn is startRouter with a folder of its own and further flags.
func startRouterIn(t *testing.T, dir, yaml string, flags ...string) *router {
	t.Helper()
	file := filepath.Join(dir, "routerd.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &router{t: t, dataDir: filepath.Join(dir, "data"), log: &testkit.Log{}, ended: make(chan struct{})}
	r.cmd = exec.Command(mustEnv(t, "ROUTERD_BIN"), append([]string{
		"serve", "-c", file, "--data_dir", r.dataDir,
		"--frontend.listen", "127.0.0.1:0", "--admin.listen", "127.0.0.1:0",
	}, flags...)...)
	r.cmd.Env = routerEnv()
	r.cmd.Stderr = r.log
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		defer close(r.ended)
		s := bufio.NewScanner(out)
		for s.Scan() {
			select {
			case lines <- s.Text():
			default:
			}
		}
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("the router's log:\n%s", r.log)
		}
	})
	select {
	case line := <-lines:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("said %q, want the ready line", line)
		}
		r.frontend, r.admin, r.selection = m[1], m[2], m[3]
	case <-r.ended:
		t.Fatalf("ended at start:\n%s", r.log)
	case <-time.After(60 * time.Second):
		t.Fatalf("not ready within 60 s:\n%s", r.log)
	}
	token, err := os.ReadFile(filepath.Join(r.dataDir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	r.token = strings.TrimSpace(string(token))
	return r
}

// kill ends the router as a crash would.
func (r *router) kill() {
	_ = r.cmd.Process.Signal(syscall.SIGKILL)
	<-r.ended
}

// stop ends the router as an operator would.
func (r *router) stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		r.t.Fatal("still there a minute after SIGTERM")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("exit code %d after SIGTERM", code)
	}
}

// reply is an HTTP answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// exchange makes one HTTP request.
func exchange(t *testing.T, method, url string, header http.Header, body []byte) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, answer}
}

// bodyOf is in as a request body: nothing, bytes as they are, else as JSON.
func bodyOf(t *testing.T, in any) []byte {
	t.Helper()
	switch v := in.(type) {
	case nil:
		return nil
	case []byte:
		return v
	}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// raw makes an admin call and returns status and body as they are.
func (r *router) raw(method, path string, body []byte) (int, []byte) {
	r.t.Helper()
	a := exchange(r.t, method, r.admin+path, http.Header{"Authorization": {"Bearer " + r.token}}, body)
	return a.status, a.body
}

// call uses the admin API and returns the status; a body in out is decoded.
func (r *router) call(method, path string, in, out any) int {
	r.t.Helper()
	status, answer := r.raw(method, path, bodyOf(r.t, in))
	if status >= 300 {
		r.t.Logf("%s %s: %d %s", method, path, status, answer)
	} else if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
	return status
}

func (r *router) must(method, path string, in, out any) {
	r.t.Helper()
	if status := r.call(method, path, in, out); status >= 300 {
		r.t.Fatalf("%s %s: status %d", method, path, status)
	}
}

// partitionView is what the tests read of GET /v1/partitions.
type partitionView struct {
	Model  string `json:"model"`
	Policy struct {
		Name     string `json:"name"`
		Revision int    `json:"revision"`
	} `json:"policy"`
	Ranks []rankView `json:"ranks"`
}

type rankView struct {
	Name      string `json:"name"`
	Rank      int    `json:"rank"`
	Lifecycle string `json:"lifecycle"`
	Load      struct {
		Active  int `json:"active_requests"`
		Prefill int `json:"prefill_tokens"`
		Decode  int `json:"decode_blocks"`
	} `json:"load"`
	KV struct {
		Trusted   bool                `json:"trusted"`
		Untrusted string              `json:"untrusted"`
		LastSeq   uint64              `json:"last_seq"`
		Dropped   map[string]uint64   `json:"dropped"`
		Hashes    map[string][]string `json:"hashes"`
	} `json:"kv"`
}

func (r *router) partition(model string) partitionView {
	r.t.Helper()
	var got struct {
		Partitions []partitionView `json:"partitions"`
	}
	r.must("GET", "/v1/partitions?blocks=1&model="+model, nil, &got)
	if len(got.Partitions) != 1 {
		r.t.Fatalf("%d partitions of model %s, want 1", len(got.Partitions), model)
	}
	return got.Partitions[0]
}

func (r *router) rank(model, worker string) rankView {
	r.t.Helper()
	for _, v := range r.partition(model).Ranks {
		if v.Name == worker {
			return v
		}
	}
	r.t.Fatalf("no worker %s", worker)
	return rankView{}
}

// idle waits until the router counts no load on any rank.
func (r *router) idle(model string, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, func() error {
		for _, v := range r.partition(model).Ranks {
			if v.Load.Active != 0 || v.Load.Prefill != 0 || v.Load.Decode != 0 {
				return fmt.Errorf("%s has %+v", v.Name, v.Load)
			}
		}
		return nil
	})
}

// eventually asks until it gets no error.
func eventually(t *testing.T, within time.Duration, ask func() error) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not within %s: %v", within, err)
		case <-tick.C:
		}
	}
}

// worker is the configuration of an engine as a static worker.
func worker(id int, name, model string, e *sim.Engine) string {
	s := fmt.Sprintf("  - {id: %d, name: %s, url: %q, model: %s", id, name, e.URL(), model)
	if ends := e.EventEndpoints(); len(ends) > 0 {
		s += fmt.Sprintf(", kv_events: {%q: %q}, replay: {%q: %q}", "0", ends[0], "0", e.ReplayEndpoints()[0])
	}
	return s + "}\n"
}

// ask sends a JSON body to the frontend and returns status, headers and body.
func (r *router) ask(path string, body any) (int, http.Header, []byte) {
	r.t.Helper()
	a := r.post(path, string(bodyOf(r.t, body)))
	return a.status, a.header, a.body
}

// post sends raw bytes to a path of the frontend.
func (r *router) post(path, body string) reply {
	r.t.Helper()
	return exchange(r.t, http.MethodPost, r.frontend+path, http.Header{"Content-Type": {"application/json"}}, []byte(body))
}

// engineJSON uses a route of an engine.
func engineJSON(t *testing.T, e *sim.Engine, method, path string, in, out any) {
	t.Helper()
	a := exchange(t, method, e.URL()+path, nil, bodyOf(t, in))
	if a.status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if out != nil {
		if err := json.Unmarshal(a.body, out); err != nil {
			t.Fatal(err)
		}
	}
}
