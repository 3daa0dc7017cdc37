package main

import (
	"context"
	"os/signal"
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
