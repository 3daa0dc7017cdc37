package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/routerd/routerd/plugins/abi"
)

// Codes of warnings.
const (
	// WarnWeight: a weight that can never change a decision.
	WarnWeight = "weight_never_decides"
	// WarnOpen: when a filter faults, or drops every candidate, or when the
	// revision has tripped, what the filter is there to drop can be picked.
	WarnOpen = "filter_fails_open"
)

// Warning is something in a specification that is allowed and probably not
// meant.
type Warning struct {
	Code    string `json:"code"`
	Stage   string `json:"stage"` // its place, such as scorers[0]
	Message string `json:"message"`
}

// StageFacts is what is known of a module that is a stage.
type StageFacts struct {
	// ScoreRange bounds the scores; nil where nothing does.
	ScoreRange *abi.Range
	// Columns are the names of the columns that the module reads.
	Columns []string
	// Stateful modules may answer the same question in another way.
	Stateful bool
}

// Lint tells what about a specification can be proven to be of no effect, and
// how its filters fail open, which each does when the revision has tripped. Of modules it knows what about says, which may be nil
// or answer false. A specification that is not valid has no warnings. Trial has
// the other half: which terms decided nothing on recorded requests.
func Lint(spec Spec, about func(use string) (StageFacts, bool)) []Warning {
	spec, err := spec.Normalised()
	if err != nil {
		return nil
	}
	l := linter{about: about}
	for i, f := range spec.Filters {
		l.filter(fmt.Sprintf("filters[%d]", i), f)
	}
	var terms []term
	for i, sc := range spec.Scorers {
		terms = append(terms, l.term(fmt.Sprintf("scorers[%d]", i), sc))
	}
	for i, sc := range spec.Lora {
		terms = append(terms, l.term(fmt.Sprintf("lora[%d]", i), sc))
	}
	l.constant(terms)
	l.unread(spec.Picker, terms)
	l.cancelled(terms)
	if len(spec.Lora) == 0 { // with lora scorers every sum is made of others
		l.alone(spec.Picker, terms)
		l.absorbed(terms)
	}
	return l.warnings
}

type linter struct {
	about    func(use string) (StageFacts, bool)
	warnings []Warning
}

func (l *linter) warn(code, stage, format string, args ...any) {
	l.warnings = append(l.warnings, Warning{code, stage, fmt.Sprintf(format, args...)})
}

// facts are those of a stage; ok is false where nothing is known of it.
func (l *linter) facts(use string) (f StageFacts, ok bool) {
	if strings.HasPrefix(use, BuiltinPrefix) {
		return StageFacts{}, true
	}
	if l.about == nil {
		return StageFacts{}, false
	}
	return l.about(use)
}

func (l *linter) filter(field string, f FilterSpec) {
	if f.OnError != onErrorFail {
		l.warn(WarnOpen, field, "on_error is %s: when %s faults, candidates that it would have dropped can be picked; hard limits belong in eligibility", f.OnError, f.Use)
	}
	if f.OnEmpty == onEmptyIgnore {
		l.warn(WarnOpen, field, "on_empty is ignore: when %s drops every candidate, its verdict is left out; hard limits belong in eligibility", f.Use)
	}
	l.warn(WarnOpen, field, "a revision that has tripped runs no filters: its fallback can pick what %s would have dropped; hard limits belong in eligibility", f.Use)
}

// term is one scorer's part of a total.
type term struct {
	field     string
	spec      ScorerSpec
	weight    float64
	known     bool // facts are
	facts     StageFacts
	low, high float64 // of the normalised score
	constant  bool    // the same for every candidate
}

func (l *linter) term(field string, sc ScorerSpec) term {
	t := term{field: field, spec: sc, weight: *sc.Weight, low: -MaxScore, high: MaxScore}
	t.facts, t.known = l.facts(sc.Use)
	if r := t.facts.ScoreRange; r != nil {
		t.low, t.high = clamp(r.Min), clamp(r.Max)
		t.constant = r.Min == r.Max
	}
	if sc.Normalise != normaliseNone {
		t.low, t.high = 0, 1
	}
	return t
}

