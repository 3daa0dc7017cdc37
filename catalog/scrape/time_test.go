package scrape_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/catalog/scrape"
	"github.com/routerd/routerd/fleet"
)

const plain = "vllm:num_requests_running 1\n"

func TestAReportThatIsTooOldIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, s := piped()
		defer start(t, s)()
		wait(3 * time.Second)
		if !known(s, w1)() {
			t.Fatal("no report")
		}
		for age, _ := s.AgeOf(w1); age > 20*time.Millisecond; age, _ = s.AgeOf(w1) {
			wait(10 * time.Millisecond)
		}
		e.hangs("w1:1", true)
		wait(8 * time.Second)
		if !known(s, w1)() {
			t.Error("no report before it was old")
		}
		wait(4 * time.Second)
		if known(s, w1)() {
			t.Error("an old report was handed out")
		}
		if age, ok := s.AgeOf(w1); !ok || age < 10*time.Second || age > 13*time.Second {
			t.Errorf("age %v, %v", age, ok)
		}
		live := scrape.DefaultConfig()
		live.MaxAge = time.Minute
		s.Configure(live)
		if !known(s, w1)() {
			t.Error("the longer age is not in force")
		}
		e.hangs("w1:1", false)
		wait(7 * time.Second)
		if age, _ := s.AgeOf(w1); age > 2*time.Second {
			t.Errorf("age %v after it came back", age)
		}
	})
}

func TestQuestionsAreSpreadByAFifth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, s := piped()
		defer start(t, s)()
		wait(300 * time.Second)
		times := e.times("/metrics")
		if n := len(times); n < 270 || n > 340 {
			t.Errorf("asked %d times in 300 s", n)
		}
		least, most := time.Hour, time.Duration(0)
		for i, at := range times[1:] {
			gap := at.Sub(times[i])
			least, most = min(least, gap), max(most, gap)
		}
		if least < 800*time.Millisecond || least > 850*time.Millisecond || most > 1201*time.Millisecond || most < 1150*time.Millisecond {
			t.Errorf("pauses from %v to %v", least, most)
		}
	})
}

func TestAWorkerThatLeftIsNotAskedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEngine(plain, cards())
		e.hangs("w3:1", true)
		workers := listOf(record(1, "http://w1:1"), record(2, "http://w2:1"), record(3, "http://w3:1"))
		s := scrape.New(scrape.DefaultConfig(), workers, discard())
		s.SetDial(e.dial)
		defer start(t, s)()
		wait(3 * time.Second)
		workers.set(record(2, "http://w2:1"))
		wait(2 * time.Second)
		left, stayed, hung := e.count("w1:1"), e.count("w2:1"), e.count("w3:1")
		if known(s, w1)() {
			t.Error("its report is still handed out")
		}
		if _, ok := s.AgeOf(w1); ok {
			t.Error("it still has an age")
		}
		wait(20 * time.Second)
		if got := e.count("w1:1"); got != left {
			t.Errorf("asked %d times after it left", got-left)
		}
		if got := e.count("w3:1"); got != hung {
			t.Errorf("the hanging one was asked %d times after it left", got-hung)
		}
		if got := e.count("w2:1"); got < stayed+15 {
			t.Errorf("the one that stayed was asked %d times", got-stayed)
		}
		workers.set(record(1, "http://w1:1"))
		wait(2 * time.Second)
		if !known(s, w1)() {
			t.Error("it has no report after it came back")
		}
	})
}

func TestAWorkerWithAnotherPlaceStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, workers, s := piped()
		defer start(t, s)()
		wait(3 * time.Second)
		renamed := record(1, "http://w1:1")
		renamed.Labels = map[string]string{"a": "b"}
		workers.set(renamed)
		wait(300 * time.Millisecond)
		if !known(s, w1)() {
			t.Error("a label took its report")
		}
		e.hangs("elsewhere:1", true)
		workers.set(record(1, "http://elsewhere:1"))
		wait(300 * time.Millisecond)
		if known(s, w1)() {
			t.Error("it has the report of the place before")
		}
	})
}

func TestAskingCanBeTurnedOffAndOnLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEngine(plain, cards())
		off := scrape.DefaultConfig()
		off.Interval = 0
		s := scrape.New(off, listOf(record(1, "http://w1:1")), discard())
		s.SetDial(e.dial)
		defer start(t, s)()
		wait(10 * time.Second)
		if n := e.count("/metrics"); n != 0 {
			t.Errorf("asked %d times while off", n)
		}
		slow := scrape.DefaultConfig()
		slow.Interval = time.Minute
		s.Configure(slow)
		wait(20 * time.Second)
		if n := e.count("/metrics"); n != 1 {
			t.Errorf("asked %d times in 20 s once a minute", n)
		}
		s.Configure(scrape.DefaultConfig())
		wait(10 * time.Second)
		if n := e.count("/metrics"); n < 8 {
			t.Errorf("asked %d times in 10 s once a second", n)
		}
		s.Configure(off)
		wait(2 * time.Second)
		n := e.count("/metrics")
		wait(10 * time.Second)
		if got := e.count("/metrics"); got != n || known(s, w1)() {
			t.Errorf("asked %d times after it was turned off", got-n)
		}
	})
}

// TestE3_SilentEnginesCostNoOthersReport has many engines hang among a few that
// answer.
func TestE3_SilentEnginesCostNoOthersReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good, bad = 50, 400
		e := newPipeEngine(plain, cards())
		var records []fleet.Record
		for i := range good + bad {
			r := record(fleet.WorkerID(1+i), fmt.Sprintf("http://w%d:1", 1+i))
			records = append(records, r)
		}
		s := scrape.New(scrape.DefaultConfig(), listOf(records...), discard())
		s.SetDial(e.dial)
		defer start(t, s)()
		wait(5 * time.Second)
		oldest := func() (age time.Duration) {
			for i := range good {
				a, ok := s.AgeOf(fleet.Worker{ID: fleet.WorkerID(1 + i)})
				if !ok {
					t.Fatalf("worker %d has no report", 1+i)
				}
				age = max(age, a)
			}
			return age
		}
		for i := range bad {
			e.hangs(fmt.Sprintf("w%d:1", 1+good+i), true)
		}
		// While all of them are found out at once.
		worst := time.Duration(0)
		for range 100 {
			wait(100 * time.Millisecond)
			worst = max(worst, oldest())
		}
		t.Logf("oldest report of an engine that answers: %v in the first 10 s", worst)
		if worst > 5*time.Second {
			t.Errorf("a report grew %v old", worst)
		}
		for range 300 {
			wait(100 * time.Millisecond)
			if age := oldest(); age > 1300*time.Millisecond {
				t.Fatalf("a report is %v old", age)
			}
		}
		if most := e.atOnce(); most > 64 {
			t.Errorf("%d asked at once", most)
		}
		for i := range bad {
			if known(s, fleet.Worker{ID: fleet.WorkerID(1 + good + i)})() {
				t.Fatal("a silent engine has a report")
			}
		}
	})
}

func TestFiveThousandWorkersAreAskedOnceASecond(t *testing.T) {
	allAskedInTime(t, 5000, 3*time.Millisecond, 4*time.Second, 1300*time.Millisecond)
}

func TestSlowEnginesKeepTheirReports(t *testing.T) {
	const slow = 500 * time.Millisecond // more than a prompt one may take
	allAskedInTime(t, 100, slow, 20*time.Second, 3*time.Second)
}

// allAskedInTime has engines that take delay to answer, and looks after a while whether
// each has a report that is young enough.
func allAskedInTime(t *testing.T, workers int, delay, after, age time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEngine(plain, cards())
		e.delay = delay
		var records []fleet.Record
		for i := range workers {
			records = append(records, record(fleet.WorkerID(1+i), fmt.Sprintf("http://w%d:1", 1+i)))
		}
		s := scrape.New(scrape.DefaultConfig(), listOf(records...), discard())
		s.SetDial(e.dial)
		defer start(t, s)()
		wait(after)
		for i := range workers {
			if got, ok := s.AgeOf(fleet.Worker{ID: fleet.WorkerID(1 + i)}); !ok || got > age {
				t.Fatalf("worker %d: age %v, %v", 1+i, got, ok)
			}
		}
		if most := e.atOnce(); most > 64 {
			t.Errorf("%d asked at once", most)
		}
	})
}
