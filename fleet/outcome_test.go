package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
)

func TestOutcomesHaveWords(t *testing.T) {
	var got []string
	for o := fleet.NoOutcome; o <= fleet.BrokenStream+2; o++ {
		got = append(got, o.String())
	}
	want := []string{"", "success", "connect_failed", "timeout", "server_error", "broken_stream", "unknown", "unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
