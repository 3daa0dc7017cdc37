package load_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/load"
)

// model counts from nothing what a tracker keeps as sums: each block by its
// prefix, each prefill by its place in the backlog.
type model struct {
	tr        *load.Tracker
	estimator load.Estimator
	now       time.Time
	slots     []load.Slot
	ranks     map[load.Slot]*modelRank
	held      []*modelBooking // in order of booking
	ended     []*load.Booking
	script    []string
}

type modelRank struct {
	anchor          time.Time
	last            time.Time
	seconds, tokens float64
	prefills        []*modelBooking // all that were ever booked, in that order
	parts           map[string]int  // millionths, by prefix; 1,000,000 unless decayed
}

type modelBooking struct {
	*load.Booking
	owner    *owner
	slot     load.Slot
	letters  string
	own      []int // millionths of each
	tokens   int64 // 0 once complete
	expected time.Duration
	booked   time.Time
	ahead    []*modelBooking // active prefills when it was booked
	over     bool            // its first token came, or that of one booked later
}

func (m *model) drawStep(rng *rand.Rand) {
	m.now = m.now.Add(time.Duration(rng.IntN(700)) * time.Millisecond)
	if len(m.held) == 0 || rng.IntN(5) < 2 {
		m.book(rng)
		return
	}
	b := m.held[rng.IntN(len(m.held))]
	switch n := rng.IntN(10); {
	case n < 2:
		m.note("prefill %s", b.letters)
		m.prefill(b)
	case n < 4:
		k := rng.IntN(4)
		m.note("output %s %d", b.letters, k)
		m.tr.AddBlocks(b.Booking, int64(k))
		b.own = append(b.own, slices.Repeat([]int{1_000_000}, k)...)
	case n < 6:
		f := []float64{0, 0.5, 1, 1 / 3.0, rng.Float64()}[rng.IntN(5)]
		m.note("decay %s %v", b.letters, f)
		m.decay(b, f)
	case n < 7:
		m.remove(b.slot)
	default:
		m.note("release %s", b.letters)
		if !m.tr.Release(b.Booking, m.now) {
			panic("not released")
		}
		m.drop(b)
	}
}

func (m *model) note(format string, args ...any) {
	m.script = append(m.script, m.now.Sub(start).String()+" "+fmt.Sprintf(format, args...))
}

func (m *model) book(rng *rand.Rand) {
	letters := make([]byte, rng.IntN(12))
	for i := range letters {
		letters[i] = "AAAB"[rng.IntN(4)]
	}
	s := m.slots[rng.IntN(len(m.slots))]
	r := m.ranks[s]
	b := &modelBooking{
		Booking: &load.Booking{}, owner: &owner{}, slot: s, letters: string(letters),
		tokens: int64(rng.IntN(4)) * int64(rng.IntN(1000)), own: slices.Repeat([]int{1_000_000}, rng.IntN(2)), booked: m.now,
	}
	m.note("book %d %s %d own %d", s, b.letters, b.tokens, len(b.own))
	if b.tokens > 0 {
		b.ahead = m.backlog(s)
		r.prefills = append(r.prefills, b)
		switch {
		case m.estimator.Kind == load.EstimateRate:
			b.expected = time.Duration(float64(b.tokens) / m.estimator.TokensPerSecond * float64(time.Second))
		case m.estimator.Kind == load.EstimateLearned && r.tokens > 0:
			b.expected = max(time.Duration(float64(b.tokens)*(r.seconds/r.tokens)*float64(time.Second)), 1)
		}
		if len(m.backlog(s)) == 0 {
			r.anchor = m.now
		}
	}
	active := make([]float64, m.tr.Len())
	m.tr.Active(chain(b.letters), active)
	before := loadAt(m.tr, s, m.now).DecodeBlocks
	m.tr.Book(b.Booking, s, load.Demand{PrefillTokens: b.tokens, Blocks: chain(b.letters), OwnBlocks: int64(len(b.own))}, b.owner, m.now)
	after := loadAt(m.tr, s, m.now).DecodeBlocks
	if want := before + float64(len(letters)+len(b.own)) - active[s]; math.Abs(after-want) > 1e-9 {
		panic(fmt.Sprintf("%v blocks after the booking; foretold %v; script:\n%s", after, want, strings.Join(m.script, "\n")))
	}
	for i := range letters {
		r.parts[b.letters[:i+1]] = 1_000_000
	}
	m.held = append(m.held, b)
}

// backlog is the active prefills of a slot, oldest first.
func (m *model) backlog(s load.Slot) []*modelBooking {
	var out []*modelBooking
	for _, b := range m.held {
		if b.slot == s && b.tokens > 0 {
			out = append(out, b)
		}
	}
	return out
}

func (m *model) prefill(b *modelBooking) {
	if done := m.tr.PrefillComplete(b.Booking, m.now); done != (b.tokens > 0) {
		panic("prefill complete twice, or never")
	}
	if b.tokens == 0 {
		return
	}
	r := m.ranks[b.slot]
	from := b.booked
	if r.last.After(from) {
		from = r.last
	}
	r.last = m.now
	took, n := m.now.Sub(from).Seconds(), float64(b.tokens)
	teaches := !b.over && !slices.ContainsFunc(b.ahead, func(o *modelBooking) bool { return !o.over })
	for _, o := range r.prefills[:slices.Index(r.prefills, b)+1] {
		o.over = true
	}
	if !teaches {
		m.unprefill(b)
		return
	}
	if r.tokens == 0 {
		r.seconds, r.tokens = took, n
	} else {
		r.seconds, r.tokens = 0.8*r.seconds+0.2*took, 0.8*r.tokens+0.2*n
	}
	m.unprefill(b)
}

