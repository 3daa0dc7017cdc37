//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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

// guideScripts are the forwarders of the guide, written to files by their names.
func guideScripts(t *testing.T, dir string) map[string]string {
	t.Helper()
	scripts := map[string]string{}
	for language, name := range map[string]string{"sh": "forward.sh", "python": "forward.py"} {
		text := guideHas(t, language, "# "+name)
		if lines := strings.Count(text, "\n"); lines > 30 {
			t.Errorf("%s has %d lines, want at most 30", name, lines)
		}
		scripts[name] = filepath.Join(dir, name)
		if err := os.WriteFile(scripts[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return scripts
}

// The commands and the two forwarders of the guide work as they are written, at
// other addresses.
func TestTheForwardersOfTheGuide(t *testing.T) {
	dir := socketFolder(t)
	scripts := guideScripts(t, dir)
	for _, c := range []struct {
		name, listen string
		command      []string
		streams      bool
	}{
		{"curl", "127.0.0.1:0", []string{"sh", scripts["forward.sh"]}, false},
		{"curl in bash at a socket", "unix:" + filepath.Join(dir, "s"), []string{"bash", scripts["forward.sh"]}, false},
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
			s.typesGuide(t, addWorker, e)

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

			// What the service refuses is told in its words.
			s.says(t, http.StatusOK, "DELETE", "/workers/1", nil)
			_, err := forwards(t, env, request, c.command...)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(err.Error(), `"message":"no schedulable workers`) || strings.Contains(err.Error(), "Traceback") {
				t.Errorf("refused by the service: %v", err)
			}
		})
	}
}

// addWorker is how the command of the guide begins that adds a worker with one rank,
// and addRanks that for one with several.
const (
	addWorker = "curl -sS http://127.0.0.1:8092/workers -H 'content-type: application/json' -d '{\n  \"worker_id\": 1"
	addRanks  = "curl -sS http://127.0.0.1:8092/workers -H 'content-type: application/json' -d '{\n  \"worker_id\": \"2\""
)

// typesGuide types the command of the guide that begins with a text, at the addresses
// of s and e, and with the token of s.
func (s *service) typesGuide(t *testing.T, begins string, e *sim.Engine) string {
	t.Helper()
	command := strings.ReplaceAll(at(guideHas(t, "sh", begins), e), "http://127.0.0.1:8092", s.base())
	curl := "curl"
	if socket, unix := strings.CutPrefix(s.at, "unix:"); unix {
		curl += " --unix-socket " + socket
	}
	if s.bearer != "" {
		curl += " -H 'authorization: Bearer " + s.bearer + "'"
	}
	return typedAs(t, nil, "", "sh", "-euc", strings.Replace(command, "curl", curl, 1))
}

// A forwarder that a signal ends in the middle of a request leaves no booking, whether
// the terminal's Ctrl-C tells its whole group or it is told alone. It asks with the
// token.
func TestAForwarderThatASignalEndsLeavesNoBooking(t *testing.T) {
	dir := socketFolder(t)
	scripts := guideScripts(t, dir)
	e := simtest.Start(t, func(c *sim.Config) {
		c.Model, c.AnswerTokens, c.DecodePerToken = "my-model", 10_000, 20*time.Millisecond
	})
	token := filepath.Join(dir, "token")
	const bearer = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(token, []byte(bearer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServiceAt(t, "127.0.0.1:0", "selection: {token_file: '"+token+"'}\n")
	s.bearer = bearer
	s.typesGuide(t, addWorker, e)
	env := []string{"SELECTION_URL=" + s.base(), "SELECTION_TOKEN=" + bearer}
	request := string(bodyOf(t, map[string]any{"model": "my-model", "prompt": tokens(1, 64), "max_tokens": 10_000}))
	for name, command := range map[string][]string{
		"sh": {"sh", scripts["forward.sh"]}, "bash": {"bash", scripts["forward.sh"]}, "Python": {mustEnv(t, "ROUTERD_PYTHON"), scripts["forward.py"]},
	} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprint(name, ", ", signal), func(t *testing.T) {
				served := engineServed(t, e)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, command[0], command[1:]...)
				var said strings.Builder
				cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), env...), strings.NewReader(request), &said
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				cmd.WaitDelay = time.Second
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, soon, func() error {
					if n := engineServed(t, e); n == served {
						return errors.New("the request has not come to the engine")
					}
					return nil
				})
				whom := cmd.Process.Pid
				if signal == syscall.SIGINT {
					whom = -whom
				}
				began := time.Now()
				if err := syscall.Kill(whom, signal); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				if code, took := cmd.ProcessState.ExitCode(), time.Since(began); code != 128+int(signal) || took > 20*time.Second {
					t.Errorf("it ended with %d after %s: %s", code, took, said.String())
				}
				s.quiet("my-model")
			})
		}
	}
}

// The worker with several ranks and the booking of a worker that the guide shows are
// taken as they are written.
func TestTheOtherCommandsOfTheSelectionGuide(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.Ranks = "my-large-model", 2 })
	s := startService(t, "")
	if out := s.typesGuide(t, addRanks, e); !strings.Contains(out, `"lifecycle":"schedulable"`) {
		t.Errorf("the worker with two ranks: %s", out)
	}
	one := simtest.Start(t, func(c *sim.Config) { c.Model = "my-model" })
	s.typesGuide(t, addWorker, one)
	text, err := os.ReadFile(selectionGuide)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "curl -sS http://127.0.0.1:8092/reservations")
	command, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no booking of a worker in the guide")
	}
	out := typedAs(t, nil, "", "sh", "-euc", "curl -sS "+s.base()+"/reservations"+command)
	if !strings.Contains(out, `"selection_id":"my-request-1"`) || !strings.Contains(string(s.says(t, http.StatusOK, "GET", "/loads?model_name=my-model", nil).body), `"potential_prefill_tokens":4`) {
		t.Errorf("the booking of a worker: %s", out)
	}
	s.frees(t, "my-request-1")
	s.quiet("my-model")
}

// at is a command of the guide with the engine's addresses.
func at(command string, e *sim.Engine) string {
	events := e.EventEndpoints()
	return strings.NewReplacer(
		"http://127.0.0.1:8000", e.URL(), "tcp://127.0.0.1:5557", events[0],
		"http://127.0.0.1:8001", e.URL(), "tcp://127.0.0.1:5567", events[0], "tcp://127.0.0.1:5568", events[len(events)-1],
	).Replace(command)
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
