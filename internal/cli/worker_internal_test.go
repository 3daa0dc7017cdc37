package cli

import (
	"testing"

	"github.com/routerd/routerd/fleet"
)

func TestAWorkersEventStreamIsThatOfTheRankThatIsWorstOff(t *testing.T) {
	age := int64(1500)
	trusted, lost := workerRank{Trusted: true, EventAgeMs: &age}, workerRank{Rank: 1, EventAgeMs: &age}
	away := workerRank{Rank: 1, Trusted: true, Unconnected: true}
	for want, ranks := range map[string][]workerRank{
		"-":              nil,
		"trusted 1.5s":   {trusted},
		"untrusted 1.5s": {trusted, lost},
		"unconnected":    {trusted, away, lost},
		"untrusted(gap)": {trusted, {Rank: 1, Untrusted: "gap"}},
		"none":           {trusted, {Rank: 2, Trusted: true}},
		// Those that another router listens to: also of a worker without events of its own.
		"decisions":        {{Source: "decisions"}, {Rank: 1, Source: "decisions"}},
		"remote trusted":   {{Source: "remote", Trusted: true}, {Rank: 2, Source: "remote", Trusted: true}},
		"remote untrusted": {{Source: "remote", Trusted: true}, {Rank: 2, Source: "remote"}},
	} {
		v := worker{Record: fleet.Record{KVEvents: map[int]string{0: "tcp://h:1", 1: "tcp://h:2"}}, Ranks: ranks}
		if got := worst(v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
