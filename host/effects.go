package host

import (
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// effects are what one call of a guest wants seen outside: log lines and metric
// values. They are held until the decision that they belong to is committed, so
// that a decision that is made again, and a call that nobody is to hear of,
// leave nothing. A call that says nothing has none. Owned by the call, then by
// whoever commits.
type effects struct {
	log     *guestLog
	series  *guestSeries
	lines   []heldLine
	dropped int       // lines that were not held
	begun   [2][]byte // of standard output and error: a line that has not ended

	touched uint16 // a bit a metric
	values  [abi.MaxMetrics]heldValue
	traces  []policy.Trace
}

type heldLine struct {
	level int32
	text  string // cut and escaped
}

// heldValue is what a call made of one metric: what it set and then added, or
// only added.
type heldValue struct {
	set bool
	v   float64
}

var _ policy.Effects = (*effects)(nil)

// maxHeldLines bounds the lines of one call: more could not be logged at once
// anyway.
const maxHeldLines = logBurst

// effects is where the call at hand puts what it says.
func (in *instance) effects() *effects {
	if in.said == nil {
		in.said = &effects{log: in.log, series: in.module.series}
	}
	return in.said
}

// flush does at once what was said outside a decision: while the guest was set
// up or tidied up.
func (in *instance) flush() {
	if in.said != nil {
		in.said.endAll()
		in.said.Publish()
	}
	in.said = nil
}

// tell hands over what the call said.
func (in *instance) tell(r *policy.StageReport) {
	said := in.said
	if said == nil {
		return
	}
	in.said = nil
	said.endAll()
	r.Traces = said.traces
	if !in.quiet && (len(said.lines) > 0 || said.dropped > 0 || said.touched != 0) {
		r.Effects = said
	}
}

// line holds one line.
func (e *effects) line(level int32, text []byte) {
	if len(e.lines) == maxHeldLines {
		e.dropped++
		return
	}
	e.lines = append(e.lines, heldLine{level, clip(string(text[:min(len(text), abi.MaxLogBytes)]), abi.MaxLogBytes)})
}

// end holds a line that came in pieces; false when it is empty.
func (e *effects) end(begun *[]byte) bool {
	if len(*begun) == 0 {
		return false
	}
	e.line(1, *begun)
	*begun = (*begun)[:0]
	return true
}

// endAll ends what the call began and did not end.
func (e *effects) endAll() {
	for i := range e.begun {
		e.end(&e.begun[i])
	}
}

// value holds a change of a metric.
func (e *effects) value(id uint32, set bool, v float64) {
	held := &e.values[id]
	if e.touched&(1<<id) == 0 || set {
		*held = heldValue{set: set}
	}
	held.v += v
	e.touched |= 1 << id
}

// Publish logs the lines and changes the metrics.
func (e *effects) Publish() {
	for _, l := range e.lines {
		e.log.write(l.level, l.text)
	}
	if e.dropped > 0 {
		e.log.drop(e.dropped)
	}
	for id := range e.values {
		if e.touched&(1<<id) != 0 {
			e.series.change(id, e.values[id])
		}
	}
}
