package testkit

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// Heap is what of this process's heap is in use after a collection, in bytes.
func Heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Resident is this process's resident memory in bytes, on Linux.
func Resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var total, pages int64
	if _, err := fmt.Sscan(string(b), &total, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
