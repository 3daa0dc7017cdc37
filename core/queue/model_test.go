package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/queue"
)

// plain is the queue as a list of entries that is sorted for each question.
type plain struct {
	cfg     queue.Config
	deficit map[string]int64
	turn    int
	entries []*entry
	pushed  int
}

type entry struct {
	w      *queue.Waiter
	class  string
	held   bool
	pushed int
}

func (p *plain) class(name string) *queue.Class {
	find := func(name string) int {
		return slices.IndexFunc(p.cfg.Classes, func(c queue.Class) bool { return c.Name == name })
	}
	i := find(name)
	if i < 0 {
		i = find("default")
	}
	return &p.cfg.Classes[i]
}

func (p *plain) configure(cfg queue.Config) {
	p.cfg, p.turn = cfg, 0
	for _, e := range p.entries {
		e.class = p.class(e.class).Name
	}
	for name := range p.deficit {
		if p.class(name).Name != name {
			delete(p.deficit, name)
		}
	}
}

func (p *plain) add(w *queue.Waiter, workers int64, held bool) string {
	cl := p.class(w.Class)
	var requests, tokens, cached int64
	for _, e := range p.entries {
		if e.class == cl.Name {
			requests, tokens, cached = requests+1, tokens+e.w.Tokens, cached+e.w.Cached
		}
	}
	switch l := cl.Limits; {
	case l.Requests >= 0 && requests >= l.Requests*workers:
		return "requests"
	case l.Tokens >= 0 && tokens >= l.Tokens*workers:
		return "tokens"
	case l.CachedTokens >= 0 && cached >= l.CachedTokens*workers:
		return "cached_tokens"
	}
	p.pushed++
	p.entries = append(p.entries, &entry{w, cl.Name, held, p.pushed})
	return ""
}

func (p *plain) remove(w *queue.Waiter) bool {
	i := slices.IndexFunc(p.entries, func(e *entry) bool { return e.w == w })
	if i < 0 {
		return false
	}
	name := p.entries[i].class
	p.entries = slices.Delete(p.entries, i, i+1)
	if !slices.ContainsFunc(p.entries, func(e *entry) bool { return e.class == name && !e.held }) {
		delete(p.deficit, name)
	}
	return true
}

// first is the first head of a lane of a class that may go.
func (p *plain) first(cl *queue.Class, may func(*queue.Waiter) bool) *queue.Waiter {
	var line []*entry
	for _, e := range p.entries {
		if e.class == cl.Name && !e.held {
			line = append(line, e)
		}
	}
	slices.SortFunc(line, func(a, b *entry) int {
		due := func(e *entry) time.Time {
			if e.w.Due.IsZero() {
				return start.Add(1000 * time.Hour)
			}
			return e.w.Due
		}
		key := func(e *entry) float64 {
			if cl.Order == queue.WSPT {
				return -(1 + e.w.Jump.Seconds()) / float64(max(1, e.w.Tokens-e.w.Cached))
			}
			return e.w.Arrival.Sub(start).Seconds() - e.w.Jump.Seconds()
		}
		return cmp.Or(-cmp.Compare(a.w.Priority, b.w.Priority), due(a).Compare(due(b)), cmp.Compare(key(a), key(b)),
			a.w.Arrival.Compare(b.w.Arrival), cmp.Compare(a.pushed, b.pushed))
	})
	seen := map[string]bool{}
	for _, e := range line {
		if !seen[e.w.Lane] && may(e.w) {
			return e.w
		}
		seen[e.w.Lane] = true
	}
	return nil
}

func (p *plain) next(may func(*queue.Waiter) bool) *queue.Waiter {
	firsts := make([]*queue.Waiter, len(p.cfg.Classes))
	none := true
	for i := range p.cfg.Classes {
		firsts[i] = p.first(&p.cfg.Classes[i], may)
		none = none && firsts[i] == nil
	}
	for !none {
		for i := range firsts {
			at := (p.turn + i) % len(firsts)
			cl, w := &p.cfg.Classes[at], firsts[at]
			if w != nil && p.deficit[cl.Name] >= max(1, w.Tokens) {
				p.deficit[cl.Name] -= max(1, w.Tokens)
				p.turn = (at + 1) % len(firsts)
				p.remove(w)
				return w
			}
		}
		for i, w := range firsts {
			if w != nil {
				p.deficit[p.cfg.Classes[i].Name] += int64(p.cfg.Classes[i].Weight)
			}
		}
	}
	return nil
}

func (p *plain) waiting() map[string][2]int64 {
	all := map[string][2]int64{}
	for _, e := range p.entries {
		n := all[e.class]
		all[e.class] = [2]int64{n[0] + 1, n[1] + e.w.Tokens}
	}
	return all
}

func (p *plain) backlog(class, lane string) bool {
	name := p.class(class).Name
	return slices.ContainsFunc(p.entries, func(e *entry) bool { return e.class == name && e.w.Lane == lane && !e.held })
}

