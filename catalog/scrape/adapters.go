package scrape

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/fleet"
)

const (
	listEvery   = 30 * time.Second // how often an engine is asked for its adapters
	listAgain   = 2 * time.Second  // after that at the earliest, when its metrics name another
	listsMissed = 3                // times listEvery, after which its last word counts no more
)

// adapterList is what an engine has loaded. Readers take no lock; one goroutine
// at a time writes.
type adapterList struct {
	known atomic.Pointer[knownAdapters]
	// The rest belongs to whoever asks the engine.
	due      time.Time // when it is to be asked again
	asked    time.Time
	sampleAt float64  // of the newest sample that was seen in the metrics
	added    []string // what the metrics named since the last list, which lacked it
	denied   []string // what the list before had to be asked for and did not have
}

// knownAdapters is immutable.
type knownAdapters struct {
	at    time.Time // when the engine told the whole list
	names []string  // sorted
}

// loaded is the list for a record.
func (l *adapterList) loaded(now time.Time) ([]fleet.Adapter, bool) {
	k := l.known.Load()
	if k == nil || now.Sub(k.at) > listsMissed*listEvery {
		return nil, false
	}
	list := make([]fleet.Adapter, len(k.names))
	for i, name := range k.names {
		list[i] = fleet.Adapter{Name: name}
	}
	return list, true
}

// listed takes over the whole list and tells whether it is another. What the metrics
// named and the list lacks is not believed again before the next list.
func (l *adapterList) listed(names []string, at time.Time) (changed bool) {
	l.denied = slices.DeleteFunc(l.added, func(name string) bool {
		_, found := slices.BinarySearch(names, name)
		return found
	})
	l.added = nil
	was := l.known.Swap(&knownAdapters{at: at, names: names})
	return was == nil || !slices.Equal(was.names, names)
}

// next plans the question after one at now.
func (l *adapterList) next(now time.Time) {
	l.asked, l.due = now, now.Add(spread(listEvery, rand.Float64()))
}

// used takes over which adapters have requests, by the metrics. One that the list
// lacks is loaded all the same if the sample is newer than the last: the list is out
// of date and asked for soon. It tells whether there was one.
func (l *adapterList) used(s loraSample, model string) (changed bool) {
	if s.at < 0 || s.at == l.sampleAt {
		return false
	}
	l.sampleAt = s.at
	k := l.known.Load()
	if k == nil {
		return false
	}
	names := slices.Clone(k.names)
	for _, name := range s.names {
		i, found := slices.BinarySearch(names, name)
		if !found && adapterName(name, model) && len(names) < fleet.MaxAdapters && !slices.Contains(l.denied, name) {
			names = slices.Insert(names, i, name)
			l.added = append(l.added, name)
		}
	}
	if len(names) == len(k.names) {
		return false
	}
	l.known.Store(&knownAdapters{at: k.at, names: names})
	if soon := l.asked.Add(listAgain); soon.Before(l.due) {
		l.due = soon
	}
	return true
}

// adapterName tells whether a record of the model can list an adapter of that name.
func adapterName(name, model string) bool {
	return name != model && fleet.CheckName("adapters", name) == nil
}

// spread is d, a fifth more or less; at is from 0 to 1.
func spread(d time.Duration, at float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*at))
}
