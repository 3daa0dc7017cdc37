//go:build !linux

package host

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// limitSelf has nothing to set here: the parent's wall clock and watchMemory
// bound the child.
func limitSelf(time.Duration, uint64) error { return nil }

// dieWithParent does nothing here: a child whose parent is gone ends by itself,
// when it has compiled.
func dieWithParent(*exec.Cmd) {}

// watchMemory kills the process when its resident memory passes max bytes; the
// caller calls stop after the process ended.
func watchMemory(p *os.Process, max uint64) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(p.Pid)).Output()
			if err != nil {
				continue
			}
			if kib, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64); err == nil && kib<<10 > max {
				_ = p.Kill()
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
