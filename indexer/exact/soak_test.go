//go:build soak

package exact_test

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
)

// TestSoakIndexEqualsThePlainModel takes the time in SOAK_TIME, a minute where that is not set.
func TestSoakIndexEqualsThePlainModel(t *testing.T) {
	long, err := time.ParseDuration(cmp.Or(os.Getenv("SOAK_TIME"), "1m"))
	if err != nil {
		t.Fatalf("SOAK_TIME: %v", err)
	}
	indextest.Soak(t, func(blockSize int) indexer.Indexer { return exact.NewEvicting(blockSize) }, long)
}
