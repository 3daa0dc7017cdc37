package predicted_test

import (
	"testing"
	"time"

	"github.com/routerd/routerd/indexer/approx"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/indexer/predicted"
)

const ttl = 100 * time.Second

// index returns an empty index, which whoever asked for it closes.
func index(t testing.TB, blockSize int) *predicted.Index {
	t.Helper()
	x, err := predicted.New(exact.New(blockSize), approx.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestI3_IndexEqualsThePlainModel(t *testing.T) {
	indextest.Run(t, func(blockSize int) *predicted.Index { return index(t, blockSize) }, indextest.TTL(ttl))
}
