package frontend

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
)

// Retries are held to a tenth of the requests. The allowance is kept in tenths
// of a retry: a request earns one, a retry costs ten. A fresh router has
// enough for budgetFloor retries, so that a lone request may be tried again.
const (
	retryCost   = 10
	budgetFloor = 10
	budgetMost  = 100 // retries that may be saved up
)

// retryBudget is the allowance. Safe for concurrent use.
type retryBudget struct{ tenths atomic.Int64 }

func (b *retryBudget) fill() { b.tenths.Store(budgetFloor * retryCost) }

// earn adds a request's tenth.
func (b *retryBudget) earn() {
	if b.tenths.Load() < budgetMost*retryCost {
		b.tenths.Add(1)
	}
}

// spend takes one retry, if there is one.
func (b *retryBudget) spend() bool {
	for {
		have := b.tenths.Load()
		if have < retryCost {
			return false
		}
		if b.tenths.CompareAndSwap(have, have-retryCost) {
			return true
		}
	}
}

// refund gives back a retry that was not made.
func (b *retryBudget) refund() { b.tenths.Add(retryCost) }

// requestIDs makes ids that no other router makes either.
type requestIDs struct {
	prefix string
	last   atomic.Uint64
}

func (g *requestIDs) start() {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	g.prefix = "req-" + hex.EncodeToString(b[:]) + "-"
}

func (g *requestIDs) next() string { return g.prefix + strconv.FormatUint(g.last.Add(1), 36) }
