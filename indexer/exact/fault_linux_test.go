//go:build !race

// The race detector's own memory would be counted too.

package exact_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/routerd/routerd/indexer/exact"
)

// Each page of a larger table is faulted in once.
func TestATableThatGrowsIsMappedOnce(t *testing.T) {
	const entries, entryBytes = 1 << 20, 12
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	begun := faults(t)
	fillTable(entries)
	got, pages := faults(t)-begun, int64(3*entries*entryBytes/os.Getpagesize())
	if got > pages+pages/10 {
		t.Errorf("%d faults for %d pages", got, pages)
	}
}

// faults are those of this thread that needed no disk.
func faults(t *testing.T) int64 {
	t.Helper()
	const ofThread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(ofThread, &u); err != nil {
		t.Fatal(err)
	}
	return u.Minflt
}

// fillTable fills half of a table of so many entries, and makes it twice as large.
func fillTable(entries int) {
	tab := exact.NewTable(rand.Uint64())
	tab.Resize(entries)
	for n := range uint64(entries / 2) {
		_, place := tab.Get(n)
		tab.Put(n, place, 1)
	}
	tab.Resize(2 * entries)
}
