package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// Lifecycle is where a worker stands.
type Lifecycle string

// The lifecycles of a worker that has a record. Only a ready one is eligible.
const (
	Incomplete Lifecycle = "incomplete" // something is missing; the reasons say what
	Ready      Lifecycle = "ready"
	Draining   Lifecycle = "draining" // gets nothing new, what it has goes on
	Ejected    Lifecycle = "ejected"  // health took it out
)

// Member is a worker as the catalog commits it.
type Member struct {
	Record    fleet.Record
	Lifecycle Lifecycle
	// Reasons say why it is not ready, in the catalog's words.
	Reasons []string
	// BlockSize is the one the catalog resolved; it must be the partition's.
	BlockSize int
}

// Change is one step of the catalog: applied whole or not at all. A worker that
// is upserted into another partition leaves its old one.
type Change struct {
	Upserts  []Member
	Removals []fleet.WorkerID
}

// Prepare builds a partition with its index and its policy unless it exists. It
// holds no lock while it asks the sources, so that a slow policy delays nobody
// else; calls for one key wait for each other. A prepared partition is visible
// to requests from the first Commit that puts a worker into it. A block size
// that differs from an existing partition's is a *MismatchError; a partition
// keeps its size when it has lost all its workers. One that has none when it is
// prepared is not forgotten within the next seconds.
func (c *SelectionCore) Prepare(ctx context.Context, key fleet.PartitionKey, blockSize int) error {
	key = key.Normalised()
	if blockSize < 1 || blockSize > fleet.MaxBlockSize {
		return &fleet.FieldError{Field: "block_size", Value: strconv.Itoa(blockSize), Allowed: "1 to " + strconv.Itoa(fleet.MaxBlockSize)}
	}
	for {
		p, done, err := c.claimPrepare(ctx, key, blockSize)
		switch {
		case err != nil:
			return err
		case p != nil:
			return p.checkBlockSize(blockSize)
		case done == nil:
			continue
		}
		err = c.build(key, blockSize)
		c.members.Lock()
		delete(c.preparing, key)
		c.members.Unlock()
		close(done)
		return err
	}
}

// claimPrepare returns the partition, or a channel when the caller is the one
// to build it, or neither when another built or forgot it meanwhile.
func (c *SelectionCore) claimPrepare(ctx context.Context, key fleet.PartitionKey, blockSize int) (*Partition, chan struct{}, error) {
	c.members.Lock()
	if p := c.known(key); p != nil {
		if p.blockSize == blockSize {
			p.preparedAt = time.Now()
		}
		c.members.Unlock()
		return p, nil, nil
	}
	other, busy := c.preparing[key]
	if !busy {
		mine := make(chan struct{})
		c.preparing[key] = mine
		c.members.Unlock()
		return nil, mine, nil
	}
	c.members.Unlock()
	select {
	case <-other:
		return nil, nil, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("prepare partition %s: %w", key, context.Cause(ctx))
	}
}

// known finds a partition, visible or only prepared. members must be held.
func (c *SelectionCore) known(key fleet.PartitionKey) *Partition {
	if p := c.directory.Load().partitions[key]; p != nil {
		return p
	}
	return c.prepared[key]
}

// build makes a partition by the rules as they are when it is done.
func (c *SelectionCore) build(key fleet.PartitionKey, blockSize int) error {
	index, err := c.index.Open(key, blockSize)
	if err != nil {
		return fmt.Errorf("open index for %s: %w", key, err)
	}
	for built := false; !built; {
		c.members.Lock()
		seen := c.rules
		c.members.Unlock()
		r, err := c.rule(key)
		if err != nil {
			return err
		}
		p := newPartition(c, key, blockSize, r, index)
		c.members.Lock()
		if built = c.rules == seen; built {
			c.prepared[key] = p
		}
		c.members.Unlock()
	}
	c.log.Info("partition built", "partition", key.String(), "block_size", blockSize)
	return nil
}

// Commit applies a change. Every partition named must have been prepared. It is
// short, applied whole or refused whole with an error that names the field, and
// no reader sees a part of it. The first worker of a partition fixes for all others
// whether its blocks are hashed for Eagle: another record is a *MismatchError, as a
// block size is. Bookings of removed records and ranks are
// dropped and their reservations released as withdrawn; an upsert of a record
// that stays in its partition keeps them.
func (c *SelectionCore) Commit(ch Change) error {
	c.members.Lock()
	plans, dir, err := c.plan(ch)
	if err != nil {
		c.members.Unlock()
		return err
	}
	owners := applyAll(plans)
	was := c.directory.Load()
	c.directory.Store(dir)
	c.forgetInhibition(ch.Removals...)
	for key := range dir.partitions {
		delete(c.prepared, key)
	}
	c.members.Unlock()
	c.tellLost(was, dir)
	withdraw(owners)
	for _, pl := range plans {
		if len(pl.gone) > 0 {
			pl.partition.dropSessions()
		}
		for _, w := range pl.gone {
			pl.partition.index.Forget(w)
		}
	}
	return nil
}

