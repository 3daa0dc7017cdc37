package lora

import "github.com/routerd/routerd/fleet"

// State is where one worker stands with one adapter.
type State uint8

// The states of an adapter on a worker. Only a loaded one is certain to be
// served.
const (
	Absent State = iota
	Loading
	Loaded
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Loading:
		return "loading"
	case Loaded:
		return "loaded"
	default:
		return "absent"
	}
}

// Candidate is one worker of the universe with what it is to the adapter of the
// request.
type Candidate struct {
	Worker fleet.WorkerID
	State  State
	// RegistrationRequired tells that the worker refuses an adapter that is not
	// loaded, as engines do that do not load by themselves.
	RegistrationRequired bool
}

// Counts tells whether the worker can serve the adapter at all.
func (c Candidate) Counts() bool { return c.State == Loaded || !c.RegistrationRequired }

// Narrow sets keep[i] where universe[i] may serve a request for the adapter, and
// clears the others; the rows are in the package comment. Ids in the universe are
// distinct; keep has its length and is written whole. Nobody is kept only when no
// worker of the universe counts. A nil allocation knows no adapter. It allocates
// nothing and keeps neither slice.
func Narrow(a *Allocation, adapter string, universe []Candidate, keep []bool) {
	var loaded, counting bool
	for _, c := range universe {
		loaded = loaded || c.State == Loaded
		counting = counting || c.Counts()
	}
	clear(keep)
	if !counting {
		return
	}
	e, known := a.entry(adapter)
	switch {
	case !known && loaded:
		mark(universe, keep, isLoaded)
	case !known:
		mark(universe, keep, Candidate.Counts)
	case e.active && mark(universe, keep, func(c Candidate) bool { return isLoaded(c) && e.holds(c.Worker) }):
	case e.active && mark(universe, keep, func(c Candidate) bool { return c.Counts() && e.holds(c.Worker) }):
	case !e.active && mark(universe, keep, func(c Candidate) bool { return c.Counts() && e.first(c.Worker) }):
	case loaded:
		mark(universe, keep, isLoaded)
	default:
		keep[firstOf(adapter, universe)] = true
	}
}

func isLoaded(c Candidate) bool { return c.State == Loaded }

// mark sets keep where the rule holds and tells whether it does anywhere.
func mark(universe []Candidate, keep []bool, rule func(Candidate) bool) (any bool) {
	for i, c := range universe {
		keep[i] = rule(c)
		any = any || keep[i]
	}
	return any
}

// firstOf is the place of the first by rendezvous among those that count.
func firstOf(adapter string, universe []Candidate) int {
	best := -1
	var most ranked
	for i, c := range universe {
		if !c.Counts() {
			continue
		}
		if r := rank(adapter, c.Worker); best < 0 || r.compare(most) < 0 {
			best, most = i, r
		}
	}
	return best
}
