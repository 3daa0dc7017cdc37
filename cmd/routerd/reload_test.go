package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logged waits for a line of a log that has all the words.
func logged(t *testing.T, lines <-chan string, words ...string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
next:
	for {
		select {
		case line := <-lines:
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue next
				}
			}
			return line
		case <-deadline:
			t.Fatalf("no line with %q", words)
		}
	}
}

// The environment and the flags of the start stay over the file at every
// reload; the file alone changes what they leave open.
func TestF2_SIGHUPReadsTheFileUnderEnvironmentAndFlags(t *testing.T) {
	name := file(t, "frontend: {first_byte_timeout: 5s, retries: 2}\n")
	t.Setenv("ROUTERD_FRONTEND__FIRST_BYTE_TIMEOUT", "7s")
	router, admin, dir, log := serving(t, "-c", name, "--frontend.max_body=2MiB")
	lines := make(chan string, 1000)
	go func() {
		s := bufio.NewScanner(log)
		for s.Scan() {
			lines <- s.Text()
		}
		_, _ = io.Copy(io.Discard, log)
	}()
	hangup := func(text string, words ...string) string {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := router.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		return logged(t, lines, words...)
	}
	hangup("frontend: {first_byte_timeout: 6s, max_body: 1MiB, listen: '127.0.0.1:1', retries: 1}\n",
		"configuration reloaded", "by=signal", "changed=[frontend.retries]")
	hangup("frontend: {retries: many}\n", "level=ERROR", "the old one stays in force", "routerd.yaml:1:12: frontend.retries")
	hangup("frontend: {retries: 1}\nlog: {format: json}\n", `"msg":"configuration reloaded"`, `"changed":["log.format"]`)
	args := []string{"config", "reload", "--admin-url", admin, "--data-dir", dir}
	if code, out, problem := says(t, args...); code != 0 || strings.TrimSpace(out) != "nothing has changed" {
		t.Errorf("exit code %d: %s%s", code, out, problem)
	}
	if err := os.WriteFile(name, []byte("data_dir: /elsewhere\nadmin: {metrics_public: true}\nlog: {format: json}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, problem := says(t, append(args, "--output", "json")...); code != 0 || !strings.Contains(out, `"admin.metrics_public"`) || !strings.Contains(out, `"frontend.retries"`) {
		t.Errorf("exit code %d: %s%s", code, out, problem)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if code, out, problem := says(t, args...); code != exitFailed || !strings.Contains(problem, filepath.Base(name)) {
		t.Errorf("exit code %d: %s%s", code, out, problem)
	}
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, problem := says(t, args...); code != exitFailed || !strings.Contains(problem, "no regular file") {
		t.Errorf("a pipe: exit code %d: %s", code, problem)
	}
	if err := router.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := router.Wait(); err != nil {
		t.Errorf("the router ended with %v", err)
	}
}

// A key with underscores, one of which stands where levels are separated, is
// found by its documented name; each layer wins over the one before.
func TestF2_PrintShowsWhichLayerWon(t *testing.T) {
	name := file(t, "frontend: {first_byte_timeout: 5s, max_body: 1MiB, half_close: ignore}\n")
	t.Setenv("ROUTERD_FRONTEND__FIRST_BYTE_TIMEOUT", "7s")
	t.Setenv("ROUTERD_FRONTEND__MAX_BODY", "2MiB")
	code, out, problem := says(t, "config", "print", "-c", name, "--frontend.max_body", "3MiB")
	if code != 0 {
		t.Fatal(problem)
	}
	for _, want := range []string{
		"first_byte_timeout: 7s # ROUTERD_FRONTEND__FIRST_BYTE_TIMEOUT\n", "max_body: 3MiB # --frontend.max_body\n",
		"half_close: ignore # routerd.yaml:1:", "trust_headers: true\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	t.Setenv("ROUTERD_FRONTEND_MAX_BODY", "1MiB")
	if code, _, problem := says(t, "config", "print"); code != exitUsage || !strings.Contains(problem, "nearest known one is ROUTERD_FRONTEND__MAX_BODY") {
		t.Errorf("one underscore between the levels: exit code %d: %s", code, problem)
	}
}
