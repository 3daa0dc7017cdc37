package selection_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

func TestRow_ReservationsFromACachedSelection(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select", `{"selection_id":"c1",`+nine+`,"pinned_worker":{"worker_id":1,"dp_rank":0}}`).want(t, 200)
	got := w.post(t, "/reservations", `{"selection_id":"c1"}`).want(t, 201)
	want := `{"selection_id":"c1","model_name":"default","routing_group":"default","worker_id":1,"dp_rank":0,"endpoint":"http://127.0.0.1:20001"}`
	if d := cmp.Diff(want, string(got.body)); d != "" {
		t.Error(d)
	}
	if n, prefill, decode := w.active(); n != 1 || prefill != 9 || decode != 3 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
	again := w.post(t, "/reservations", `{"selection_id":"c1"}`).want(t, 404)
	text := "no pending selection c1 for model=default routing_group=default (expired, already used, or never selected)"
	if got := again.at(t, "error.message"); got != text {
		t.Errorf("got %q", got)
	}
	w.post(t, "/select", `{"selection_id":"c2",`+nine+`}`).want(t, 200)
	w.post(t, "/reservations", `{"selection_id":"c2","model_name":"other"}`).want(t, 404)
	w.post(t, "/select_and_reserve", `{"selection_id":"c3",`+nine+`}`).want(t, 200)
	w.post(t, "/select", `{"selection_id":"c3",`+nine+`}`).want(t, 200)
	w.post(t, "/reservations", `{"selection_id":"c3"}`).want(t, 409) // it stays for later
	w.do(t, "DELETE", "/reservations/c3", "").want(t, 200)
	w.post(t, "/reservations", `{"selection_id":"c3","dp_rank":1,"token_ids":[1]}`).want(t, 201)
}

func TestRow_ReservationsOfASelectionWhoseWorkerHasLeft(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select", `{"selection_id":"c1",`+nine+`,"pinned_worker":{"worker_id":1,"dp_rank":0}}`).want(t, 200)
	w.remove(t, 1)
	w.post(t, "/reservations", `{"selection_id":"c1"}`).want(t, 404)
}

func TestRow_ReservationsWithWorkerAndPrompt(t *testing.T) {
	w := two(t, options{})
	got := w.post(t, "/reservations", `{"selection_id":"c2","worker_id":2,"dp_rank":1,"token_ids":[1,2,3,4]}`).want(t, 201)
	want := `{"selection_id":"c2","model_name":"default","routing_group":"default","worker_id":2,"dp_rank":1,"endpoint":"http://127.0.0.1:20002"}`
	if d := cmp.Diff(want, string(got.body)); d != "" {
		t.Error(d)
	}
	// Without effective_prefill_tokens nothing counts as left to prefill.
	if n, prefill, decode := w.active(); n != 1 || prefill != 0 || decode != 1 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
	for i, tc := range []struct {
		body    string
		status  int
		prefill int64
	}{
		{`"worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":3`, 201, 3},
		{`"worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":3,"track_prefill_tokens":false`, 201, 0},
		{`"worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":3,"router_config_override":{"track_prefill_tokens":false}`, 201, 3},
		{`"worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":9`, 400, 0},
		{`"worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":-1`, 400, 0},
		{`"worker_id":99,"token_ids":[1,2,3,4]`, 404, 0},
		{`"worker_id":2,"dp_rank":9,"token_ids":[1,2,3,4]`, 404, 0},
		{`"worker_id":2,"model_name":"nope","token_ids":[1,2,3,4]`, 503, 0},
		{`"worker_id":2`, 400, 0},
		{`"worker_id":2,"sequence_hashes":[1,2]`, 400, 0},
		{`"worker_id":2,"sequence_hashes":[1,2],"isl_tokens":8,"effective_prefill_tokens":8`, 201, 8},
		{`"worker_id":2,"token_ids":[1],"advisory":true`, 400, 0},
	} {
		_, before, _ := w.active()
		a := w.post(t, "/reservations", fmt.Sprintf(`{"selection_id":"e%d",%s}`, i, tc.body))
		_, after, _ := w.active()
		if a.status != tc.status || after-before != tc.prefill {
			t.Errorf("%s: got %d and %d tokens, want %d and %d: %s", tc.body, a.status, after-before, tc.status, tc.prefill, a.body)
		}
	}
	a := w.post(t, "/reservations", `{"selection_id":"x","worker_id":99,"token_ids":[1]}`)
	if got := a.at(t, "error.message"); got != "schedulable worker 99 not found for model=default routing_group=default" {
		t.Errorf("got %q", got)
	}
	a = w.post(t, "/reservations", `{"selection_id":"x","worker_id":2,"token_ids":[1,2,3,4],"effective_prefill_tokens":9}`)
	if got := a.at(t, "error.message"); got != "effective_prefill_tokens (9) must not exceed isl_tokens (4)" {
		t.Errorf("got %q", got)
	}
	w.post(t, "/reservations", `{"worker_id":2,"token_ids":[1,2,3,4]}`).want(t, 422)
}

