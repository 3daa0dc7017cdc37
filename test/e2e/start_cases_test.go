//go:build e2e

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ten streams that have three seconds to go when the router is told to stop.
const (
	graceStreams = 10
	streamsFor   = 3 * time.Second
	exitWithin   = 4 * time.Second
)

func TestG1_StreamsEndWithinTheGrace(t *testing.T) {
	began := make(chan struct{}, graceStreams)
	f := startFake(t, func(c net.Conn, _ *seen) bool {
		eventStream(c)
		say(c, "data: {\"choices\":[]}\n\n")
		began <- struct{}{}
		<-time.After(streamsFor)
		say(c, "data: [DONE]\n\n")
		return false
	})
	r := startRouter(t, fakes(f)+"frontend: {grace: 10s}\n")
	whole := make(chan error, graceStreams)
	for range graceStreams {
		s := r.openStream()
		go func() {
			text, err := io.ReadAll(s)
			if err == nil && !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				err = fmt.Errorf("the stream ended with %q", text)
			}
			whole <- err
		}()
	}
	for range graceStreams {
		<-began
	}
	signalled := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Second*patience, func() error { return refusing(r) })
	t.Logf("not ready and refusing %s after the signal", time.Since(signalled))
	for range graceStreams {
		if err := <-whole; err != nil {
			t.Errorf("a stream was cut: %v", err)
		}
	}
	select {
	case <-r.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the router did not end within 30 s of its last stream")
	}
	took := time.Since(signalled)
	t.Logf("ended %s after the signal (stated: %s)", took, exitWithin)
	if took > exitWithin*patience {
		t.Errorf("ended %s after the signal, want within %s (asserted at %d times)", took, exitWithin, patience)
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// refusing tells whether a router says that it is not ready and takes no
// requests.
func refusing(r *router) error {
	resp, err := http.Get(r.admin + "/readyz")
	if err != nil {
		return fmt.Errorf("the admin API does not answer while streams go on: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("readyz is %d, want 503", resp.StatusCode)
	}
	resp, err = http.Post(r.frontend+"/v1/completions", "application/json", strings.NewReader(hi))
	if err != nil {
		return nil // the connection is refused
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("a new request got %d, want 503", resp.StatusCode)
	}
	return nil
}

func TestF1_UnknownKeysStopTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routerd.yaml")
	text := "router.temprature: 0.5\nrouter:\n  temprature: 0.5\nfrontend:\n  gracee: 5s\nlog: {levle: info}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, said := run(t, []string{"ROUTERD_FRONTEND__RETRYS=3"}, "serve", "-c", file)
	t.Logf("exit %d: %s", code, said)
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{
		"routerd.yaml:1:1", "router.temprature", "routerd.yaml:2:1", "router: ", "routerd.yaml:5:3", "frontend.gracee", "frontend.grace", "log.levle", "log.level",
		"ROUTERD_FRONTEND__RETRYS", "ROUTERD_FRONTEND__RETRIES",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the message does not name %s", want)
		}
	}
	code, _, said = run(t, nil, "serve", "--frontend.retrys", "3")
	t.Logf("exit %d: %s", code, said)
	if code != 2 || !strings.Contains(said, "--frontend.retrys") || !strings.Contains(said, "--frontend.retries") {
		t.Errorf("unknown flag: exit code %d and %q, want 2 and both names", code, said)
	}
}

// durations are the keys whose defaults are lengths of time, with those.
func durations(t *testing.T) map[string]string {
	t.Helper()
	code, out, said := run(t, nil, "config", "print")
	if code != 0 {
		t.Fatalf("config print: exit code %d: %s", code, said)
	}
	found := map[string]string{}
	var path []string // keys above the line, two spaces deeper each
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		path = append(path[:min(depth, len(path))], key)
		if _, err := time.ParseDuration(value); depth > 0 && err == nil && value != "0" {
			found[strings.Join(path, ".")] = value
		}
	}
	return found
}

func TestF4_DurationsThatAreNone(t *testing.T) {
	keys := durations(t)
	t.Logf("%d keys: %v", len(keys), keys)
	if len(keys) < 4 {
		t.Fatalf("found %d keys with a length of time, want at least 4", len(keys))
	}
	for key := range keys {
		names := strings.Split(key, ".")
		for _, value := range []string{"30", "1d", "-5s", `""`, "1h30", "1e3s", "0s"} {
			file := filepath.Join(t.TempDir(), "routerd.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, "%s: %s%s\n", strings.Join(names, ": {"), value, strings.Repeat("}", len(names)-1)), 0o600); err != nil {
				t.Fatal(err)
			}
			code, _, said := run(t, nil, "config", "check", "-c", file)
			if value == "0s" && code == 0 {
				continue // means off
			}
			if code != 2 || !strings.Contains(said, key) || !strings.Contains(said, strings.Trim(value, `"`)) {
				t.Errorf("%s: %s: exit code %d and %q, want 2, the key and the value", key, value, code, said)
			}
			if strings.Contains(said, "panic") || strings.Contains(said, "goroutine") {
				t.Errorf("%s: %s: %s", key, value, said)
			}
		}
	}
	// One of them at a real start, which must end the same way.
	code, _, said := run(t, nil, "serve", "--data_dir", t.TempDir(), "--plugins.call_deadline", "0s")
	if code != 2 || !strings.Contains(said, "plugins.call_deadline") {
		t.Errorf("exit code %d and %q, want 2 and the key", code, said)
	}
}
