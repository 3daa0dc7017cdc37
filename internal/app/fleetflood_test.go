package app_test

import (
	"sync"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
)

func TestK14_AWorkerThatLeavesInAFloodOfEventsLeavesNothing(t *testing.T) {
	const rounds, floods = 100, 2
	e := engine(t, "e1", nil)
	f := fleetOf(t, true, nil)
	w1, w2 := fleet.Worker{ID: 1}, fleet.Worker{ID: 2}
	leaver := behind(t, 1, e, func(r *fleet.Record) { r.URL = "http://127.0.0.1:1" })
	witness := behind(t, 2, e, nil) // hears what the leaver would
	applied(t, f, witness)
	for round := range rounds {
		applied(t, f, witness, leaver)
		over := make(chan struct{})
		var flood sync.WaitGroup
		for n := range floods {
			flood.Go(func() {
				for i := 0; ; i++ {
					fill(t, e, 0, tokensFrom(1_000_000*(1+n)+10_000*round+100*(i%90), 64))
					select {
					case <-over:
						return
					default:
					}
				}
			})
		}
		if round%2 == 0 { // it has heard some of it; else it leaves at any time
			testkit.Until(t, "the flood is heard", func() bool { return f.Blocks(oneModel, w1) > 0 })
		}
		applied(t, f, witness)
		if n := f.Blocks(oneModel, w1); n != 0 {
			t.Errorf("round %d: %d blocks at once", round, n)
		}
		close(over)
		flood.Wait()
		heard(t, f, e, w2)
		if n := f.Blocks(oneModel, w1); n != 0 {
			t.Fatalf("round %d: %d blocks after the flood", round, n)
		}
		if _, ok := f.Stream(w1); ok {
			t.Fatalf("round %d: it is still listened to", round)
		}
	}
	if f.Blocks(oneModel, w2) == 0 {
		t.Error("the witness has heard nothing")
	}
}