// pair runs both and writes down what it does.
type pair struct {
	*rand.Rand
	q      *queue.Queue
	p      *plain
	ws     []*queue.Waiter
	script strings.Builder
}

func (r *pair) config() queue.Config {
	var cfg queue.Config
	for _, name := range []string{"b", "default", "c"} {
		if name != "default" && r.IntN(3) == 0 {
			continue
		}
		cl := class(name, 1+r.IntN(5), []queue.Order{queue.FCFS, queue.WSPT}[r.IntN(2)])
		for _, l := range []*int64{&cl.Limits.Requests, &cl.Limits.Tokens, &cl.Limits.CachedTokens} {
			if r.IntN(3) == 0 {
				*l = int64(r.IntN(12))
			}
		}
		cfg.Classes = append(cfg.Classes, cl)
	}
	return cfg
}

func (r *pair) waiter() *queue.Waiter {
	tokens := int64(r.IntN(30))
	w := &queue.Waiter{
		Class: []string{"", "b", "c", "default", "d"}[r.IntN(5)], Lane: []string{"", "", "w1", "w2", "w3"}[r.IntN(5)],
		Priority: max(0, r.IntN(6)-3), Jump: time.Duration(r.IntN(3)) * time.Second, Arrival: at(float64(r.IntN(20))),
		Tokens: tokens, Cached: tokens * int64(r.IntN(3)) / 2, Owner: fmt.Sprint("r", len(r.ws)),
	}
	if r.IntN(4) == 0 {
		w.Due = at(float64(r.IntN(3)))
	}
	r.ws = append(r.ws, w)
	return w
}

func (r *pair) step(t *testing.T) {
	name := func(w *queue.Waiter) string {
		if w == nil {
			return "none"
		}
		return w.Owner.(string)
	}
	var got, want string
	var what string
	switch op := r.IntN(20); {
	case op < 9:
		w, workers, held := r.waiter(), r.IntN(4), op < 3
		what = fmt.Sprintf("add %+v, %d workers, held %v", *w, workers, held)
		add := r.q.Push
		if held {
			add = r.q.Hold
		}
		if full, ok := errors.AsType[*queue.FullError](add(w, workers)); ok {
			got = full.Kind
		}
		want = r.p.add(w, int64(max(1, workers)), held)
	case op < 11 && len(r.ws) > 0:
		w := r.ws[r.IntN(len(r.ws))]
		what = "remove " + name(w)
		got, want = fmt.Sprint(r.q.Remove(w)), fmt.Sprint(r.p.remove(w))
	case op < 14 && len(r.p.entries) > 0:
		e := r.p.entries[r.IntN(len(r.p.entries))]
		what = "enter " + name(e.w)
		r.q.Enter(e.w)
		e.held = false
	case op == 14 && r.IntN(4) == 0:
		cfg := r.config()
		what = fmt.Sprintf("configure %+v", cfg)
		r.q.Configure(cfg)
		r.p.configure(cfg)
	default:
		blocked := r.IntN(16)
		may := func(w *queue.Waiter) bool {
			return blocked&(1<<slices.Index([]string{"", "w1", "w2", "w3"}, w.Lane)) == 0
		}
		what = fmt.Sprintf("next, blocked %04b", blocked)
		got, want = name(r.q.Next(may)), name(r.p.next(may))
	}
	fmt.Fprintf(&r.script, "%s -> %s\n", what, want)
	if got != want {
		t.Fatalf("got %s; want %s after\n%s", got, want, &r.script)
	}
}

// TestRandomStepsEqualASortedList compares each answer with that of a list that
// is sorted for it, whose round robin adds one round at a time.
func TestRandomStepsEqualASortedList(t *testing.T) {
	for seed := range uint64(100) {
		r := &pair{Rand: rand.New(rand.NewPCG(seed, 1))}
		cfg := r.config()
		r.q, r.p = fresh(t, cfg), &plain{cfg: cfg, deficit: map[string]int64{}}
		fmt.Fprintf(&r.script, "seed %d: %+v\n", seed, cfg)
		for range 150 {
			r.step(t)
			if diff := gocmp.Diff(r.p.waiting(), waiting(r.q)); diff != "" || r.q.Len() != len(r.p.entries) {
				t.Fatalf("%d wait (-want +got):\n%s\nafter\n%s", r.q.Len(), diff, &r.script)
			}
			for _, class := range []string{"", "b", "c"} {
				for _, lane := range []string{"", "w1", "w2", "w3"} {
					if got, want := r.q.Backlog(class, lane), r.p.backlog(class, lane); got != want {
						t.Fatalf("backlog of %q %q: %v; want %v after\n%s", class, lane, got, want, &r.script)
					}
				}
			}
		}
		for len(r.p.entries) > 0 {
			r.q.Remove(r.p.entries[0].w)
			r.p.remove(r.p.entries[0].w)
		}
		if got := waiting(r.q); r.q.Len() != 0 || len(got) != 0 || r.q.Next(anybody) != nil {
			t.Fatalf("seed %d: left %v", seed, got)
		}
	}
}