// decides tells whether the term can tell candidates apart.
func (t *term) decides() bool { return t.weight != 0 && !t.constant }

// largest is the largest absolute value that the term can have.
func (t *term) largest() float64 {
	return math.Abs(t.weight) * math.Max(math.Abs(t.low), math.Abs(t.high))
}

// smallest is the smallest absolute value that it can have.
func (t *term) smallest() float64 {
	if t.low <= 0 && t.high >= 0 {
		return 0
	}
	return math.Abs(t.weight) * math.Min(math.Abs(t.low), math.Abs(t.high))
}

func (l *linter) constant(terms []term) {
	for _, t := range terms {
		switch {
		case t.weight == 0:
			l.warn(WarnWeight, t.field, "the weight is 0: %s is called for nothing", t.spec.Use)
		case t.constant:
			l.warn(WarnWeight, t.field, "%s gives every candidate %v, says its score_range", t.spec.Use, t.facts.ScoreRange.Min)
		}
	}
}

// unread is about pickers that do not look at the totals.
func (l *linter) unread(p *PickerSpec, terms []term) {
	if p == nil || strings.HasPrefix(p.Use, BuiltinPrefix) {
		return
	}
	facts, ok := l.facts(p.Use)
	if !ok {
		return
	}
	for _, c := range facts.Columns {
		if c == abi.ColUpstreamScore.String() {
			return
		}
	}
	for _, t := range terms {
		if t.decides() {
			l.warn(WarnWeight, t.field, "the picker %s does not read upstream.score: %s counts only where it leaves the pick to the host", p.Use, t.spec.Use)
		}
	}
}

// alone is about the size of the one weight that there is: the built-in pickers
// compare totals and know no scale.
func (l *linter) alone(p *PickerSpec, terms []term) {
	if p == nil || !strings.HasPrefix(p.Use, BuiltinPrefix) {
		return
	}
	var only *term
	for i := range terms {
		if terms[i].weight == 0 {
			continue
		}
		if only != nil || terms[i].constant {
			return
		}
		only = &terms[i]
	}
	if only != nil && math.Abs(only.weight) != 1 {
		sign := math.Copysign(1, only.weight)
		l.warn(WarnWeight, only.field, "there is no other scorer: the weight %v picks as %v does", only.weight, sign)
	}
}

// absorbed is about one of two terms that is lost in the rounding of the other.
func (l *linter) absorbed(terms []term) {
	var two []*term
	for i := range terms {
		if terms[i].weight != 0 {
			two = append(two, &terms[i])
		}
	}
	if len(two) != 2 {
		return
	}
	for i, t := range two {
		other := two[1-i]
		least := other.smallest()
		// Next to a power of two the step below is half of the step above.
		step := (math.Nextafter(least, math.Inf(1)) - least) / 4
		if t.decides() && least > 0 && t.largest() < step {
			l.warn(WarnWeight, t.field, "%s adds at most %v to what is at least %v by %s: a float64 has no digits for it", t.spec.Use, t.largest(), least, other.spec.Use)
		}
	}
}

// cancelled is about two terms whose sum is 0 for every candidate.
func (l *linter) cancelled(terms []term) {
	gone := make([]bool, len(terms))
	for i := range terms {
		for j := 0; j < i; j++ {
			a, b := &terms[j], &terms[i]
			if gone[i] || gone[j] || !b.decides() || a.weight != -b.weight || !sameScores(a, b) {
				continue
			}
			gone[i], gone[j] = true, true
			l.warn(WarnWeight, b.field, "it takes away what %s adds: the same scorer %s with the weights %v and %v", a.field, b.spec.Use, a.weight, b.weight)
		}
	}
}

// sameScores tells whether two terms score every request alike.
func sameScores(a, b *term) bool {
	aLora, bLora := strings.HasPrefix(a.field, "lora"), strings.HasPrefix(b.field, "lora")
	return a.known && !a.facts.Stateful && a.spec.Use == b.spec.Use && a.spec.Normalise == b.spec.Normalise &&
		aLora == bLora && bytes.Equal(canonical(a.spec.Config), canonical(b.spec.Config))
}

// canonical is a configuration with its keys in order and no white space.
func canonical(raw json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
