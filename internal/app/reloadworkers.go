package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
)

// followWorkers has the workers of the file follow the configuration: those that
// left it get no request and no event stream once the reload has answered.
func followWorkers(r *reloads, l *live, rec *catalog.Reconciler, static *staticWorkers, c *core.SelectionCore, log *slog.Logger) {
	r.follow(workersNext, part{
		keys: []string{"workers.", "models."},
		refuse: func(was, now *config.Config) []admin.ReloadProblem {
			return otherBlockSizes(was, now, c.Partitions())
		},
		prepare: func(_ context.Context, now *config.Config) (prepared, error) {
			if err := rec.Check(fileSource, now.Workers.Static); err != nil {
				return prepared{}, fmt.Errorf("workers.static: %w", err)
			}
			p := planned(rec, l.Load(), now, log.With("component", "reload"))
			bring := p.after
			p.after = func(ctx context.Context) {
				bring(ctx)
				static.changed()
			}
			return p, nil
		},
	})
}

// planned publishes the list of workers. Another source may have brought the
// same worker since the list was checked: then nothing has changed. Workers that
// leave go when the new ones were tried once, so that a list that replaces all
// of them leaves no request without one.
func planned(rec *catalog.Reconciler, was, now *config.Config, log *slog.Logger) prepared {
	first := meanwhile(was.Workers.Static, now.Workers.Static)
	if rec.Check(fileSource, first) != nil { // a new one has the name or the endpoint of one that leaves
		first = now.Workers.Static
	}
	plan := func(list []fleet.Record) {
		if _, err := rec.Plan(fileSource, list); err != nil {
			log.Error("the workers of the file are not all as it says", "err", err)
		}
	}
	var due []fleet.WorkerID
	return prepared{
		publish: func() error {
			changed, err := rec.Plan(fileSource, first)
			if err != nil {
				return fmt.Errorf("workers.static: %w", err)
			}
			due = changed
			return nil
		},
		undo: func() { plan(was.Workers.Static) },
		after: func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, firstTry)
			defer cancel()
			rec.Bring(ctx, append(due, waiting(rec, was, now)...)...)
			plan(now.Workers.Static) // a part of what is planned, which nothing stands against
		},
	}
}

// meanwhile is the new list with the workers that leave.
func meanwhile(was, now []fleet.Record) []fleet.Record {
	all, stays := slices.Clone(now), map[fleet.WorkerID]bool{}
	for _, rec := range now {
		stays[rec.ID] = true
	}
	for _, rec := range was {
		if !stays[rec.ID] {
			all = append(all, rec)
		}
	}
	return all
}

// waiting are the workers that are not ready and whose model has another block
// size now.
func waiting(rec *catalog.Reconciler, was, now *config.Config) (ids []fleet.WorkerID) {
	for _, v := range rec.Workers() {
		if v.Lifecycle == core.Incomplete && was.Models[v.Model].BlockSize != now.Models[v.Model].BlockSize {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// otherBlockSizes refuses block sizes that a partition with workers does not
// have: the blocks that its index holds could not be compared any more.
func otherBlockSizes(was, now *config.Config, partitions []core.PartitionView) (problems []admin.ReloadProblem) {
	differs := func(p core.PartitionView, size int) bool {
		return len(p.Ranks) > 0 && size != 0 && p.BlockSize != size
	}
	refuse := func(key string, p core.PartitionView, size int) {
		problems = append(problems, needsRestart(key, strconv.Itoa(p.BlockSize), strconv.Itoa(size)))
	}
	for _, name := range slices.Sorted(maps.Keys(now.Models)) {
		size := now.Models[name].BlockSize
		i := slices.IndexFunc(partitions, func(p core.PartitionView) bool { return p.Model == name && differs(p, size) })
		if i >= 0 && size != was.Models[name].BlockSize {
			refuse("models."+name+".block_size", partitions[i], size)
		}
	}
	before := map[fleet.WorkerID]fleet.Record{}
	for _, rec := range was.Workers.Static {
		before[rec.ID] = rec
	}
	for n, rec := range now.Workers.Static {
		old, known := before[rec.ID]
		if !known || old.BlockSize == rec.BlockSize || old.Partition() != rec.Partition() {
			continue
		}
		i := slices.IndexFunc(partitions, func(p core.PartitionView) bool {
			return fleet.PartitionKey{Model: p.Model, Group: p.Group} == rec.Partition() && differs(p, rec.BlockSize)
		})
		if i >= 0 {
			refuse(fmt.Sprintf("workers.static[%d].block_size", n), partitions[i], rec.BlockSize)
		}
	}
	return problems
}
