package load_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
)

// prefills drives one slot by seconds after start.
type prefills struct {
	tracker *load.Tracker
	slot    load.Slot
	booked  map[string]*load.Booking
}

func newPrefills(e load.Estimator) *prefills {
	t := load.NewTracker(e)
	return &prefills{tracker: t, slot: t.Add(), booked: map[string]*load.Booking{}}
}

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func (p *prefills) book(seconds float64, name string, tokens int64) {
	b := &load.Booking{}
	p.tracker.Book(b, p.slot, load.Demand{PrefillTokens: tokens}, &owner{}, at(seconds))
	p.booked[name] = b
}

func (p *prefills) first(seconds float64, name string) {
	p.tracker.PrefillComplete(p.booked[name], at(seconds))
}

func (p *prefills) release(seconds float64, name string) {
	p.tracker.Release(p.booked[name], at(seconds))
}

func (p *prefills) left(seconds float64) int64 {
	l, _ := p.tracker.Load(p.slot, at(seconds))
	return l.PrefillTokens
}

// check compares what is left at some seconds.
func (p *prefills) check(t *testing.T, want map[float64]int64) {
	t.Helper()
	got := map[float64]int64{}
	for s := range want {
		got[s] = p.left(s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tokens left by seconds (-want +got):\n%s", diff)
	}
}

func thousand() *prefills {
	return newPrefills(load.Estimator{Kind: load.EstimateRate, TokensPerSecond: 1000})
}

func TestWithoutAnEstimatorNothingDecays(t *testing.T) {
	for _, e := range []load.Estimator{{}, {Kind: load.EstimateNone}, {Kind: "nobody knows"}} {
		p := newPrefills(e)
		p.book(0, "a", 100)
		p.first(1, "a")
		p.book(1, "b", 50)
		p.check(t, map[float64]int64{1: 50, 3600: 50})
	}
}

func TestTimeIsSpentOnTheWholeBacklog(t *testing.T) {
	p := thousand()
	p.book(0, "a", 1000)
	p.book(0.2, "b", 500)
	p.check(t, map[float64]int64{-1: 1500, 0: 1500, 0.2: 1300, 1: 500, 1.2: 300, 1.4995: 1, 1.5: 0, 9: 0})
}

func TestWhatIsLeftIsRoundedUp(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateRate, TokensPerSecond: 1})
	p.book(0, "a", 3)
	p.check(t, map[float64]int64{0.001: 3, 0.999: 3, 1: 2, 1.5: 2, 2.999: 1, 3: 0})
}

func TestTheNextTurnBeginsWhenTheOldestGoes(t *testing.T) {
	for _, end := range []func(*prefills, float64, string){(*prefills).first, (*prefills).release} {
		early := thousand()
		early.book(0, "a", 1000)
		early.book(0, "b", 500)
		end(early, 0.6, "a")
		early.check(t, map[float64]int64{0.6: 500, 0.8: 300, 1.1: 0})

		late := thousand()
		late.book(0, "a", 1000)
		late.book(0, "b", 500)
		end(late, 1.5, "a") // the model had both done by then
		late.check(t, map[float64]int64{1.5: 500, 1.75: 250, 2: 0})
	}
}

func TestTheAnchorMovesByThePrefillThatWentBefore(t *testing.T) {
	p := thousand()
	p.book(0, "a", 1000)
	p.book(0, "b", 500)
	p.first(1.2, "b") // 0.5 s of the 1.2 were spent on it
	p.check(t, map[float64]int64{1.2: 300, 1.3: 200, 1.5: 0})
}

func TestTheAnchorDoesNotMovePastNow(t *testing.T) {
	p := thousand()
	p.book(0, "a", 1000)
	p.book(0, "b", 500)
	p.release(0.3, "b")
	p.check(t, map[float64]int64{0.3: 1000, 0.4: 900, 1.3: 0})
}

func TestAnEmptyBacklogHasNoAnchor(t *testing.T) {
	p := thousand()
	p.book(0, "a", 1000)
	p.first(0.1, "a")
	p.book(5, "b", 1000)
	p.check(t, map[float64]int64{5: 1000, 5.5: 500})
}

func TestEarlierTimesAreHarmless(t *testing.T) {
	p := thousand()
	p.book(1, "a", 1000)
	p.book(0.5, "b", 1000)
	p.first(0.2, "b")
	p.check(t, map[float64]int64{0: 1000, 1: 1000, 1.5: 500})
	p.release(0, "a")
	p.check(t, map[float64]int64{0: 0, 9: 0})
}

