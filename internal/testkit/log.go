// Package testkit is what the tests of several packages need alike. Of its goroutines
// there is the one of Running; only tests import it.
package testkit

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a log that can be read while it is written. The zero value is empty.
// Safe for concurrent use.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all of the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count is how often the log holds a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
