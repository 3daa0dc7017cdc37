package health

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/routerd/routerd/fleet"
)

// NewAsking makes a monitor that asks ask instead of the network: for the word of
// a result and the status that goes with "status".
func NewAsking(cfg Config, r Reconciler, ask func(ctx context.Context, url string) (word string, status int), log *slog.Logger) *Monitor {
	return newMonitor(cfg, r, askFunc(ask), log)
}

type askFunc func(ctx context.Context, url string) (string, int)

func (f askFunc) ask(ctx context.Context, base, path string) (answer, error) {
	word, status := f(ctx, base+path)
	for r := range results {
		if r.String() == word {
			return answer{r, status}, nil
		}
	}
	return answer{result: resultBroken}, errors.New("no such word: " + word)
}

// Ask asks over HTTP as a monitor does.
func Ask(ctx context.Context, base, path string) (word string, status int, err error) {
	a, err := new(dialler).ask(ctx, base, path)
	return a.result.String(), a.status, err
}

// ReadStatus reads the status of an answer.
func ReadStatus(b []byte) (int, error) { return readStatus(bufio.NewReader(bytes.NewReader(b))) }

// Allowed is how many of n may be out.
func Allowed(n, percent int) int { return allowed(n, percent) }

// Returning tells whether anybody returns slowly.
func (m *Monitor) Returning() bool { return m.returning.Load() != nil }

// Suspect tells whether a request's success would be news.
func (m *Monitor) Suspect(id fleet.WorkerID) bool {
	_, ok := m.suspects.Load(id)
	return ok
}

// Watched counts what is kept: workers, groups, planned probes.
func (m *Monitor) Watched() (workers, groups, planned int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.workers), len(m.groups), len(m.agenda)
}

// Refresh lists the workers as Run does.
func (m *Monitor) Refresh() { m.refresh() }

// Counting makes an asker that counts and always says yes.
func Counting(n *atomic.Int64) func(context.Context, string) (string, int) {
	return func(context.Context, string) (string, int) {
		n.Add(1)
		return resultSuccess.String(), 0
	}
}