func TestRow_DuplicateSelectionIDWhileBooked(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`}`).want(t, 200)
	for path, body := range map[string]string{
		"/select_and_reserve": `{"selection_id":"r1",` + nine + `}`, "/reservations": `{"selection_id":"r1","worker_id":2,` + nine + `}`,
	} {
		if got := w.post(t, path, body).want(t, 409).at(t, "error.message"); got != "selection r1 is already reserved or being reserved" {
			t.Errorf("%s: %q", path, got)
		}
	}
	if n, _, _ := w.active(); n != 1 {
		t.Errorf("%d bookings", n)
	}
}

func TestR2_AReservationIsFreedOnce(t *testing.T) {
	w := two(t, options{})
	var got []int64
	look := func() {
		n, _, _ := w.active()
		got = append(got, n)
	}
	reserve := func() { w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`}`).want(t, 200); look() }
	free := func(status int) answer {
		defer look()
		return w.do(t, "DELETE", "/reservations/r1", "").want(t, status)
	}
	reserve()
	if body := string(free(200).body); body != `{"status":"ok"}` {
		t.Errorf("got %s", body)
	}
	if text := free(404).at(t, "error.message"); text != "reservation r1 not found" {
		t.Errorf("got %q", text)
	}
	reserve()
	free(200)
	if d := cmp.Diff([]int64{1, 0, 0, 1, 0}, got); d != "" {
		t.Error(d)
	}
}

func TestRow_DeleteTwiceAndLifecycleCallsOnUnknownIDs(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select_and_reserve", `{"selection_id":"a/b ü",`+nine+`}`).want(t, 200)
	w.do(t, "DELETE", "/reservations/a%2Fb%20%C3%BC", "").want(t, 200)
	for _, id := range []string{"a%2Fb%20%C3%BC", "zz", strings.Repeat("z", 300)} {
		w.do(t, "DELETE", "/reservations/"+id, "").want(t, 404)
		w.post(t, "/reservations/"+id+"/prefill_complete", "").want(t, 404)
		w.post(t, "/reservations/"+id+"/output_block", "{}").want(t, 404)
	}
}

func TestR6_LifecycleCallsOutOfOrderAndOutOfRange(t *testing.T) {
	w := two(t, options{})
	complete := func(status int) { w.post(t, "/reservations/r1/prefill_complete", "").want(t, status) }
	complete(404)
	w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`}`).want(t, 200)
	complete(200)
	complete(200)
	if n, prefill, decode := w.active(); n != 1 || prefill != 0 || decode != 3 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
	for body, status := range map[string]int{
		`{"decay_fraction":1.5}`: 400, `{"decay_fraction":-1}`: 400, `{"decay_fraction":NaN}`: 400, `{"decay_fraction":"0.5"}`: 422, `{"decay":1}`: 400, `[]`: 422, `{`: 400, ``: 400,
		`{"decay_fraction":0.5} x`: 400, `{"decay_fraction":0.5,"decay_fraction":0.5}`: 400,
	} {
		if a := w.post(t, "/reservations/r1/output_block", body); a.status != status {
			t.Errorf("%s: got %d, want %d: %s", body, a.status, status, a.body)
		}
	}
	if n, prefill, decode := w.active(); n != 1 || prefill != 0 || decode != 3 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
	w.do(t, "DELETE", "/reservations/r1", "").want(t, 200)
	complete(404)
	if n, prefill, decode := w.active(); n != 0 || prefill != 0 || decode != 0 {
		t.Errorf("loads %d %d %g", n, prefill, decode)
	}
}

