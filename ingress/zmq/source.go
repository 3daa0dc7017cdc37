package zmq

import (
	"fmt"
	"math"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/kvcache"
)

// EngineLLMD is the engine whose array events name the root of a chain by parent 0, and whose messages count from 1.
const EngineLLMD = "llm-d"

// Sink takes what a publisher's stream says. Its methods are called from one goroutine for each registration and must
// not call back into the DirectIngress.
type Sink interface {
	// Apply applies events of w in order and keeps none of them.
	Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied
	// Clear drops all blocks of w: its engine started anew.
	Clear(w fleet.Worker)
	// State tells that state, trust or reason of w's stream changed.
	State(w fleet.Worker, status Status)
}

// Source says where the events of one worker and rank come from.
type Source struct {
	Worker fleet.Worker
	// Name is the worker's name in logs.
	Name string
	// Owns tells whether a rank that a batch names is one of the worker's, for which the batch then counts; nil knows
	// Worker's own rank alone. It must be safe for concurrent use.
	Owns func(rank uint32) bool
	// Engine is the engine's kind; see EngineLLMD.
	Engine string
	// Endpoint is the publisher's, as tcp://HOST:PORT or ipc://PATH. One of fleet.Binds is ours, and the engine connects;
	// several workers may name the same.
	Endpoint string
	// IsPod tells whether a name in an engine's topic, kv@NAME@MODEL, is the worker; nil takes the name for Name. It counts
	// where the worker's endpoint is one of fleet.Binds, and must be safe for concurrent use.
	IsPod func(pod string) bool
	// Replay is the endpoint that answers replay requests, "" for none.
	Replay string
	// AdapterName resolves adapter numbers of engines that send no names; nil knows none. It must be safe for
	// concurrent use.
	AdapterName func(id int64) (string, bool)
	// Sink takes the events.
	Sink Sink
	// From is where the stream goes on, nil for the beginning: what it fed up to there is in the sink. See
	// stream.Stream.Resume.
	From *Position
}

func (s *Source) validate() error {
	if s.Sink == nil {
		return fmt.Errorf("register events of worker %s: no sink", s.Worker)
	}
	if err := fleet.CheckEvents("kv_events", s.Endpoint); err != nil {
		return fmt.Errorf("register events of worker %s: %w", s.Worker, err)
	}
	if s.Replay == "" {
		return nil
	}
	if err := fleet.CheckEndpoint("replay", s.Replay); err != nil {
		return fmt.Errorf("register events of worker %s: %w", s.Worker, err)
	}
	return nil
}

// owns tells whether a rank is one of the worker's.
func (s *Source) owns(rank uint64) bool {
	if s.Owns == nil || rank > math.MaxUint32 {
		return rank == uint64(s.Worker.Rank)
	}
	return s.Owns(uint32(rank))
}

// isPod tells whether a topic's name is the worker.
func (s *Source) isPod(pod string) bool {
	if s.IsPod == nil {
		return pod == s.Name
	}
	return s.IsPod(pod)
}

// Status is a snapshot of one registered stream.
type Status struct {
	State stream.State
	// Unconnected tells that there has been no connection to the publisher for Config.UnconnectedAfter.
	Unconnected bool
	// Fault says what is wrong with the connection, for an operator; empty while nothing is known to be. It stays for a
	// while after the connection is there again.
	Fault string
	// LastSeq is the number of the last applied message, meaningful when Seen.
	LastSeq uint64
	Seen    bool
	// Trusted tells that the index holds all that the engine reported since it started or was cleared.
	Trusted bool
	// Reason says why the stream is not trusted, where that is known.
	Reason string
	// Dropped counts what was not taken over by the reasons of kvcache.DropReason.
	Dropped map[string]uint64
	// Gaps counts numbers that were missing among live messages, Lost those of them that could not be had.
	Gaps, Lost uint64
	// Restarts counts how often the engine was found to have started anew.
	Restarts uint64
	// LastEventAt is when the last message was applied; zero when none was.
	LastEventAt time.Time
}
