package core

import (
	"math"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Why are partitions forgotten?
//
// The names of models come from engines and from the callers of the admin API: what is
// kept for each of them would grow without bound. But a model with one worker has none
// while that restarts, and its callers are to learn that they may come again. So a
// partition without workers stays for a while.

// Forgetter is what keeps something for each partition. A SelectionPolicySource, a
// KvIndexSource and a Telemetry may be one. Safe for concurrent use.
type Forgetter interface {
	// Forget gives up what is kept for a partition, in which nobody has decided for a
	// while. It is called under no lock, and returns before the same key can be
	// prepared again.
	Forget(key fleet.PartitionKey)
}

const (
	// preparedFor is how long after a Prepare a Commit surely finds the partition.
	preparedFor = 2 * time.Second
	// forgotten is what a forgotten partition counts of attempts: far below 0.
	forgotten = math.MinInt64 / 2
)

// forgettersOf are those of some parts that keep something for each partition.
func forgettersOf(parts ...any) (out []Forgetter) {
	for _, p := range parts {
		if f, ok := p.(Forgetter); ok {
			out = append(out, f)
		}
	}
	return out
}

// Forget forgets the partitions that have had no worker for at least so long, above 0,
// in which no request is under way, and that keep does not hold. Then their models are
// not known, as if they had never been there: index, sessions, selections that wait for
// a booking and what Forgetters keep are gone. A worker that comes later gets a new
// partition. Keep is asked under no lock, of few. Call it now and then; it returns what
// it forgot, by key.
func (c *SelectionCore) Forget(now time.Time, after time.Duration, keep func(fleet.PartitionKey) bool) []fleet.PartitionKey {
	due := slices.DeleteFunc(c.deserted(now, after), func(p *Partition) bool { return keep(p.key) })
	if len(due) == 0 {
		return nil
	}
	keys, done := c.takeOut(due, now, after)
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, compareKeys)
	c.pending.DiscardAll(keys)
	for _, key := range keys {
		for _, f := range c.forgetters {
			f.Forget(key)
		}
		c.log.Info("partition forgotten: it has had no worker for a while", "partition", key.String())
	}
	c.members.Lock()
	for _, key := range keys {
		delete(c.preparing, key)
	}
	c.members.Unlock()
	close(done)
	return keys
}

// deserted are the partitions, prepared ones too, that have had no worker for so long.
func (c *SelectionCore) deserted(now time.Time, after time.Duration) []*Partition {
	c.members.Lock()
	defer c.members.Unlock()
	return slices.DeleteFunc(c.allPartitions(), func(p *Partition) bool { return !p.deserted(now, after) })
}

// deserted tells whether the partition has had no worker for so long and nobody is about
// to bring one. The core's members must be held.
func (p *Partition) deserted(now time.Time, after time.Duration) bool {
	return len(p.view.Load().members) == 0 && now.Sub(p.emptiedAt) >= after && now.Sub(p.preparedAt) >= preparedFor
}

// takeOut takes those of some partitions out of the directory that are deserted still and
// in which no request is under way. Their keys cannot be prepared until done is closed
// and they are no longer among those that are being prepared.
func (c *SelectionCore) takeOut(due []*Partition, now time.Time, after time.Duration) (keys []fleet.PartitionKey, done chan struct{}) {
	done = make(chan struct{})
	c.members.Lock()
	defer c.members.Unlock()
	dir := c.directory.Load().clone()
	for _, p := range due {
		if c.known(p.key) != p || c.preparing[p.key] != nil || !p.deserted(now, after) || !p.attempting.CompareAndSwap(0, forgotten) {
			continue
		}
		delete(dir.partitions, p.key)
		delete(c.prepared, p.key)
		c.preparing[p.key] = done
		keys = append(keys, p.key)
	}
	if len(keys) > 0 {
		dir.indexAdapters(nil)
		c.directory.Store(dir)
	}
	return keys, done
}

// enter finds the partition of a request and takes an attempt there: as long as there is
// one the partition is not forgotten. The caller gives it back.
func (c *SelectionCore) enter(key fleet.PartitionKey) (*Partition, *attempt, error) {
	p := c.directory.Load().partitions[key]
	for p != nil {
		if a := p.take(); a != nil {
			return p, a, nil
		}
		p = c.partition(key) // it was being forgotten: that is over, and there may be another
	}
	return nil, nil, noModel(key)
}

// partition finds a partition once no change of members is under way.
func (c *SelectionCore) partition(key fleet.PartitionKey) *Partition {
	c.members.Lock()
	defer c.members.Unlock()
	return c.directory.Load().partitions[key]
}
