package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/lora"
	"github.com/routerd/routerd/fleet"
)

// An adapter gets further replicas for requests that are served somewhere, not for
// those that only ask what would be.
func TestAdvisoryRequestsAreNoArrivalsOfAnAdapter(t *testing.T) {
	for _, c := range []struct {
		kind core.Kind
		want []lora.Action
	}{
		{core.Advisory, nil},
		{core.Query, []lora.Action{{Worker: fleet.IDFromName("w2"), Adapter: "sql", Load: true}}},
		{core.Book, []lora.Action{{Worker: fleet.IDFromName("w2"), Adapter: "sql", Load: true}}},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			w := newWorld(t, use("builtin:kv-aware"), nil)
			w.join(t, record("w1", "m1"), record("w2", "m1"))
			workers := []lora.Worker{
				{ID: fleet.IDFromName("w1"), Slots: 4, Loaded: []string{"sql"}, Manage: []string{"sql"}},
				{ID: fleet.IDFromName("w2"), Slots: 4, Manage: []string{"sql"}},
			}
			w.PlanAdapters(time.Now(), workers)
			w.SetAdapterState(fleet.IDFromName("w1"), "sql", lora.Loaded)
			for i := range 5 {
				req := bookRequest(fmt.Sprint("r", i), nil)
				req.Kind, req.Adapter = c.kind, "sql"
				if _, err := w.Select(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, w.PlanAdapters(time.Now(), workers)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
