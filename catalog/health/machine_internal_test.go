package health

import (
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
)

// letters feeds a machine probe results, S or F, a second apart, and tells after
// each whether it may serve: + or -.
func letters(m *machine, r *Config, now *time.Time, results string) string {
	var out []byte
	for _, l := range results {
		a := answer{}
		if l == 'F' {
			a.result = resultRefused
		}
		*now = now.Add(time.Second)
		m.probe(r, *now, a)
		if m.verdict(r, *now).state == fit {
			out = append(out, '+')
		} else {
			out = append(out, '-')
		}
	}
	return string(out)
}

func TestM8_OutAfterThreeFailuresInARowBackAfterTwoSuccesses(t *testing.T) {
	for _, c := range []struct {
		name                string
		failures, successes int
		results, want       string
	}{
		{"the case", 3, 2, "FSFFSFFFSS", "-++++++--+"},
		{"one success lets a new worker in", 3, 2, "FFFFS", "----+"},
		{"a failure begins the successes anew", 3, 2, "SFFFSFSFSS", "+++------+"},
		{"a success begins the failures anew", 3, 2, "SFFSFFSFFF", "+++++++++-"},
		{"thresholds of one", 1, 1, "SFSFS", "+-+-+"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Failures, cfg.Successes = c.failures, c.successes
			now := time.Unix(0, 0)
			m := &machine{since: now}
			if got := letters(m, &cfg, &now, c.results); got != c.want {
				t.Errorf("after %s: %s, want %s", c.results, got, c.want)
			}
		})
	}
}

// ejections ejects a machine that many times, each time well for as long as given
// before, and returns how long each lasts.
func ejections(cfg *Config, well ...time.Duration) (lasted []time.Duration) {
	now := time.Unix(0, 0)
	m := &machine{since: now}
	m.probe(cfg, now, answer{})
	for _, w := range well {
		now = now.Add(w)
		for range cfg.Passive.Failures {
			m.passive(cfg, now, fleet.ServerError)
		}
		lasted = append(lasted, m.until.Sub(now))
		now = m.until
		m.probe(cfg, now, answer{})
	}
	return lasted
}

func TestEjectionsDoubleAndHalveWithHealth(t *testing.T) {
	cfg := DefaultConfig()
	s := time.Second
	for _, c := range []struct {
		name       string
		well, want []time.Duration
	}{
		{"one soon after the other", []time.Duration{0, s, s, s, s, s, s}, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}},
		{"well as long as it was out", []time.Duration{0, s, s, 40 * s}, []time.Duration{10 * s, 20 * s, 40 * s, 40 * s}},
		{"well for long", []time.Duration{0, s, s, 70 * s}, []time.Duration{10 * s, 20 * s, 40 * s, 10 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ejections(&cfg, c.well...)
			for i := range c.want {
				if got[i] != c.want[i] {
					t.Fatalf("ejections last %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestPassiveFailuresCountWithinTheWindowOnly(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct {
		name string
		gap  time.Duration
		out  bool
	}{
		{"in time", 2500 * time.Millisecond, true},
		{"too slow", 2501 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			m := &machine{since: now}
			m.probe(&cfg, now, answer{})
			for range 20 {
				now = now.Add(c.gap)
				m.passive(&cfg, now, fleet.Timeout)
			}
			if out := m.verdict(&cfg, now).state == unfit; out != c.out {
				t.Errorf("out is %v, want %v", out, c.out)
			}
			if len(m.strikes) > cfg.Passive.Failures {
				t.Errorf("%d strikes are kept, want at most %d", len(m.strikes), cfg.Passive.Failures)
			}
		})
	}
	t.Run("0 is off", func(t *testing.T) {
		off := cfg
		off.Passive.Failures = 0
		m := &machine{}
		m.probe(&off, time.Unix(0, 0), answer{})
		for range 100 {
			m.passive(&off, time.Unix(0, 0), fleet.ServerError)
		}
		if v := m.verdict(&off, time.Unix(0, 0)); v.state != fit {
			t.Errorf("verdict %+v, want fit", v)
		}
	})
}

func TestWhatSaysNothingOfAWorkerChangesNothing(t *testing.T) {
	cfg := DefaultConfig()
	now := time.Unix(0, 0)
	m := &machine{since: now}
	letters(m, &cfg, &now, "S")
	for i := range 20 {
		o := fleet.NoOutcome
		if i%2 == 0 && i/2 < cfg.Passive.Failures-1 {
			o = fleet.ServerError
		}
		m.passive(&cfg, now, o)
	}
	if v := m.verdict(&cfg, now); v.state != fit || len(m.strikes) != cfg.Passive.Failures-1 {
		t.Errorf("verdict %+v with %d strikes", v, len(m.strikes))
	}
}

// A worker that never served, or is out, is not judged by requests.
func TestPassiveFailuresOfAWorkerThatIsOutChangeNothing(t *testing.T) {
	cfg := DefaultConfig()
	now := time.Unix(0, 0)
	for name, before := range map[string]string{"never answered": "F", "down": "SFFF"} {
		m := &machine{since: now}
		letters(m, &cfg, &now, before)
		for range 10 {
			m.passive(&cfg, now, fleet.ConnectFailed)
		}
		m.setBreaker(now, !m.joined, "")
		if m.ejected != "" || len(m.strikes) > 0 {
			t.Errorf("%s: ejected %q with %d strikes, want neither", name, m.ejected, len(m.strikes))
		}
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		answer answer
		want   string
	}{
		{answer{result: resultTimeout}, "health_timeout: no answer within 2s"},
		{answer{result: resultRefused}, "health_refused"},
		{answer{result: resultUnreachable}, "health_unreachable"},
		{answer{result: resultBroken}, "health_broken"},
		{answer{resultStatus, 503}, "health_status: 503 from /v1/ready"},
		{answer{}, ""},
	} {
		if got := c.answer.reason(&Config{Timeout: 2 * time.Second, Path: "/v1/ready"}); got != c.want {
			t.Errorf("reason of %v is %q, want %q", c.answer, got, c.want)
		}
	}
	long := worded(wordBreaker, "5 in\na row \xff"+string(make([]byte, 500)))
	if len(long) > maxDetail+40 || wordOf(long) != wordBreaker {
		t.Errorf("worded is %q", long)
	}
	for d, want := range map[time.Duration]string{10 * time.Minute: "10m", 90 * time.Minute: "1h30m", time.Hour: "1h", 0: "0s", 2 * time.Second: "2s"} {
		if got := short(d); got != want {
			t.Errorf("short(%v) is %q, want %q", d, got, want)
		}
	}
}