// SetLifecycle changes where a worker stands without touching its record. An
// unknown id is an error.
func (c *SelectionCore) SetLifecycle(id fleet.WorkerID, lifecycle Lifecycle, reasons []string) error {
	if err := checkLifecycle(lifecycle); err != nil {
		return err
	}
	c.members.Lock()
	defer c.members.Unlock()
	entry, ok := c.directory.Load().workers[id]
	if !ok {
		return &fleet.FieldError{Field: "id", Value: id.String(), Allowed: "the id of a registered worker"}
	}
	old := entry.partition.view.Load().byID[id]
	m := old.with(old.record, lifecycle, reasons, time.Now())
	p := entry.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(map[fleet.WorkerID]*member{id: m}, nil)
	return nil
}

// plan is what a change does to one partition.
type plan struct {
	partition *Partition
	upserts   map[fleet.WorkerID]*member
	removals  []fleet.WorkerID
	gone      []fleet.Worker // the ranks that leave
	eagle     bool           // of its upserts
}

// plan checks a change and works out its effect. members must be held.
func (c *SelectionCore) plan(ch Change) (map[fleet.PartitionKey]*plan, *directory, error) {
	old := c.directory.Load()
	dir := old.clone()
	plans := map[fleet.PartitionKey]*plan{}
	of := func(p *Partition) *plan {
		if plans[p.key] == nil {
			plans[p.key] = &plan{partition: p, upserts: map[fleet.WorkerID]*member{}}
		}
		return plans[p.key]
	}
	touched := map[fleet.WorkerID]bool{}
	for _, id := range ch.Removals {
		if touched[id] {
			return nil, nil, &fleet.FieldError{Field: "removals", Value: id.String(), Allowed: "each worker once"}
		}
		touched[id] = true
		if entry, ok := old.workers[id]; ok {
			of(entry.partition).removals = append(of(entry.partition).removals, id)
			delete(dir.workers, id)
		}
	}
	now := time.Now()
	for i, up := range ch.Upserts {
		rec, p, err := c.checkMember(up)
		if err == nil && touched[rec.ID] {
			err = &fleet.FieldError{Field: "id", Value: rec.ID.String(), Allowed: "each worker once"}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("upserts[%d]: %w", i, err)
		}
		touched[rec.ID] = true
		if pl := of(p); len(pl.upserts) == 0 {
			pl.eagle = rec.Eagle
		} else if pl.eagle != rec.Eagle {
			return nil, nil, fmt.Errorf("upserts[%d]: %w", i, eagleMismatch(p.key, pl.eagle))
		}
		entry, exists := old.workers[rec.ID]
		m := &member{}
		if exists && entry.partition == p {
			m = p.view.Load().byID[rec.ID]
		} else {
			m.generation = c.generations.Add(1)
			if exists {
				of(entry.partition).removals = append(of(entry.partition).removals, rec.ID)
			}
		}
		of(p).upserts[rec.ID] = m.with(rec, up.Lifecycle, up.Reasons, now)
		dir.partitions[p.key] = p
		dir.workers[rec.ID] = workerEntry{p, rec.Name}
	}
	if err := dir.checkNames(); err != nil {
		return nil, nil, err
	}
	dir.indexAdapters(plans)
	return plans, dir, nil
}

// checkMember refuses a member that cannot be committed. members must be held.
func (c *SelectionCore) checkMember(m Member) (fleet.Record, *Partition, error) {
	rec, err := m.Record.Filled()
	if err != nil {
		return rec, nil, err
	}
	if err := checkLifecycle(m.Lifecycle); err != nil {
		return rec, nil, err
	}
	p := c.known(rec.Partition())
	if p == nil {
		return rec, nil, &fleet.FieldError{Field: "partition", Value: rec.Partition().String(), Allowed: "a prepared partition"}
	}
	if m.BlockSize != 0 {
		if err := p.checkBlockSize(m.BlockSize); err != nil {
			return rec, nil, err
		}
	}
	if p.settled && p.eagle.Load() != rec.Eagle {
		return rec, nil, eagleMismatch(p.key, !rec.Eagle)
	}
	return rec, p, nil
}

func checkLifecycle(l Lifecycle) error {
	all := []Lifecycle{Incomplete, Ready, Draining, Ejected}
	if slices.Contains(all, l) {
		return nil
	}
	return &fleet.FieldError{Field: "lifecycle", Value: string(l), Allowed: "incomplete, ready, draining, ejected"}
}

// applyAll publishes every plan while holding all locks, so that nobody sees a
// worker in two partitions or in none.
func applyAll(plans map[fleet.PartitionKey]*plan) []load.Owner {
	keys := slices.SortedFunc(maps.Keys(plans), compareKeys)
	for _, k := range keys {
		plans[k].partition.mu.Lock()
	}
	var owners []load.Owner
	for _, k := range keys {
		pl := plans[k]
		if len(pl.upserts) > 0 {
			pl.partition.settled = true
			pl.partition.eagle.Store(pl.eagle)
		}
		d := pl.partition.apply(pl.upserts, pl.removals)
		owners, pl.gone = append(owners, d.owners...), d.ranks
		pl.partition.emptiedAt = time.Now() // counts only where it is empty
	}
	for _, k := range keys {
		plans[k].partition.mu.Unlock()
	}
	return owners
}

// withdraw tells the owners of dropped bookings, outside all locks.
func withdraw(owners []load.Owner) {
	for _, o := range owners {
		o.Withdraw()
	}
}

var _ load.Owner = (*booking)(nil)