// unprefill takes a booking out of the backlog.
func (m *model) unprefill(b *modelBooking) {
	if b.tokens == 0 {
		return
	}
	r := m.ranks[b.slot]
	r.anchor = r.anchor.Add(b.expected)
	if r.anchor.After(m.now) || m.backlog(b.slot)[0] == b {
		r.anchor = m.now
	}
	b.tokens = 0
}

func (m *model) decay(b *modelBooking, f float64) {
	if !m.tr.Decay(b.Booking, f) {
		panic("not decayed")
	}
	w := int(math.Round(f * 1e6))
	for i := range b.own {
		b.own[i] = w
	}
	for i := range b.letters {
		if prefix := b.letters[:i+1]; m.holders(b.slot, prefix) == 1 {
			m.ranks[b.slot].parts[prefix] = w
		}
	}
}

func (m *model) holders(s load.Slot, prefix string) (n int) {
	for _, b := range m.held {
		if b.slot == s && strings.HasPrefix(b.letters, prefix) {
			n++
		}
	}
	return n
}

func (m *model) drop(b *modelBooking) {
	m.unprefill(b)
	m.held = slices.DeleteFunc(m.held, func(o *modelBooking) bool { return o == b })
	for i := range b.letters {
		if prefix := b.letters[:i+1]; m.holders(b.slot, prefix) == 0 {
			delete(m.ranks[b.slot].parts, prefix)
		}
	}
	m.ended = append(m.ended, b.Booking)
}

// remove gives a slot up and takes a new one, which is the same.
func (m *model) remove(s load.Slot) {
	m.note("remove %d", s)
	owners := m.tr.Remove(s, nil, m.now)
	n := len(m.held)
	m.held = slices.DeleteFunc(m.held, func(b *modelBooking) bool {
		if b.slot != s {
			return false
		}
		if !slices.Contains(owners, load.Owner(b.owner)) {
			panic("owner not named")
		}
		m.ended = append(m.ended, b.Booking)
		return true
	})
	if len(owners) != n-len(m.held) || m.tr.Add() != s {
		panic("other owners, or another slot")
	}
	m.ranks[s] = &modelRank{parts: map[string]int{}}
}

// want is the load of a slot at now.
func (m *model) want(s load.Slot, now time.Time) load.Load {
	var l load.Load
	parts := 0
	for _, p := range m.ranks[s].parts {
		parts += p
	}
	for _, b := range m.held {
		if b.slot != s {
			continue
		}
		l.ActiveRequests++
		for _, p := range b.own {
			parts += p
		}
	}
	l.DecodeBlocks = float64(parts) / 1e6
	spent, unknown := now.Sub(m.ranks[s].anchor), false
	for _, b := range m.backlog(s) {
		if unknown = unknown || b.expected == 0; unknown {
			l.PrefillTokens += b.tokens
			continue
		}
		on := min(spent, b.expected)
		spent -= on
		left := new(big.Int).Mul(big.NewInt(b.tokens), big.NewInt(int64(b.expected-on)))
		left.Add(left, big.NewInt(int64(b.expected-1)))
		l.PrefillTokens += left.Div(left, big.NewInt(int64(b.expected))).Int64() // rounded up
	}
	return l
}

func (m *model) check(t *testing.T) {
	t.Helper()
	for _, s := range m.slots {
		for _, now := range []time.Time{m.now, m.now.Add(137 * time.Millisecond), m.now.Add(time.Hour)} {
			want, got := m.want(s, now), loadAt(m.tr, s, now)
			if m.estimator.Kind == load.EstimateLearned && math.Abs(float64(want.PrefillTokens-got.PrefillTokens)) <= 1 {
				want.PrefillTokens = got.PrefillTokens // the averages are rounded otherwise
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("slot %d, %s later (-want +got):\n%s\nscript:\n%s", s, now.Sub(m.now), diff, strings.Join(m.script, "\n"))
			}
		}
	}
	if len(m.held) != m.tr.Live() {
		t.Fatalf("%d live; want %d", m.tr.Live(), len(m.held))
	}
}

func loadAt(t *load.Tracker, s load.Slot, now time.Time) load.Load {
	l, _ := t.Load(s, now)
	return l
}

// TestRandomBookingsEqualAPlainCount runs random steps on three ranks against
// the model, over deep trees with many splits and slots that are used again.
// Late steps of ended bookings change nothing, and nothing is left at the end.
func TestRandomBookingsEqualAPlainCount(t *testing.T) {
	for _, e := range []load.Estimator{{}, {Kind: load.EstimateRate, TokensPerSecond: 777}, {Kind: load.EstimateLearned}} {
		t.Run("estimator "+string(e.Kind), func(t *testing.T) {
			for seed := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed, 1))
				m := &model{tr: load.NewTracker(e), estimator: e, now: start, ranks: map[load.Slot]*modelRank{}}
				for range 3 {
					s := m.tr.Add()
					m.slots, m.ranks[s] = append(m.slots, s), &modelRank{parts: map[string]int{}}
				}
				for range 80 {
					m.drawStep(rng)
					for _, b := range m.ended {
						if m.tr.PrefillComplete(b, m.now) || m.tr.AddBlocks(b, 1) || m.tr.Decay(b, 0.5) || m.tr.Release(b, m.now) {
							t.Fatalf("seed %d: an ended booking still counts", seed)
						}
					}
					m.check(t)
				}
				for _, b := range slices.Clone(m.held) {
					m.tr.Release(b.Booking, m.now)
					m.drop(b)
				}
				m.check(t)
				for _, s := range m.slots {
					if diff := cmp.Diff(load.Load{}, loadAt(m.tr, s, m.now)); diff != "" {
						t.Fatalf("seed %d: left at the end (-want +got):\n%s", seed, diff)
					}
				}
			}
		})
	}
}