func TestRow_PrefillCompleteIsIdempotentAndItsBodyMayBeEmpty(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`}`).want(t, 200)
	for _, body := range []string{"", "{}", ""} {
		if got := string(w.post(t, "/reservations/r1/prefill_complete", body).want(t, 200).body); got != `{"status":"ok"}` {
			t.Errorf("got %s", got)
		}
	}
	w.post(t, "/reservations/r1/prefill_complete", `{"x":1}`).want(t, 400)
}

func TestRow_OutputBlockNeedsABodyAndAFractionInRange(t *testing.T) {
	w := two(t, options{})
	w.post(t, "/select_and_reserve", `{"selection_id":"r1",`+nine+`}`).want(t, 200)
	w.post(t, "/reservations/r1/output_block", "").want(t, 400)
	w.post(t, "/reservations/r1/output_block", `{"decay_fraction":2}`).want(t, 400)
	for i, body := range []string{`{}`, `{"decay_fraction":null}`, `{"decay_fraction":1}`, `{"decay_fraction":1.0}`} {
		w.post(t, "/reservations/r1/output_block", body).want(t, 200)
		if _, _, decode := w.active(); decode != float64(4+i) {
			t.Errorf("%g blocks after %d", decode, i+1)
		}
	}
	w.post(t, "/reservations/r1/output_block", `{"decay_fraction":0.5}`).want(t, 200)
	if _, _, decode := w.active(); decode != 4 {
		t.Errorf("%g blocks at a half", decode)
	}
}

func TestRow_SessionIDs(t *testing.T) {
	w := two(t, options{core: withSessions})
	long := strings.Repeat("s", 300)
	for body, status := range map[string]int{
		`"session_id":"` + long + `"`: 400, `"session_context":{"session_id":"` + long + `"}`: 400, `"session_id":""`: 200, `"session_id":null`: 200, `"session_id":7`: 422,
		`"session_context":{}`: 422, `"session_context":{"session_id":null}`: 422,
		`"session_context":{"session_id":"s","input_trigger":"bad"}`:                                                      422,
		`"session_context":{"session_id":"s","agent_headers":{"x-claude-code-foo":"1"}}`:                                  422,
		`"session_context":{"session_id":"s","agent_headers":{"x-claude-code-foo":["1","2"]}}`:                            200,
		`"session_context":{"session_id":"s","parent_session_id":"p","session_final":true,"input_trigger":"tool_result"}`: 200,
		`"session_context":{"session_id":"s","x":1}`:                                                                      400,
	} {
		if a := w.post(t, "/select_and_reserve", `{"token_ids":[1],`+body+`}`); a.status != status {
			t.Errorf("%.80s: got %d, want %d: %s", body, a.status, status, a.body)
		}
	}
	for body, item := range map[string]string{
		`"session_id":"` + long + `"`: "session_id", `"session_context":{"session_id":"` + long + `"}`: "session_context.session_id", `"pinned_worker":{"worker_id":9,"dp_rank":0}`: "pinned_worker",
	} {
		if got := w.post(t, "/select", `{"token_ids":[1],`+body+`}`).at(t, "error.details.item"); got != item {
			t.Errorf("%.80s: item %s", body, got)
		}
	}
}

// bind books a session on a worker and returns the booking's id.
func (w *world) bind(t testing.TB, session, worker string) string {
	t.Helper()
	a := w.post(t, "/select_and_reserve", `{"token_ids":[1],"session_id":"`+session+`","allowed_worker_ids":[`+worker+`]}`).want(t, 200)
	return a.at(t, "selection_id")
}

