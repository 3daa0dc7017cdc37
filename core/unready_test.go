package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// Who finds no ready worker is told why by the cause of the error, with addresses; the
// message, which callers see, has none.
func TestE5_TheCauseNamesTheWorkersThatAreNotReady(t *testing.T) {
	const refused = "starting: health_refused"
	w := newWorld(t, use("builtin:kv-aware"), nil)
	w.join(t, record("w1", "m1"), record("w2", "m1"), record("w1-of-two", "m2"), record("w2-of-two", "m2"))
	for name, l := range map[string]core.Lifecycle{"w1": core.Incomplete, "w2": core.Draining, "w2-of-two": core.Ejected} {
		if err := w.SetLifecycle(fleet.IDFromName(name), l, []string{refused}); err != nil {
			t.Fatal(err)
		}
	}
	unnamed := bookRequest("", nil)
	pinned := bookRequest("", nil)
	pinned.Pin = &core.Pin{Name: "w2"}
	allowed := bookRequest("", nil)
	allowed.Partition, allowed.Allow = model("m2"), []string{"w2-of-two"}
	for _, c := range []struct {
		name  string
		req   *core.Request
		names []string
		not   []string
	}{
		{"anybody", unnamed, []string{`worker "w1" at http://w1.test:8000 is incomplete: ` + refused, `worker "w2" at http://w2.test:8000 is draining: ` + refused}, nil},
		{"a pin", pinned, []string{`worker "w2" at http://w2.test:8000 is draining: ` + refused}, []string{"w1"}},
		{"an allow-set", allowed, []string{`worker "w2-of-two" at http://w2-of-two.test:8000 is ejected: ` + refused}, []string{"w1"}},
	} {
		_, err := w.Select(t.Context(), c.req)
		e := asError(err)
		if e == nil || e.Err == nil {
			t.Errorf("%s: got %#v, want an error with a cause", c.name, err)
			continue
		}
		for _, text := range c.names {
			if !strings.Contains(e.Err.Error(), text) {
				t.Errorf("%s: the cause is %q, want it to say %q", c.name, e.Err, text)
			}
		}
		for _, text := range c.not {
			if strings.Contains(e.Err.Error(), text) {
				t.Errorf("%s: the cause is %q, which names %s", c.name, e.Err, text)
			}
		}
		if strings.Contains(e.Message, "http://") || strings.Contains(e.Message, refused) {
			t.Errorf("%s: the message is %q", c.name, e.Message)
		}
	}
}

func TestOfManyWorkersThatAreNotReadyAFewAreNamed(t *testing.T) {
	w := newWorld(t, use("builtin:kv-aware"), nil)
	all := workers("m1", 10)
	w.join(t, all...)
	for _, rec := range all {
		if err := w.SetLifecycle(fleet.IDFromName(rec.Name), core.Ejected, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.Select(t.Context(), bookRequest("", nil))
	e := asError(err)
	if e == nil || e.Err == nil {
		t.Fatalf("got %#v, want an error with a cause", err)
	}
	if got := e.Err.Error(); strings.Count(got, " is ejected") != 3 || !strings.HasSuffix(got, fmt.Sprintf("and %d more", len(all)-3)) {
		t.Errorf("the cause is %q, want three workers and that there are 7 more", got)
	}
}
