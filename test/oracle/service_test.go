//go:build oracle

package oracle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// service is one of the two that are compared. One goroutine uses it.
type service struct {
	name string
	base string
	http *http.Client
}

// answer is what a service said to one request. Body is nil where it is no JSON.
type answer struct {
	status int
	text   []byte
	body   any
}

func newService(name, base string) *service {
	return &service{name: name, base: base, http: &http.Client{Timeout: 20 * time.Second}}
}

// call sends a request; body is encoded as JSON unless it is nil or bytes.
func (s *service) call(ctx context.Context, method, path string, body any) (answer, error) {
	var text []byte
	switch b := body.(type) {
	case nil:
	case []byte:
		text = b
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("ask %s: %w", s.name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", s.name, err)
	}
	a := answer{status: resp.StatusCode, text: got}
	decoder := json.NewDecoder(bytes.NewReader(got))
	decoder.UseNumber()
	if decoder.Decode(&a.body) != nil {
		a.body = nil
	}
	return a, nil
}

// start runs a program until the test ends and waits until /health answers.
func start(t *testing.T, name string, port int, env []string, args ...string) *service {
	t.Helper()
	log, err := os.Create(filepath.Join(logs(t), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = log.Close()
	})
	s := newService(name, "http://127.0.0.1:"+strconv.Itoa(port))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(30 * time.Second); ; {
		if a, err := s.call(t.Context(), http.MethodGet, "/health", nil); err == nil && a.status == http.StatusOK {
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended (%v), see %s", name, err, log.Name())
		case <-limit:
			t.Fatalf("%s does not answer, see %s", name, log.Name())
		case <-tick.C:
		}
	}
}

// logs is the folder for what the services print.
func logs(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ORACLE_LOGS")
	if dir == "" {
		return t.TempDir()
	}
	return dir
}

func mustEnv(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run make oracle", name)
	}
	return v
}

// dynamo starts Dynamo's service. Its queue is off; sessions are on, and so is the
// count of output blocks, which ours always has.
func dynamo(t *testing.T, name string, port int) *service {
	t.Helper()
	return start(t, name, port, []string{"DYN_LOG=error", "DYN_ROUTER_TRACK_OUTPUT_BLOCKS=true"}, mustEnv(t, "ORACLE_PYTHON"), "-m", "dynamo.select_service",
		"--port", strconv.Itoa(port), "--threads", "2", "--session-affinity-ttl-secs", "3600")
}

// routerd starts ours.
func routerd(t *testing.T, port int) *service {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`data_dir: %q
frontend: {listen: "127.0.0.1:%d"}
admin: {listen: "127.0.0.1:%d"}
selection: {listen: "127.0.0.1:%d"}
affinity: {ttl: 3600s}
log: {level: warn}
`, dir, port+1, port+2, port)
	file := filepath.Join(dir, "routerd.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "routerd", port, nil, mustEnv(t, "ORACLE_ROUTERD"), "serve", "-c", file)
}
