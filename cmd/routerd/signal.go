package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignal returns a context that ends with SIGINT or SIGTERM; from then on a
// second signal ends the process at once. Whoever reads the output or the log
// may go away: that is an error of the write, not the end of the process.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// hangups are the SIGHUPs that a process gets. One that comes while another is
// handled, or before anybody handles them, is kept; more are one.
type hangups struct {
	came    chan os.Signal  // capacity 1: signal.Notify drops what does not fit
	ended   context.Context //nolint:containedctx // the lifetime of the handler
	end     context.CancelFunc
	handler sync.WaitGroup
}

// onHangup makes SIGHUP no longer end the process.
func onHangup() *hangups {
	h := &hangups{came: make(chan os.Signal, 1)}
	h.ended, h.end = context.WithCancel(context.Background())
	signal.Notify(h.came, syscall.SIGHUP)
	return h
}

// do calls f after each SIGHUP, one at a time, until stop. What f returns has
// been told elsewhere.
func (h *hangups) do(f func(context.Context) error) {
	h.handler.Go(func() {
		for {
			select {
			case <-h.came:
				_ = f(h.ended)
			case <-h.ended.Done():
				return
			}
		}
	})
}

// stop waits for the call under way. SIGHUP ends the process again.
func (h *hangups) stop() {
	h.end()
	h.handler.Wait()
	signal.Stop(h.came)
}
