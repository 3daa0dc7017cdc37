package testkit

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Until waits for a condition, at most 20 s.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !met() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

// Running lets run go, on a goroutine of its own, until the returned function was called, which waits for it.
func Running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}
