package selection_test

import (
	"sync"
	"testing"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/internal/testkit"
)

// What waits shows in /loads with its prompt tokens, and is gone from it when it runs.
func TestRow_LoadsWhileWaitingCountWhatWaits(t *testing.T) {
	w := newWorld(t, options{core: queueing})
	w.join(t, worker(1))
	first := w.post(t, "/select_and_reserve", aBooking).want(t, 200).at(t, "selection_id")
	const running = `[{"model_name":"default","routing_group":"default","loads":[` +
		`{"worker_id":1,"dp_rank":0,"potential_prefill_tokens":9,"potential_decode_blocks":3,"active_requests":1}],`
	same(t, running+`"pending_count":0,"pending_isl_tokens":0}]`, w.do(t, "GET", "/loads", ""))

	var all sync.WaitGroup
	ids := make([]string, 2)
	for i, c := range []struct {
		body, pending string
	}{
		{`{"token_ids":[1,2,3,4,5]}`, `"pending_count":1,"pending_isl_tokens":5}]`},
		{`{"token_ids":[6,7,8]}`, `"pending_count":2,"pending_isl_tokens":8}]`},
	} {
		all.Go(func() { ids[i] = w.post(t, "/select_and_reserve", c.body).at(t, "selection_id") })
		testkit.Until(t, "it waits", func() bool { return w.waiting() == i+1 })
		same(t, running+c.pending, w.do(t, "GET", "/loads", ""))
	}
	same(t, `[]`, w.do(t, "GET", "/loads?model_name=other", ""))

	w.post(t, "/reservations/"+first+"/prefill_complete", "").want(t, 200)
	testkit.Until(t, "the first that waited is booked", func() bool { active, _, _ := w.active(); return active == 2 })
	w.do(t, "DELETE", "/reservations/"+first, "").want(t, 200)
	testkit.Until(t, "the first that waited is booked", func() bool { active, _, _ := w.active(); return active == 1 })
	same(t, `[{"model_name":"default","routing_group":"default","loads":[`+
		`{"worker_id":1,"dp_rank":0,"potential_prefill_tokens":5,"potential_decode_blocks":2,"active_requests":1}],`+
		`"pending_count":1,"pending_isl_tokens":3}]`, w.do(t, "GET", "/loads", ""))
	w.core.Close() // who still waits is refused
	all.Wait()
	if ids[0] == "absent" || ids[1] != "absent" {
		t.Errorf("booked %q, want the first that waited alone", ids)
	}
}

// A class that bounds what a rank may have tells of it in its selections: decode_busy of
// a bound of requests, prefill_busy of one of tokens, the latter in an advisory's load.
func TestRow_SelectTellsWhetherItsRankIsBusy(t *testing.T) {
	const pin = `"pinned_worker":{"worker_id":1,"dp_rank":0}`
	for _, c := range []struct {
		name            string
		busy            queue.Busy
		decode, prefill [2]string // before and after a booking of nine tokens
	}{
		{"no bound", queue.Busy{}, [2]string{"absent", "absent"}, [2]string{"absent", "absent"}},
		{"requests", queue.Busy{ActiveRequests: 1}, [2]string{"false", "true"}, [2]string{"absent", "absent"}},
		{"requests, more", queue.Busy{ActiveRequests: 2}, [2]string{"false", "false"}, [2]string{"absent", "absent"}},
		{"tokens", queue.Busy{PrefillTokens: 8}, [2]string{"absent", "absent"}, [2]string{"false", "true"}},
		{"tokens, more", queue.Busy{PrefillTokens: 9}, [2]string{"absent", "absent"}, [2]string{"false", "false"}},
		{"a part of the batch", queue.Busy{PrefillFraction: 0.05}, [2]string{"absent", "absent"}, [2]string{"false", "true"}},
		{"both", queue.Busy{ActiveRequests: 1, PrefillTokens: 100}, [2]string{"false", "true"}, [2]string{"false", "false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := two(t, options{core: func(cfg *core.Config) { cfg.Queue.Classes[0].Busy = c.busy }})
			for i, when := range []string{"before", "after"} {
				a := w.post(t, "/select", `{"advisory":true,"token_ids":[7],`+pin+`}`).want(t, 200)
				if got := [2]string{a.at(t, "decode_busy"), a.at(t, "worker_load.prefill_busy")}; got != [2]string{c.decode[i], c.prefill[i]} {
					t.Errorf("%s a booking: decode_busy and prefill_busy are %v, want %s and %s", when, got, c.decode[i], c.prefill[i])
				}
				if i == 0 {
					booked := w.post(t, "/select_and_reserve", `{`+nine+`,`+pin+`}`).want(t, 200)
					if got := booked.at(t, "decode_busy"); got != c.decode[0] {
						t.Errorf("the booking says decode_busy %s, want %s", got, c.decode[0])
					}
				}
			}
		})
	}
}
