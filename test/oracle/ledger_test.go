//go:build oracle

package oracle_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// ledger counts what was compared and keeps what differed. Safe for concurrent
// use.
type ledger struct {
	mu         sync.Mutex
	compared   map[string]int
	exceptions map[string]int // deliberate differences by name
	failed     map[string]int // other differences by what was compared
	first      []string       // the first of them in words
}

func newLedger() *ledger {
	return &ledger{compared: map[string]int{}, exceptions: map[string]int{}, failed: map[string]int{}}
}

func (l *ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compared[what]++
}

func (l *ledger) except(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exceptions[name]++
}

func (l *ledger) differ(what, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[what]++
	if l.failed[what] <= 5 {
		l.first = append(l.first, what+": "+fmt.Sprintf(format, args...))
	}
}

// differences is how many there were that have no name.
func (l *ledger) differences() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.failed {
		n += c
	}
	return n
}

// print writes the tables, sorted by name.
func (l *ledger) print(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	table := func(title string, counts map[string]int) {
		_, _ = fmt.Fprintf(w, "%s\n", title)
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			_, _ = fmt.Fprintf(w, "  %8d  %s\n", counts[name], name)
		}
	}
	table("compared", l.compared)
	table("named exceptions", l.exceptions)
	table("other differences", l.failed)
	for _, s := range l.first {
		_, _ = fmt.Fprintf(w, "- %s\n", s)
	}
}
