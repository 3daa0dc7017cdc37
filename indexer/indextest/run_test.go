package indextest_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/indexer/predicted"
)

// followed is an index that is fed, and another that is asked: it takes over what the first one has.
type followed struct {
	indexer.Feed
	indexer.View
	indextest.Finder
	catchUp func()
}

func (f *followed) CatchUp() { f.catchUp() }

func TestWhatIsFedAndWhatIsAskedMayBeTwo(t *testing.T) {
	indextest.Run(t, func(blockSize int) *followed {
		primary := exact.New(blockSize)
		f := &followed{Feed: primary, View: primary}
		f.catchUp = func() {
			replica := exact.New(blockSize)
			for _, w := range primary.Workers() {
				if s, ok := primary.Snapshot(w); ok {
					replica.Restore(w, s.Rest, s.Changes)
				}
			}
			f.Finder = replica
		}
		return f
	}, indextest.Seeds(6))
}

func TestScriptsOfRecordsAreReplayed(t *testing.T) {
	limits := approx.Config{TTL: 100 * time.Second, MaxBlocks: 3}
	const records = `
		{"do":"record","worker":1,"tokens":[1,2,3,4]}
		{"do":"find","worker":0,"tokens":[1,2,3,4,5,6]}
		{"do":"pass","ticks":60}
		{"do":"record","worker":2,"rank":1,"tokens":[1,2]}
		{"do":"pass","ticks":40}
		{"do":"forget","worker":2,"rank":1}`
	t.Run("alone", func(t *testing.T) {
		indextest.Replay(t, func(int) *approx.Index {
			x, err := approx.New(limits)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}, records+`
		{"do":"record","worker":3,"tokens":[1,2,3,4,5,6,7,8]}
		{"do":"clear","worker":3}`, indextest.TTL(limits.TTL), indextest.MaxBlocks(limits.MaxBlocks))
	})
	t.Run("beside events", func(t *testing.T) {
		indextest.Replay(t, func(blockSize int) *predicted.Index {
			x, err := predicted.New(exact.New(blockSize), approx.Config{TTL: limits.TTL})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}, records+`
		{"do":"record","worker":3,"tokens":[1,2,3,4]}
		{"do":"stored","worker":3,"hashes":[10,11],"tokens":[1,2,3,4],"block_size":2}
		{"do":"removed","worker":3,"hashes":[11]}
		{"do":"find","worker":0,"tokens":[1,2,3,4]}
		{"do":"carry","worker":0}`, indextest.TTL(limits.TTL))
	})
}
