package app_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/kvcache"
)

// Each partition tells its index's memory, which index.max_bytes bounds, and what it gave up for that.
func TestAnIndexIsBoundedAndTellsItsMemory(t *testing.T) {
	const most = 2 << 20
	reg := prometheus.NewPedanticRegistry()
	open := app.Indexes(reg, most)
	busy := open(fleet.PartitionKey{Model: "busy", Group: "default"})
	open(fleet.PartitionKey{Model: "calm", Group: "default"})
	told := func() map[string]float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "routerd_index_")
				for _, l := range m.GetLabel() {
					if l.GetName() == "model" {
						all[name+" "+l.GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
					}
				}
			}
		}
		return all
	}
	for n := range uint64(1000) {
		e := kvcache.Event{Kind: kvcache.Stored, BlockSize: 1}
		for i := range uint64(200) {
			e.Hashes, e.Tokens = append(e.Hashes, kvcache.NumberHash(n<<32|i)), append(e.Tokens, uint32(n<<8|i))
		}
		busy.Apply(fleet.Worker{ID: 1}, []kvcache.Event{e})
	}
	got := told()
	if b := got["bytes busy"]; b > most || b < most/2 {
		t.Errorf("the index has %v bytes, want at most %d, and not much less", b, most)
	}
	if b, e := got["bytes calm"], got["evicted_blocks_total busy"]; b <= 0 || b > 200<<10 || e < 1000 || got["evicted_blocks_total calm"] != 0 || len(got) != 4 {
		t.Errorf("got %v", got)
	}
}
