package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/routerd/routerd/sim"
)

var readyLine = regexp.MustCompile(`^ready url=(http://127\.0\.0\.1:\d+) events=(\S+) replay=(\S+)\n$`)

// runCommandUntil starts the command, hands its ready line to use, and returns
// the command's error.
func runCommandUntil(t *testing.T, use func(cancel context.CancelFunc, match []string), args ...string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	cmd := sim.Command()
	cmd.SetArgs(args)
	cmd.SetOut(w)
	cmd.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.ExecuteContext(ctx)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v, %v", err, <-ended)
	}
	match := readyLine.FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("ready line %q", line)
	}
	use(cancel, match)
	return <-ended
}

func TestCommandServesAndEndsWithItsContext(t *testing.T) {
	err := runCommandUntil(t, func(cancel context.CancelFunc, match []string) {
		if n := len(strings.Split(match[2], ",")); n != 2 || !strings.HasPrefix(match[3], "tcp://127.0.0.1:") {
			t.Errorf("events %q, replay %q", match[2], match[3])
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get(match[1] + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Contains(raw, []byte(`"id":"m1"`)) || resp.Header.Get("X-Sim-Engine") != "w9" {
			t.Errorf("models: %v %s", err, raw)
		}
		cancel()
	}, "--name", "w9", "--model", "m1", "--ranks", "2", "--decode-per-token", "1ms")
	if err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestCommandEndsOnSIGTERM(t *testing.T) {
	err := runCommandUntil(t, func(_ context.CancelFunc, match []string) {
		if match[2] != "-" || match[3] != "-" {
			t.Errorf("events %q, replay %q without events", match[2], match[3])
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}, "--events=false")
	if err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestF4_CommandNamesFlagValueAndAllowedRange(t *testing.T) {
	for _, tc := range []struct{ flag, value, allowed string }{
		{"decode-per-token", "30", "0 to 1m0s"},
		{"decode-per-token", "1d", "0 to 1m0s"},
		{"prefill-per-token", "-5s", "0 to 1m0s"},
		{"prefill-per-token", "", "0 to 1m0s"},
		{"prefill-per-token", "1h30", "0 to 1m0s"},
		{"idle-timeout", "1e3s", "0 to 24h0m0s"},
		{"blocks", "0", "1 to 10000000"},
		{"ranks", "many", "1 to 64"},
		{"event-form", "json", "map, array"},
		{"kv-endpoint", "ipc://x", "tcp://HOST:PORT"},
		{"model", "a b", "printable ASCII"},
	} {
		cmd := sim.Command()
		cmd.SetArgs([]string{"--" + tc.flag + "=" + tc.value})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if err == nil {
			t.Errorf("--%s=%q was accepted", tc.flag, tc.value)
			continue
		}
		for _, part := range []string{tc.flag, `"` + tc.value + `"`, tc.allowed} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("--%s=%q: %v; want %s in it", tc.flag, tc.value, err, part)
			}
		}
	}
}