// TestLearnedIsTheRatioOfTwoMovingAverages has these samples: 100 tokens in 1 s;
// 400 in 2 s: averages 1.2 s and 160 tokens, 7.5 ms a token; then 60 in 0.7 s:
// 1.1 s and 140 tokens.
func TestLearnedIsTheRatioOfTwoMovingAverages(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
	p.book(0, "a", 100)
	p.check(t, map[float64]int64{0: 100, 60: 100}) // nothing is known yet
	p.first(1, "a")

	p.book(1, "b", 400)
	p.check(t, map[float64]int64{2: 300, 5: 0}) // 10 ms a token
	p.first(3, "b")

	p.book(3, "c", 400)
	p.check(t, map[float64]int64{4.5: 200, 6: 0})
	p.release(3.5, "c") // cancelled: nobody learns from that

	p.book(4, "d", 60)
	p.first(4.7, "d")
	p.book(5, "e", 280)
	p.check(t, map[float64]int64{5: 280, 6.1: 140, 7.2: 0})
}

// TestAFirstTokenDoesNotCountTheWaitForOthers has two prompts at once, one after
// the other in the engine: 1 s each, not 1 s and 2 s.
func TestAFirstTokenDoesNotCountTheWaitForOthers(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
	p.book(0, "a", 100)
	p.book(0, "b", 100)
	p.first(1, "a")
	p.first(2, "b")
	p.book(3, "c", 100)
	p.check(t, map[float64]int64{3.5: 50, 4: 0})
}

// TestWhatWasBookedBeforeAnythingWasLearnedDoesNotDecay has an unmodelled oldest
// prefill before a modelled one.
func TestWhatWasBookedBeforeAnythingWasLearnedDoesNotDecay(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
	p.book(0, "a", 100)
	p.book(0, "b", 400)
	p.first(1, "a")
	p.book(1, "c", 200)
	p.check(t, map[float64]int64{1: 600, 60: 600})
	p.first(3, "b")
	p.check(t, map[float64]int64{3: 200, 4: 100, 5: 0}) // 10 ms a token, as when it was booked
}

func TestLearningIsARanksOwn(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
	p.book(0, "a", 100)
	p.first(1, "a")
	first := p.slot
	p.slot = p.tracker.Add()
	p.book(1, "b", 100)
	p.check(t, map[float64]int64{9: 100})
	p.slot = first
	p.tracker.Remove(first, nil, at(9))
	if again := p.tracker.Add(); again != first {
		t.Fatalf("got slot %d; want %d", again, first)
	}
	p.book(9, "c", 100)
	p.check(t, map[float64]int64{19: 100})
}

func TestAnEndlessPrefillIsExpectedToEnd(t *testing.T) {
	p := newPrefills(load.Estimator{Kind: load.EstimateRate, TokensPerSecond: math.SmallestNonzeroFloat64})
	p.book(0, "a", math.MaxInt64)
	p.book(0, "b", -5)
	p.check(t, map[float64]int64{0: 1 << 40, 12 * 3600: 1 << 39, 24 * 3600: 0})
	p.release(1, "a")
	p.check(t, map[float64]int64{1: 0})
}

func TestEstimatorValidate(t *testing.T) {
	for name, c := range map[string]struct {
		e     load.Estimator
		field string
	}{
		"zero":               {load.Estimator{}, ""},
		"none":               {load.Estimator{Kind: load.EstimateNone}, ""},
		"learned":            {load.Estimator{Kind: load.EstimateLearned}, ""},
		"rate":               {load.Estimator{Kind: load.EstimateRate, TokensPerSecond: 8000}, ""},
		"unknown kind":       {load.Estimator{Kind: "ai"}, "kind"},
		"rate without":       {load.Estimator{Kind: load.EstimateRate}, "tokens_per_second"},
		"rate below 0":       {load.Estimator{Kind: load.EstimateRate, TokensPerSecond: -1}, "tokens_per_second"},
		"rate NaN":           {load.Estimator{Kind: load.EstimateRate, TokensPerSecond: math.NaN()}, "tokens_per_second"},
		"rate infinite":      {load.Estimator{Kind: load.EstimateRate, TokensPerSecond: math.Inf(1)}, "tokens_per_second"},
		"learned with a one": {load.Estimator{Kind: load.EstimateLearned, TokensPerSecond: 1}, "tokens_per_second"},
		"none with NaN":      {load.Estimator{TokensPerSecond: math.NaN()}, "tokens_per_second"},
	} {
		t.Run(name, func(t *testing.T) { wantField(t, c.e.Validate(), c.field) })
	}
}

