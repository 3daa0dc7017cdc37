package app

import (
	"context"
	"time"

	"go.uber.org/fx"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// forgetEvery is how late a partition may be forgotten.
const forgetEvery = time.Second

// forgetDeserted forgets the partitions that have had no worker for as long as the
// configuration says, but those that it names and those whose worker is kept from the
// core for a while, as one whose time to drain is over.
func forgetDeserted(lc fx.Lifecycle, l *live, c *core.SelectionCore, all *roster, failed failures) {
	background(lc, failed, "forgetting of models", func(ctx context.Context) error {
		every := time.NewTicker(forgetEvery)
		defer every.Stop()
		fit := fitWorkers{all: all}
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-every.C:
				cfg := l.Load()
				if after := cfg.Workers.ForgetModels.Std(); after > 0 {
					c.Forget(now, after, func(key fleet.PartitionKey) bool { return cfg.Names(key) || fit.in(key) })
				}
			}
		}
	})
}

// fitWorkers are the partitions of the workers that lack nothing, those that serve and
// those that do not. One goroutine owns it.
type fitWorkers struct {
	all        *roster
	changed    <-chan struct{} // closed once the partitions are out of date
	partitions map[fleet.PartitionKey]struct{}
}

// in tells whether a partition has such a worker. It lists the workers only when they
// have changed.
func (f *fitWorkers) in(key fleet.PartitionKey) bool {
	select {
	case <-f.changed:
		f.changed = nil
	default:
	}
	if f.changed == nil {
		f.changed, f.partitions = f.all.Changed(), map[fleet.PartitionKey]struct{}{}
		for _, v := range f.all.Workers() {
			if v.Lifecycle != core.Incomplete {
				f.partitions[v.Partition()] = struct{}{}
			}
		}
	}
	_, ok := f.partitions[key]
	return ok
}
