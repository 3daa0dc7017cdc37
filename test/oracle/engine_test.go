//go:build oracle

package oracle_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// engineHash is what the engine of a rank calls a prefix.
func (f *fleet) engineHash(k rankKey, name uint64) uint64 {
	if !f.salted {
		return name | 1
	}
	return (name ^ (k.worker<<8+uint64(k.rank))*0x9e3779b97f4a7c15) | 1
}

// engines lets some ranks publish events, and waits until both services have
// taken in all of them.
func (f *fleet) engines(ctx context.Context) error {
	for _, w := range f.workers {
		if !w.ready {
			continue
		}
		for _, p := range w.ranks {
			for range f.rng.IntN(4) {
				if err := f.publish(rankKey{w.id, p.rank}, p); err != nil {
					return err
				}
			}
		}
	}
	return f.settled(ctx)
}

// publish sends one random event of one rank and does the same to the model.
func (f *fleet) publish(k rankKey, p *publisher) error {
	family := f.families[f.rng.IntN(len(f.families))]
	names := prefixes(family, f.block, "")
	switch n := f.rng.IntN(100); {
	case n < 25 && f.outside:
		f.external = true

		return f.store(k, p, family, names, "EXTERNAL", f.held.depth(k, names, 3))
	case n < 45 && f.shuffled && f.held.depth(k, names, 1) < f.held.depth(k, names, 2):
		f.fronted = true
		return f.store(k, p, family, names, "GPU", f.held.depth(k, names, 2))
	case n < 45 && f.shuffled:
		return f.store(k, p, family, names, "CPU", f.held.depth(k, names, 1))
	case n < 60:
		return f.store(k, p, family, names, "GPU", 0)
	case n < 70:
		return f.store(k, p, family, names, "CPU", f.held.depth(k, names, 1))
	case n < 75:
		return f.store(k, p, family, names, "DISK", f.held.depth(k, names, 2))
	case n < 95:
		return f.evict(k, p, names)
	default:
		for _, tier := range allTiers {
			clear(f.held.at(k, tier))
		}
		return p.send(event{kind: "AllBlocksCleared"})
	}
}

// store announces blocks from `from` on that the tier does not hold yet, in one
// batch of one or two events.
func (f *fleet) store(k rankKey, p *publisher, family []uint32, names []uint64, tier string, from int) error {
	have := f.held.at(k, tier)
	for from < len(names) && have[names[from]] {
		from++
	}
	if from == len(names) {
		return nil
	}
	to := from + 1 + f.rng.IntN(len(names)-from)
	for i := from; i < to; i++ {
		if have[names[i]] {
			to = i // what lies behind a hole is there already
		}
	}
	var events []event
	for at := from; at < to; {
		end := at + 1 + f.rng.IntN(to-at)
		e := event{kind: "BlockStored", tokens: family[at*f.block : end*f.block], block: f.block, tier: tier}
		if at > 0 {
			e.parent = f.engineHash(k, names[at-1])
		}
		for _, name := range names[at:end] {
			e.hashes = append(e.hashes, f.engineHash(k, name))
		}
		events, at = append(events, e), end
	}
	for _, name := range names[from:to] {
		have[name] = true
	}
	return p.send(events...)
}

// evict removes blocks of one tier: as a rule from the end, seldom from the middle.
func (f *fleet) evict(k rankKey, p *publisher, names []uint64) error {
	among := tiers
	if f.outside {
		among = allTiers
	}
	tier := among[f.rng.IntN(len(among))]
	have := f.held.at(k, tier)
	var there []uint64
	for _, name := range names {
		if have[name] {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return nil
	}
	gone := there[f.rng.IntN(len(there)):]
	if f.chance(8) && len(gone) > 1 {
		f.holed = true
		gone = gone[:1]
	}
	e := event{kind: "BlockRemoved", tier: tier}
	for _, name := range slices.Backward(gone) {
		delete(have, name)
		e.hashes = append(e.hashes, f.engineHash(k, name))
	}
	return p.send(e)
}

// settled sends every rank three blocks that nobody has had yet, one on each tier,
// and waits until both services have them: then they have all that was sent before,
// for a service may take in each tier on its own.
func (f *fleet) settled(ctx context.Context) error {
	f.round++
	mark := make([]uint32, f.block*len(tiers))
	for i := range mark {
		mark[i] = 1_000_000 + f.round
	}
	names := prefixes(mark, f.block, "")
	want := 0
	for _, w := range f.workers {
		if !w.ready {
			continue
		}
		for _, p := range w.ranks {
			k := rankKey{w.id, p.rank}
			for i, tier := range tiers {
				e := event{kind: "BlockStored", hashes: []uint64{names[i] | 1}, tokens: mark[:f.block], block: f.block, tier: tier}
				if i > 0 {
					e.parent = names[i-1] | 1
				}
				if err := p.send(e); err != nil {
					return err
				}
				f.held.at(k, tier)[names[i]] = true
			}
			want++
		}
	}
	body := f.lookup(mark)
	for _, s := range []*service{f.theirs, f.ours} {
		if err := f.await(ctx, s, body, want); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) await(ctx context.Context, s *service, body any, want int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(10 * time.Second); ; {
		a, err := s.call(ctx, http.MethodPost, "/overlap_scores", body)
		if err != nil {
			return err
		}
		got := 0
		if m, ok := a.body.(map[string]any); ok {
			list, _ := m["workers"].([]any)
			for _, r := range list {
				if number(r, "device_blocks") == 1 && number(r, "host_pinned_blocks") == 2 && number(r, "disk_blocks") == 3 {
					got++
				}
			}
		}
		if got >= want {
			return nil
		}
		select {
		case <-limit:
			return fmt.Errorf("fleet %d: %s has the events of %d of %d ranks after 10 s: %d %s", f.number, s.name, got, want, a.status, cut(a.text))
		case <-tick.C:
		}
	}
}