func TestRow_SelectWithABoundSessionReturnsTheBoundWorker(t *testing.T) {
	w := newWorld(t, options{core: withSessions})
	w.join(t, worker(1), worker(2))
	w.bind(t, "s1", "2")
	for range 5 {
		if got := w.post(t, "/select", `{"token_ids":[1],"session_id":"s1"}`).want(t, 200).at(t, "worker_id"); got != "2" {
			t.Errorf("worker %s", got)
		}
	}
	// The structured session wins over the flat one, also where it names none.
	if got := w.post(t, "/select", `{"token_ids":[1],"session_id":"other","session_context":{"session_id":"s1"}}`).want(t, 200).at(t, "worker_id"); got != "2" {
		t.Errorf("worker %s", got)
	}
	if got := w.post(t, "/select", `{"token_ids":[1],"session_id":"s1","session_context":{"session_id":""}}`).want(t, 200).at(t, "worker_id"); got != "1" {
		t.Errorf("worker %s", got)
	}
}

func TestRow_PlainSelectBindsNoSession(t *testing.T) {
	w := two(t, options{core: withSessions})
	w.post(t, "/select", `{"token_ids":[1],"session_id":"s1","allowed_worker_ids":[2]}`).want(t, 200)
	w.post(t, "/select", `{"token_ids":[1],"session_id":"s1","advisory":true,"allowed_worker_ids":[2]}`).want(t, 200)
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"session_id":"s1","allowed_worker_ids":[1]}`).want(t, 200)
}

func TestRow_SessionBoundToOneWorkerAndBookingAllowedOnAnother(t *testing.T) {
	w := newWorld(t, options{core: withSessions})
	w.join(t, worker(2), worker(3))
	w.bind(t, "s1", "2")
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"session_id":"s1","allowed_worker_ids":[3]}`).want(t, 400)
	if got := w.post(t, "/select", `{"token_ids":[1],"session_id":"s1","allowed_worker_ids":[3]}`).want(t, 200).at(t, "worker_id"); got != "3" {
		t.Errorf("worker %s", got)
	}
	if n, _, _ := w.active(); n != 1 {
		t.Errorf("%d bookings", n)
	}
}

func TestRow_LiveBookingPastTheTTLIsStillBound(t *testing.T) {
	const ttl = time.Second
	w := two(t, options{core: func(c *core.Config) { c.Affinity.TTL = ttl }})
	id := w.bind(t, "s1", "2")
	w.core.Tick(time.Now().Add(3 * ttl))
	if got := w.post(t, "/select", `{"token_ids":[1],"session_id":"s1"}`).want(t, 200).at(t, "worker_id"); got != "2" {
		t.Errorf("worker %s", got)
	}
	w.do(t, "DELETE", "/reservations/"+id, "").want(t, 200)
	w.core.Tick(time.Now().Add(3 * ttl))
	w.post(t, "/select_and_reserve", `{"token_ids":[1],"session_id":"s1","allowed_worker_ids":[1]}`).want(t, 200)
}

func TestRow_BoundWorkerDeleted(t *testing.T) {
	w := two(t, options{core: withSessions})
	id := w.bind(t, "s1", "2")
	w.remove(t, 2)
	if got := w.post(t, "/select_and_reserve", `{"token_ids":[1],"session_id":"s1"}`).want(t, 200).at(t, "worker_id"); got != "1" {
		t.Errorf("worker %s", got)
	}
	w.do(t, "DELETE", "/reservations/"+id, "").want(t, 404)
	w.post(t, "/reservations/"+id+"/prefill_complete", "").want(t, 404)
}

func TestACachedSelectionWhoseSessionHasMovedIsRefusedAndGone(t *testing.T) {
	w := newWorld(t, options{core: withSessions})
	w.join(t, worker(2), worker(3))
	w.post(t, "/select", `{"selection_id":"c","token_ids":[1],"session_id":"s1","allowed_worker_ids":[3]}`).want(t, 200)
	w.bind(t, "s1", "2")
	w.post(t, "/reservations", `{"selection_id":"c"}`).want(t, 400)
	w.post(t, "/reservations", `{"selection_id":"c"}`).want(t, 404)
}

func TestRow_PolicyFaultsAreAnsweredByTheFallback(t *testing.T) {
	w := newWorld(t, options{spec: faulty(), stages: faults{}})
	w.join(t, worker(1), worker(2, func(r *fleet.Record) { r.DPSize = 2 }))
	for range 5 {
		w.post(t, "/select_and_reserve", `{`+nine+`}`).want(t, 200)
	}
}
