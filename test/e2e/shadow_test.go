//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shadowCost is by how many percent a shadow may make requests dearer.
const shadowCost = 5

// settled waits until the shadow is through with what it was offered, and returns
// its report.
func (r *router) settled() shadowReport {
	r.t.Helper()
	var got shadowReport
	eventually(r.t, 30*time.Second, func() error {
		p := r.policy("default")
		if p.Shadow == nil {
			return fmt.Errorf("no shadow runs")
		}
		if got = p.Shadow.Report; got.Shed+got.Decided != got.Sampled {
			return fmt.Errorf("of %d sampled decisions %d were shed and %d decided", got.Sampled, got.Shed, got.Decided)
		}
		return nil
	})
	return got
}

// A shadow at 100 % under load: its report counts every decision, tells how far
// it is from the active revision, and no answer is touched by it.
func TestAShadowIsReportedAndAnswersNobody(t *testing.T) {
	t.Parallel() // it measures no times
	r := startRouter(t, three(t)+"plugins:\n"+unhurried)
	active := r.revise("lowest", byID("lowest", false))
	r.activate(active)
	same := r.revise("nearest", byDistance(1)) // another module with the same picks
	other := r.revise("highest", byID("highest", true))
	for _, c := range []struct {
		revision int
		agrees   bool
		regret   float64 // −1 is the total of w1, −3 that of w3
	}{{same, true, 0}, {other, false, 2}} {
		r.shadow(c.revision, 1)
		l := startLoad(r, callers, swapRate)
		l.reach(t, swapRate*3/2)
		shots := l.end()
		noneFailed(t, shots)
		if got := shares(shots); got[lowest] != len(shots) {
			t.Errorf("beside the shadow of %d: decided %v, want all by the active revision", c.revision, got)
		}
		got := r.settled()
		t.Logf("%d requests; %+v", len(shots), got)
		if got.Seen != uint64(len(shots)) || got.Sampled != got.Seen || got.Decided == 0 || len(got.Faults) != 0 {
			t.Errorf("got %+v, want %d decisions seen and sampled, and some decided", got, len(shots))
		}
		agreed := uint64(0)
		if c.agrees {
			agreed = got.Decided
		}
		if got.Agreed != agreed || got.Regret.Mean != c.regret || got.Regret.Max != c.regret {
			t.Errorf("got %+v, want %d agreed and regret %v", got, agreed, c.regret)
		}
		code, out, said := r.cli("policy", "show", "default")
		for _, want := range []string{"shadow", fmt.Sprint(got.Seen), fmt.Sprint(got.Decided), fmt.Sprint(got.Shed)} {
			if code != 0 || !strings.Contains(strings.ToLower(out), want) {
				t.Errorf("exit code %d, the view lacks %q: %s%s", code, want, out, said)
			}
		}
	}
	if got := r.state(other); got != "shadow" {
		t.Errorf("the revision is %s, want shadow", got)
	}
	r.promote(other)
	r.chooses(highest)
	if p := r.policy("default"); p.Shadow != nil {
		t.Errorf("after its promotion the shadow is %+v", p.Shadow)
	}
}

// cpu is the processor time that the router has used.
func (r *router) cpu() time.Duration {
	r.t.Helper()
	// The clock of another process, as clock_getcpuclockid makes it.
	const scheduled = 2
	var used unix.Timespec
	if err := unix.ClockGettime(^int32(r.cmd.Process.Pid)<<3|scheduled, &used); err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(used.Nano())
}

// cost is what requests took on average, in microseconds.
type cost struct {
	cpu float64 // processor time of the router
	own float64 // the shadow's own part of it
}

func costOf(t *testing.T, r *router, requests int) (c cost) {
	t.Helper()
	own := func() float64 {
		if p := r.policy("default"); p.Shadow != nil {
			return float64(p.Shadow.Report.Micros)
		}
		return 0
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	ownBefore, cpu := own(), r.cpu()
	shots := burst(t, r, callers, requests)
	c.cpu = micros(r.cpu() - cpu)
	c.own = own() - ownBefore
	noneFailed(t, shots)
	n := float64(len(shots))
	return cost{c.cpu / n, c.own / n}
}

// With 64 candidates a shadow of all requests costs the requests next to nothing;
// what it has no time for is shed.
func TestAShadowOfAllRequestsIsCheap(t *testing.T) {
	const workers, requests = 64, 500
	var list []*fake
	for range workers {
		list = append(list, startFake(t, func(c net.Conn, _ *seen) bool {
			say(c, whole(http.StatusOK, "", completion))
			return true
		}))
	}
	r := startRouter(t, fakes(list...))
	r.activate(r.revise("lowest", byID("lowest", false)))
	shadow := r.revise("highest", byID("highest", true))
	noneFailed(t, burst(t, r, callers, 2000))
	var without, with, own, gross, net []float64
	for i := range shadowRounds {
		var plain, shadowed cost
		measure := []func(){
			func() {
				r.must("POST", "/v1/policies/default/shadow", map[string]int{"revision": 0}, nil)
				plain = costOf(t, r, requests)
			},
			func() {
				r.shadow(shadow, 1)
				shadowed = costOf(t, r, requests)
			},
		}
		for j := range measure { // in turns, each first once
			measure[(i+j)%2]()
		}
		without, with, own = append(without, plain.cpu), append(with, shadowed.cpu), append(own, shadowed.own)
		gross = append(gross, 100*(shadowed.cpu/plain.cpu-1))
		net = append(net, 100*((shadowed.cpu-shadowed.own)/plain.cpu-1))
	}
	r.shadow(shadow, 1)
	noneFailed(t, burst(t, r, callers, requests))
	got := r.settled()
	t.Logf("a request takes %.0f us of processor time without a shadow and %.0f with it, %.1f of them the shadow's own",
		middle(without), middle(with), middle(own))
	t.Logf("%+.1f %%, %+.1f %% beside the shadow's own; the last report: %+v", middle(gross), middle(net), got)
	if rise := middle(net); rise > shadowCost*patience {
		t.Errorf("a shadow makes requests %.1f %% dearer beside its own part, want %v %% (asserted at %d times that)", rise, shadowCost, patience)
	}
	if got.Shed == 0 || got.Decided == 0 || got.Sampled != got.Seen {
		t.Errorf("got %+v, want some decided and some shed", got)
	}
}
