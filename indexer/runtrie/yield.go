//go:build indexcheck

package runtrie

import (
	"math/rand/v2"
	"runtime"
)

// yield lets writers in between two looks of a reader.
func yield() {
	if rand.IntN(8) == 0 {
		runtime.Gosched()
	}
}
