package core_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
)

// modelStep is one step of a random sequence. What it acts on is named by a
// number that is taken modulo what there is, so that a sequence stays one when
// steps are left out of it.
type modelStep struct {
	op     string
	worker string
	part   string
	number int
	state  core.Lifecycle
	wait   time.Duration
	ask    modelAsk
}

// modelAsk is what a request asks for.
type modelAsk struct {
	kind                                core.Kind
	class, session, pin, allow, exclude string
	adapter, letters                    string
	tail, priority, times, rank, id     int
	leased, again, keen, explicit       bool
}

// String leaves out what is not set.
func (s modelStep) String() string {
	out := strings.TrimSpace(fmt.Sprintf("%s %s %s %d", s.op, s.worker, s.part, s.number))
	if s.state != "" {
		out += " " + string(s.state)
	}
	if s.wait > 0 {
		out += " " + s.wait.String()
	}
	if s.op == "select" || s.op == "reserve" {
		out += s.ask.String()
	}
	return out
}

// GoString is how a failure prints it.
func (s modelStep) GoString() string { return "\n" + s.String() }

// String leaves out what is not set.
func (a modelAsk) String() string {
	out := " " + a.kind.String()
	for _, f := range []struct{ name, value string }{
		{"class", a.class}, {"session", a.session}, {"pin", a.pin}, {"allow", a.allow}, {"exclude", a.exclude}, {"adapter", a.adapter}, {"prompt", a.letters},
	} {
		if f.value != "" {
			out += " " + f.name + "=" + f.value
		}
	}
	return out + fmt.Sprintf(" tail=%d priority=%d times=%d rank=%d id=%d leased=%v again=%v keen=%v explicit=%v",
		a.tail, a.priority, a.times, a.rank, a.id, a.leased, a.again, a.keen, a.explicit)
}

// anyOf draws with equal chances, where rapid's own generators prefer what comes
// first: to that they shrink.
func anyOf[T any](t *rapid.T, of ...T) T {
	n := 0
	for size := 1; size < 8*len(of); size *= 2 {
		n *= 2
		if rapid.Bool().Draw(t, "") {
			n++
		}
	}
	return of[n%len(of)]
}

// modelOps has each operation as often as it should come up.
func modelOps() []string {
	var out []string
	for _, w := range []struct {
		op string
		n  int
	}{
		{"select", 34},
		{"free", 14},
		{"advance", 9},
		{"put", 6},
		{"gate", 4},
		{"round", 5},
		{"lifecycle", 5},
		{"reserve", 5},
		{"prefill", 5},
		{"output", 5},
		{"cancel", 5},
		{"delete", 3},
		{"update", 3},
		{"inhibit", 3},
		{"refuse", 2},
		{"reached", 2},
		{"store", 3},
	} {
		for range w.n {
			out = append(out, w.op)
		}
	}
	return out
}

// drawnScript draws a sequence; it begins with workers.
func drawnScript(t *rapid.T) (script []modelStep) {
	ops := modelOps()
	for range 1 + anyOf(t, 0, 1, 2) {
		s := drawnStep(t, "put")
		s.part = "m1"
		script = append(script, s)
	}
	for range anyOf(t, upTo(modelSteps)...) {
		script = append(script, drawnStep(t, anyOf(t, ops...)))
	}
	return script
}

func drawnStep(t *rapid.T, op string) modelStep {
	s := modelStep{
		op: op, worker: anyOf(t, "w1", "w2", "w3"), part: anyOf(t, "m1", "m1", "m1", "m1", "m1", "m1", "m2"), number: anyOf(t, upTo(24)...),
	}
	switch op {
	case "lifecycle":
		s.state = anyOf(t, core.Ready, core.Ready, core.Draining, core.Ejected, core.Incomplete)
	case "advance", "refuse":
		s.wait = time.Duration(anyOf(t, 1, 100, 1000, 2500, 6000)) * time.Millisecond
	case "select", "reserve":
		s.ask = drawnAsk(t)
	case "store":
		s.ask.letters = drawnLetters(t)
	}
	return s
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func drawnLetters(t *rapid.T) string {
	return anyOf(t, "", "A", "AA", "AB", "AAA", "AAB", "ABAA", "BBBB")
}

func drawnAsk(t *rapid.T) modelAsk {
	a := modelAsk{
		kind:    anyOf(t, core.Book, core.Book, core.Book, core.Book, core.Book, core.Query, core.Query, core.Advisory),
		class:   anyOf(t, "default", "default", "batch", "free"),
		session: anyOf(t, "", "", "", "s1", "s1", "s2", "s3", "s4"),
		adapter: anyOf(t, "", "", "", "", "", "ad"),
		letters: drawnLetters(t), tail: anyOf(t, upTo(16)...), priority: anyOf(t, 0, 1), times: anyOf(t, 1, 1, 1, 2, 3), rank: anyOf(t, -1, -1, 0, 1),
		id: anyOf(t, upTo(32)...), leased: anyOf(t, false, false, false, true), keen: anyOf(t, false, true), explicit: anyOf(t, false, true),
	}
	worker := func() string { return anyOf(t, "w1", "w2", "w3") }
	switch anyOf(t, upTo(12)...) {
	case 0:
		a.pin = worker()
	case 1:
		a.allow = worker()
	case 2:
		a.exclude, a.again = worker(), true
	case 3:
		a.pin, a.allow = worker(), worker()
	}
	return a
}

// endings are how a reservation ends that is freed.
func endings(n int) reserve.Kind {
	return []reserve.Kind{reserve.Completed, reserve.Cancelled, reserve.Failed}[n%3]
}
