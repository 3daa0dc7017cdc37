//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

const selectionGuide = repository + "/docs/guide/selection.md"

var guideBlock = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// guideHas is the one block of the guide in a language that begins with a text.
func guideHas(t *testing.T, language, begins string) string {
	t.Helper()
	text, err := os.ReadFile(selectionGuide)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language && strings.HasPrefix(m[2], begins) {
			found = append(found, m[2])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of %s begin with %q, want 1", len(found), language, begins)
	}
	return found[0]
}

// The commands and the two forwarders of the guide work as they are written, at
// other addresses.
func TestTheForwardersOfTheGuide(t *testing.T) {
	dir := socketFolder(t)
	scripts := map[string]string{}
	for language, name := range map[string]string{"sh": "forward.sh", "python": "forward.py"} {
		text := guideHas(t, language, "# "+name)
		if lines := strings.Count(text, "\n"); lines > 32 {
			t.Errorf("%s has %d lines, want about 30", name, lines)
		}
		scripts[name] = filepath.Join(dir, name)
		if err := os.WriteFile(scripts[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, listen string
		command      []string
		streams      bool
	}{
		{"curl", "127.0.0.1:0", []string{"bash", scripts["forward.sh"]}, false},
		{"curl at a socket", "unix:" + filepath.Join(dir, "s"), []string{"bash", scripts["forward.sh"]}, false},
		{"Python", "127.0.0.1:0", []string{mustEnv(t, "ROUTERD_PYTHON"), scripts["forward.py"]}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := simtest.Start(t, func(sc *sim.Config) { sc.Model, sc.AnswerTokens = "my-model", 8 })
			s := startServiceAt(t, c.listen, "")
			env := []string{"SELECTION_URL=" + s.base()}
			socket, unix := strings.CutPrefix(s.at, "unix:")
			if unix {
				env = append(env, "SELECTION_SOCKET="+socket)
			}
			add := strings.ReplaceAll(at(guideHas(t, "sh", "curl -sS http://127.0.0.1:8092/workers"), e), "http://127.0.0.1:8092", s.base())
			if unix {
				add = strings.Replace(add, "curl", "curl --unix-socket "+socket, 1)
			}
			typedAs(t, nil, "", "bash", "-euc", add)

			const rounds = 1
			body := map[string]any{"model": "my-model", "prompt": tokens(1, 64), "max_tokens": 8}
			ends, told := "}", 0.0
			if c.streams {
				body["session"], ends, told = "s", "data: [DONE]", rounds
			}
			request := string(bodyOf(t, body))
			for range rounds {
				if out := typedAs(t, env, request, c.command...); !strings.Contains(out, `"text_completion"`) || !strings.HasSuffix(strings.TrimSpace(out), ends) {
					t.Errorf("the forwarder printed %q", out)
				}
			}
			m := s.metrics()
			for call, want := range map[string]float64{"/select_and_reserve": rounds, "DELETE /reservations/{id}": rounds, "/reservations/{id}/prefill_complete": told} {
				if got := sum(m, "routerd_selection_service_requests_total", call, `"200"`); got != want {
					t.Errorf("%v calls of %s, want %v", got, call, want)
				}
			}
			if got := engineServed(t, e); got != rounds {
				t.Errorf("the engine served %d requests, want %d", got, rounds)
			}
			s.quiet("my-model")

			// The booking ends also when the worker refuses.
			s.says(t, http.StatusOK, "PATCH", "/workers/1", map[string]any{"endpoint": "http://127.0.0.77:9"})
			if out, err := forwards(t, env, request, c.command...); err == nil {
				t.Errorf("without a worker the forwarder printed %q and said nothing", out)
			}
			s.quiet("my-model")
		})
	}
}

// at is a command of the guide with the engine's addresses.
func at(command string, e *sim.Engine) string {
	return strings.NewReplacer("http://127.0.0.1:8000", e.URL(), "tcp://127.0.0.1:5557", e.EventEndpoints()[0]).Replace(command)
}

func engineServed(t *testing.T, e *sim.Engine) int {
	t.Helper()
	var stats struct {
		Requests int `json:"requests"`
	}
	engineJSON(t, e, "GET", "/sim/stats", nil, &stats)
	return stats.Requests
}

// forwards runs a command with an environment and an input and returns what it prints.
func forwards(t *testing.T, env []string, in string, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdin = append(os.Environ(), env...), strings.NewReader(in)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return string(out), err
}

// typedAs is forwards for a command that must succeed.
func typedAs(t *testing.T, env []string, in string, command ...string) string {
	t.Helper()
	out, err := forwards(t, env, in, command...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}
