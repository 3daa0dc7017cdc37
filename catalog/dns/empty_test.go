package dns_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// answers is a resolver that says what it is told to.
type answers struct {
	mu        sync.Mutex // guards the fields below
	addresses []netip.Addr
	err       error
}

func (a *answers) say(addresses []netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addresses, a.err = addresses, err
}

func (a *answers) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.New("not asked here")
}

func (a *answers) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addresses, a.err
}

var (
	one     = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	nothing = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	lost    = &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
)

func later(d time.Duration) { <-time.After(d) } // the bubble's clock

func TestAnEmptyAnswerIsBelievedAfterAWhile(t *testing.T) {
	cfg := dns.Config{Record: dns.A, Host: name, Port: 8000}.WithDefaults()
	synctest.Test(t, func(t *testing.T) {
		r := &answers{err: nothing}
		src := dns.New(cfg, r)
		if got := names(t, src); len(got) != 0 { // there was nothing that it could end
			t.Errorf("got %v", got)
		}
		r.say(one, nil)
		want := []string{"127.0.0.2:8000"}
		is := func(what string) {
			t.Helper()
			if diff := cmp.Diff(want, names(t, src)); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		is("an answer")
		later(time.Hour)
		r.say(nil, nothing)
		is("the first empty answer")
		later(cfg.EmptyAfter - time.Nanosecond)
		is("the last one within the time")
		r.say(nil, lost)
		if _, err := src.List(t.Context()); err == nil {
			t.Error("a failure is no error")
		}
		r.say(nil, nothing)
		later(cfg.EmptyAfter)
		is("the first one after a failure")
		later(cfg.EmptyAfter / 2)
		r.say(one, nil)
		is("an answer in between")
		r.say(nil, nothing)
		later(cfg.EmptyAfter)
		is("the first one after an answer")
		later(cfg.EmptyAfter)
		want = []string{}
		is("a second one when the time is over")
	})
}

func TestWatchLooksUpInTimeAndGivesWhatChanged(t *testing.T) {
	cfg := dns.Config{Record: dns.A, Host: name, Port: 8000}.WithDefaults()
	synctest.Test(t, func(t *testing.T) {
		r := &answers{addresses: one}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var given [][]fleet.Record
		ended := make(chan error, 1)
		go func() {
			ended <- dns.New(cfg, r).Watch(ctx, func(list []fleet.Record) error {
				given = append(given, list)
				return errors.New("refused")
			})
		}()
		later(10 * cfg.Interval)
		synctest.Wait()
		if len(given) != 1 {
			t.Errorf("given %d times", len(given))
		}
		r.say(nil, nothing)
		later(cfg.Interval + cfg.EmptyAfter)
		synctest.Wait()
		if len(given) != 2 || len(given[1]) != 0 {
			t.Errorf("given %v", given)
		}
		r.say(nil, lost)
		later(cfg.Interval)
		if err := <-ended; err == nil {
			t.Error("a failure is no error")
		}
		if len(given) != 2 {
			t.Errorf("given %v", given)
		}
	})
}

// nowhere takes every worker and counts the changes.
type nowhere struct{ upserts, removals chan fleet.WorkerID }

func (nowhere) Prepare(context.Context, fleet.PartitionKey, int) error { return nil }

func (n nowhere) Commit(ch core.Change) error {
	for _, m := range ch.Upserts {
		n.upserts <- m.Record.ID
	}
	for _, id := range ch.Removals {
		n.removals <- id
	}
	return nil
}
func (nowhere) Listen(catalog.Listening, func() *fleet.Record) error { return nil }
func (nowhere) Unlisten(fleet.PartitionKey, ...fleet.Worker)         {}
func (nowhere) Configured(string) int                                { return 16 }
func (nowhere) Ask(context.Context, fleet.Record) (catalog.Facts, error) {
	return catalog.Facts{}, errors.New("no engine")
}

func TestM7_AFleetOutlivesItsNameServer(t *testing.T) {
	cfg := dns.Config{Record: dns.A, Host: "fleet.test.", Port: 8000, Template: fleet.Record{Model: "m"}}.WithDefaults()
	synctest.Test(t, func(t *testing.T) {
		two := []netip.Addr{one[0], netip.MustParseAddr("127.0.0.3")}
		r := &answers{addresses: two}
		seen := nowhere{make(chan fleet.WorkerID, 10), make(chan fleet.WorkerID, 10)}
		log := slog.New(slog.DiscardHandler)
		sources := catalog.NewSources(catalog.New(catalog.Parts{Core: seen, Listeners: seen, Engines: seen}, log), log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sources.Follow(ctx, dns.New(cfg, r), catalog.DefaultFollowConfig()) }()
		later(time.Minute)
		r.say(nil, lost)
		later(20 * time.Second)
		if st := sources.Status()[0]; st.Up || st.Workers != 2 || !strings.Contains(st.Err, "server misbehaving") || st.Name != "dns:fleet.test" {
			t.Errorf("it stands as %+v", st)
		}
		r.say(two, nil)
		later(40 * time.Second)
		if st := sources.Status()[0]; !st.Up || st.Err != "" {
			t.Errorf("it stands as %+v", st)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(seen.upserts) != 2 || len(seen.removals) != 0 {
			t.Errorf("%d upserts, %d removals", len(seen.upserts), len(seen.removals))
		}
	})
}
