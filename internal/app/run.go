package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/fx"
)

// closers closes what constructors opened, last first, also when the app never
// started.
type closers struct{ list []func() error }

func (c *closers) add(f func() error) { c.list = append(c.list, f) }

func (c *closers) closeAll() error {
	var errs []error
	for len(c.list) > 0 {
		last := len(c.list) - 1
		errs = append(errs, c.list[last]())
		c.list = c.list[:last]
	}
	return errors.Join(errs...)
}

// failures carries the error of a part that ended by itself.
type failures chan error

// report ends the app with err, unless an earlier failure does already.
func (f failures) report(err error) {
	select {
	case f <- err:
	default:
	}
}

// background runs a blocking Run of a part while the app runs, waits for it at
// stop, and reports one that ends by itself.
func background(lc fx.Lifecycle, failed failures, name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			running.Go(func() {
				err := run(ctx)
				if ctx.Err() != nil && err == nil {
					return
				}
				failed.report(fmt.Errorf("%s ended by itself: %w", name, err))
			})
			return nil
		},
		OnStop: func(context.Context) error {
			cancel(fmt.Errorf("%s is stopped with the app", name))
			running.Wait()
			return nil
		},
	})
}