// wantField wants an error that names a field; none for an empty name.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	got := ""
	if fe, ok := errors.AsType[*fleet.FieldError](err); ok {
		got = fe.Field
	}
	if got != field || (err != nil) != (field != "") {
		t.Errorf("got %v; want an error for field %q", err, field)
	}
}

// TestAWholeAnswerTeachesNothing: its first byte comes long after its first
// token.
func TestAWholeAnswerTeachesNothing(t *testing.T) {
	tr := load.NewTracker(load.Estimator{Kind: load.EstimateLearned})
	s := tr.Add()
	begin := time.Unix(1000, 0)
	b := &load.Booking{}
	tr.Book(b, s, load.Demand{PrefillTokens: 100}, nil, begin)
	if !tr.Prefilled(b, begin.Add(time.Hour)) || tr.Prefilled(b, begin.Add(time.Hour)) {
		t.Error("want true, then false")
	}
	next := &load.Booking{}
	tr.Book(next, s, load.Demand{PrefillTokens: 100}, nil, begin.Add(time.Hour))
	if l, _ := tr.Load(s, begin.Add(2*time.Hour)); l.PrefillTokens != 100 {
		t.Errorf("got %d tokens an hour later; want 100: no time was learned", l.PrefillTokens)
	}
}

// mixed plays rounds on an engine that prefills 10,000 tokens a second, one prompt
// after the other: a prompt of 10,000 tokens and behind it, in the same moment, one
// of 100 whose answer is streamed. It returns what is left of another 10,000 after
// half a second.
func mixed(round func(p *prefills, at float64)) int64 {
	p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
	now := 0.0
	for ; now < 200; now += 10 {
		p.book(now, "a", 10_000)
		p.book(now, "b", 100)
		round(p, now)
		p.release(now+3, "a")
		p.release(now+3, "b")
	}
	p.book(now, "c", 10_000)
	return p.left(now + 0.5)
}

// TestNothingIsLearnedBehindAPrefillOfWhichNobodyKnowsTheEnd: the second's first
// token comes after 1.01 s, of which 0.01 s are its own.
func TestNothingIsLearnedBehindAPrefillOfWhichNobodyKnowsTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		round func(p *prefills, at float64)
		want  int64
	}{
		"both streamed": {func(p *prefills, at float64) { p.first(at+1, "a"); p.first(at+1.01, "b") }, 5000},
		"the first whole, answered later": {func(p *prefills, now float64) {
			p.first(now+1.01, "b")
			p.tracker.Prefilled(p.booked["a"], at(now+3))
		}, 10_000},
		"the first whole, answered before": {func(p *prefills, now float64) {
			p.tracker.Prefilled(p.booked["a"], at(now+1.005))
			p.first(now+1.01, "b")
		}, 10_000},
		"the first cancelled": {func(p *prefills, at float64) { p.release(at+0.9, "a"); p.first(at+1.01, "b") }, 10_000},
		"the second before the first": {func(p *prefills, at float64) {
			p.first(at+0.01, "b")
			p.first(at+1.01, "a")
		}, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mixed(c.round); got != c.want {
				t.Errorf("%d of 10000 tokens are left after half of their time; want %d", got, c.want)
			}
		})
	}
}

// TestAFirstTokenShowsThatTheOlderPrefillsAreOver: behind a whole answer that goes
// on for long, the second streamed one teaches, and so does one that comes later.
func TestAFirstTokenShowsThatTheOlderPrefillsAreOver(t *testing.T) {
	for name, booked := range map[string]float64{"booked before": 1.5, "booked after": 2.1} {
		t.Run(name, func(t *testing.T) {
			p := newPrefills(load.Estimator{Kind: load.EstimateLearned})
			p.book(0, "whole", 1000)
			p.book(1, "b", 100)
			if booked < 2 {
				p.book(booked, "c", 100)
			}
			p.first(2, "b") // the rank has been at another prompt, too: it teaches nothing
			if booked > 2 {
				p.book(booked, "c", 100)
			}
			p.first(3.1, "c")
			p.tracker.Prefilled(p.booked["whole"], at(4))
			p.book(5, "d", 1100)
			took := 3.1 - max(booked, 2) // for 100 tokens
			p.check(t, map[float64]int64{5: 1100, 5 + 11*took/2: 550, 5 + 11*took: 0})
		})
	}
}
