//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	repository = "../.."
	// readyWithin is what the readme's reader is promised, from a cold build cache.
	readyWithin = 120 * time.Second
	stopWithin  = 30 * time.Second
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	readyToken = regexp.MustCompile(`^ready .*\btoken=(\S+)`)
)

// What the readme tells a newcomer to type is typed, word for word, and must work.
func TestReadmeQuickStart(t *testing.T) {
	text, err := os.ReadFile(repository + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) < 2 || blocks[0] != "make run\n" {
		t.Fatalf("the first of %d commands in the readme is not make run", len(blocks))
	}

	token := startDemo(t, blocks[0])
	for _, block := range blocks[1:] {
		if block == "make test\n" || strings.HasPrefix(block, "export ROUTERD_ADMIN_TOKEN=") {
			continue
		}
		t.Run(strings.Fields(block)[0], func(t *testing.T) {
			out := typed(t, block, token)
			if !strings.HasPrefix(block, "curl -i") {
				return
			}
			if !strings.HasPrefix(out, "HTTP/1.1 200") || !strings.Contains(strings.ToLower(out), "x-routerd-worker: ") {
				t.Errorf("the completion was answered by\n%s", out)
			}
		})
	}
}

// startDemo runs the command in a process group of its own, as a terminal would, and returns the
// admin token once the ready line has come. At the end of the test it presses Ctrl-C and requires
// that everything ends.
func startDemo(t *testing.T, command string) (token string) {
	t.Helper()
	demo := exec.Command("bash", "-euc", command)
	demo.Dir = repository
	demo.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in := io.Pipe()
	demo.Stdout, demo.Stderr = in, in
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = demo.Wait() // make answers an interrupt with an exit code of its own
		_ = in.Close()
	}()
	tokens := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := readyToken.FindStringSubmatch(lines.Text()); m != nil {
				tokens <- m[1]
			} else {
				t.Log(lines.Text())
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-demo.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(stopWithin):
			_ = syscall.Kill(-demo.Process.Pid, syscall.SIGKILL)
			<-ended
			t.Errorf("the demo did not end within %v of Ctrl-C", stopWithin)
		}
		<-read
	})

	begun := time.Now()
	select {
	case token = <-tokens:
		t.Logf("ready after %v", time.Since(begun).Round(time.Millisecond))
	case <-ended:
		t.Fatal("the demo ended before it was ready")
	case <-time.After(readyWithin):
		t.Fatalf("the demo was not ready within %v", readyWithin)
	}
	return token
}

// typed runs a block of commands as a newcomer would and returns what they print.
func typed(t *testing.T, block, token string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", block)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "ROUTERD_ADMIN_TOKEN="+token)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s%v\n%s%s", block, err, said.String(), out)
	}
	if len(out) == 0 {
		t.Errorf("%sprinted nothing", block)
	}
	return string(out)
}
