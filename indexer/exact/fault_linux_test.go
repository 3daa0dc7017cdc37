//go:build !race

// The race detector's own memory would be counted too.

package exact_test

import (
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
	exact.FillTable(entries)
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
