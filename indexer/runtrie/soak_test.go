//go:build soak

package runtrie_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestSoakATrieEqualsThePlainModel takes the time in SOAK_TIME, a minute where that is not set.
func TestSoakATrieEqualsThePlainModel(t *testing.T) {
	long, err := time.ParseDuration(cmp.Or(os.Getenv("SOAK_TIME"), "1m"))
	if err != nil {
		t.Fatalf("SOAK_TIME: %v", err)
	}
	n, end := 0, time.Now().Add(long)
	for seed := rand.Uint64(); time.Now().Before(end) && !t.Failed(); seed++ {
		sequence(t, seed)
		n++
	}
	t.Logf("%d sequences", n)
}
