package affinity_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/affinity"
	"github.com/routerd/routerd/fleet"
)

// refused is the field that err names, empty for no error.
func refused(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	fe, ok := errors.AsType[*fleet.FieldError](err)
	if !ok || fe.Allowed == "" || fe.Value == "" {
		t.Fatalf("got %#v; want a field error with value and range", err)
	}
	return fe.Field
}

func TestR7_ConfigsOutOfRangeAreRefused(t *testing.T) {
	const ttl, entries = "affinity.ttl", "affinity.entries"
	hour := func(n int) affinity.Config { return affinity.Config{TTL: time.Hour, Entries: n} }
	lives := func(d time.Duration) affinity.Config { return affinity.Config{TTL: d, Entries: 1} }
	for name, c := range map[string]struct {
		cfg  affinity.Config
		want string
	}{
		"default":              {affinity.DefaultConfig(), ""},
		"off":                  {lives(0), ""},
		"a second":             {lives(time.Second), ""},
		"a year":               {lives(31_536_000 * time.Second), ""},
		"most entries":         {hour(65_536), ""},
		"-1ns":                 {lives(-1), ttl},
		"-1s":                  {lives(-time.Second), ttl},
		"1ns":                  {lives(1), ttl},
		"below a second":       {lives(time.Second - 1), ttl},
		"above a year":         {lives(31_536_001 * time.Second), ttl},
		"a year and a bit":     {lives(31_536_000*time.Second + 1), ttl},
		"least duration":       {lives(math.MinInt64), ttl},
		"greatest duration":    {lives(math.MaxInt64), ttl},
		"no entries":           {hour(0), entries},
		"negative entries":     {hour(-1), entries},
		"too many entries":     {hour(65_537), entries},
		"entries count if off": {affinity.Config{}, entries},
	} {
		if got := refused(t, c.cfg.Validate()); got != c.want {
			t.Errorf("%s: refused %q; want %q", name, got, c.want)
		}
	}
}

func TestR7_ATTLThatSomebodyGaveIsNotZero(t *testing.T) {
	for _, ttl := range []time.Duration{0, -1, math.MinInt64, math.MaxInt64, 31_536_001 * time.Second} {
		if got := refused(t, affinity.CheckTTL("session_affinity_ttl_secs", ttl)); got != "session_affinity_ttl_secs" {
			t.Errorf("%s: refused %q", ttl, got)
		}
	}
	if err := affinity.CheckTTL("ttl", affinity.MinTTL); err != nil {
		t.Error(err)
	}
}

// A table that was made from an unchecked config may be useless, but never panics.
func TestR7_AnUncheckedTTLNeverPanics(t *testing.T) {
	for _, ttl := range []time.Duration{math.MinInt64, -1, 1, math.MaxInt64} {
		tab := affinity.New(affinity.Config{TTL: ttl, Entries: -1})
		h := tab.Take("s", start)
		h.Commit(target(1), start).Release(start)
		tab.Reap(start)
		if got := tab.Stats().Leases; got != 0 {
			t.Errorf("%s: %d leases", ttl, got)
		}
	}
}

func TestIDsUpTo256Bytes(t *testing.T) {
	tab := newTable(8)
	for n, fits := range map[int]bool{0: true, 1: true, 256: true, 257: false, 1 << 20: false} {
		id := strings.Repeat("x", n)
		err := affinity.CheckID("session_id", id)
		if (err == nil) != fits || err != nil && (refused(t, err) != "session_id" || strings.Contains(err.Error(), "xx")) {
			t.Errorf("%d bytes: got %v", n, err)
		}
		h := tab.Take(id, start)
		want := affinity.Unpinned
		if fits && n > 0 {
			want = affinity.Initialising
		}
		if h.State() != want {
			t.Errorf("%d bytes: %s; want %s", n, h.State(), want)
		}
	}
	if diff := cmp.Diff(affinity.Stats{Initialising: 2}, tab.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOffBindsNothing(t *testing.T) {
	tab := affinity.New(affinity.DefaultConfig())
	h := tab.Take("s", start)
	if tab.Enabled() || h.State() != affinity.Unpinned || h.Commit(target(1), start) != nil {
		t.Errorf("got %v, %s", tab.Enabled(), h.State())
	}
	if got := tab.Apply(event("s", 1, version(9)), 1, start); got != affinity.IgnoredOff {
		t.Errorf("got %s", got)
	}
	if diff := cmp.Diff(affinity.Stats{}, tab.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
