package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
)

// gate is a Compiler that tells when it began and waits for its turn to end.
type gate struct {
	began   chan struct{}
	let     chan struct{}
	running atomic.Int32
	most    atomic.Int32
}

// Compile counts how many run at once.
func (g *gate) Compile(ctx context.Context, original, rewritten []byte, dir string) error {
	n := g.running.Add(1)
	defer g.running.Add(-1)
	g.most.Store(max(g.most.Load(), n))
	g.began <- struct{}{}
	<-g.let
	return host.InProcess{}.Compile(ctx, original, rewritten, dir)
}

func TestModulesAreRewrittenAndCompiledOneAtATime(t *testing.T) {
	g := &gate{began: make(chan struct{}, 8), let: make(chan struct{})}
	r := newRuntime(t, func(c *host.Config) { c.Compiler = g })
	load := func(ctx context.Context, i int) error {
		wasm := Guest{Extra: fmt.Sprintf(`,"description":"%d"`, i)}.Bytes()
		s, err := loaded(ctx, r, "module:test", wasm)
		if err != nil {
			return err
		}
		return s.Close()
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := load(context.Background(), i); err != nil {
				t.Error(err)
			}
		})
	}
	<-g.began
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("caller gone")
	cancel(gone)
	if err := load(ctx, 9); !errors.Is(err, gone) {
		t.Errorf("a load that gave up waiting: got %v, want its cause", err)
	}
	close(g.let)
	wg.Wait()
	if n := g.most.Load(); n != 1 {
		t.Errorf("%d modules were compiled at once, want 1", n)
	}
}
