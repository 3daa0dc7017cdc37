package stream

// State is what a stream is doing.
type State uint8

// The states.
const (
	Connecting   State = iota // never connected, nothing heard
	Unsynced                  // connected, cannot be asked, nothing heard yet
	Syncing                   // the first replay is running
	Live                      // in step with the engine
	Gap                       // missing numbers are being replayed
	Resync                    // a reconnect or restart is being checked or replayed
	Degraded                  // going on without something that was lost
	Disconnected              // the connection is down
)

// stateNames are the states' names, in the order of the constants.
var stateNames = [...]string{"connecting", "unsynced", "syncing", "live", "gap", "resync", "degraded", "disconnected"}

// String returns the state's name in APIs and metrics.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// States returns all states.
func States() []State {
	all := make([]State, len(stateNames))
	for i := range all {
		all[i] = State(i)
	}
	return all
}

// Result is how a replay ended.
type Result uint8

// The results; all but Complete are incomplete.
const (
	Complete Result = iota
	Empty
	StartedLate
	NotContiguous
	EndedEarly
	NoAnswer
	NoEndMark
	BufferFull
	TooLarge
	results
)

// resultNames are the results' names, in the order of the constants.
var resultNames = [results]string{
	"complete", "empty", "started_after_requested", "non_contiguous", "ended_before_target", "no_answer", "no_end_mark",
	"buffer_full", "too_large",
}

// String returns the result's name in APIs and metrics.
func (r Result) String() string {
	if r < results {
		return resultNames[r]
	}
	return "unknown"
}

// Results returns all results.
func Results() []Result {
	all := make([]Result, results)
	for i := range all {
		all[i] = Result(i)
	}
	return all
}

// Reasons for a loss that the stream itself finds.
const (
	LossGap        = "gap"
	LossReconnect  = "reconnect_without_replay"
	LossJoinedLate = "joined_late"
	// LossDoubt is a publisher whose live messages and replays contradict each other, or one that restarts too often.
	LossDoubt = "restart_in_doubt"
)

// Counts are totals since the stream was made.
type Counts struct {
	Applied    uint64 // messages applied, those applied again by a repair included
	Duplicates uint64 // older messages dropped
	Gaps       uint64 // numbers found missing among live messages
	Lost       uint64 // of those, the ones given up
	Restarts   uint64
	Asked      uint64 // replays asked for
	Replays    [results]uint64
	// LastFailure is the result of the last incomplete replay; Complete when there was none.
	LastFailure Result
}

// Status is a snapshot of a stream.
type Status struct {
	State State
	// LastSeq is the last applied number, meaningful when Seen.
	LastSeq uint64
	Seen    bool
	// Trusted tells that the messages applied are all that the engine sent since it started or was cleared.
	Trusted bool
	// Reason says why the stream is not trusted, where that is known.
	Reason string
	Counts Counts
}

// Status returns a snapshot.
func (s *Stream) Status() Status {
	st := Status{State: s.state(), LastSeq: s.last, Seen: s.has, Counts: s.counts, Reason: s.loss}
	unverified := s.suspect && !s.retryAt.IsZero()
	fresh := s.asking == join || s.asking == restart
	st.Trusted = s.complete && !fresh && !s.missing && s.loss == "" && s.doubt == nil && !unverified && !s.resumed
	if st.Reason == "" && (s.missing || unverified) {
		st.Reason = s.counts.LastFailure.String()
	}
	if st.Reason == "" && s.doubt != nil {
		st.Reason = LossDoubt
	}
	return st
}

func (s *Stream) state() State {
	switch {
	case !s.everConnected:
		return Connecting
	case s.everConnected && !s.connected:
		return Disconnected
	}
	switch s.asking {
	case join:
		return Syncing
	case gap, repair:
		return Gap
	case verify, restart:
		return Resync
	}
	switch {
	case s.missing || s.loss != "" || s.suspect || s.doubt != nil:
		return Degraded
	case !s.complete:
		return Unsynced
	}
	return Live
}
