package dns_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/catalog/dns/dnstest"
	"github.com/routerd/routerd/catalog/sourcetest"
	"github.com/routerd/routerd/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// name is absolute, so that no search list gets in.
const name = "_http._tcp.fleet.test."

func config(record string) dns.Config {
	cfg := dns.Config{Name: "fleet", Record: record, Host: name, Interval: 10 * time.Millisecond, EmptyAfter: 20 * time.Millisecond}
	if record != dns.SRV {
		cfg.Port = 8000
	}
	return cfg.WithDefaults()
}

func source(s *dnstest.Server, cfg dns.Config) *dns.Source {
	return dns.New(cfg, dns.NewResolver(s.Address))
}

func names(t *testing.T, src *dns.Source) []string {
	t.Helper()
	list, err := src.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, rec := range list {
		out = append(out, rec.Name)
	}
	return out
}

func TestItKeepsTheContractOfASource(t *testing.T) {
	for _, c := range []struct {
		record, host string
		kind         dnsmessage.Type
	}{
		{dns.SRV, "w%d.fleet.test", dnsmessage.TypeSRV},
		{dns.A, "127.0.1.%d", dnsmessage.TypeA},
		{dns.AAAA, "[fd00::%d]", dnsmessage.TypeAAAA},
	} {
		t.Run(c.record, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Bench {
				s := dnstest.Serve(t)
				return sourcetest.Bench{
					Source: source(s, config(c.record)), Unique: true, Bare: true,
					Worker: func(n int) fleet.Record {
						at := fmt.Sprintf(c.host, n) + ":8000"
						return fleet.Record{Name: at, URL: "http://" + at}
					},
					Set:   func(list []fleet.Record) { s.Holds(name, c.kind, resources(t, c.record, list)...) },
					Break: func() { s.Fails(dnsmessage.RCodeServerFailure, false) },
					Mend:  func() { s.Fails(dnsmessage.RCodeSuccess, false) },
				}
			})
		})
	}
}

// resources are the records of the name for the workers.
func resources(t *testing.T, record string, list []fleet.Record) (bodies []dnsmessage.ResourceBody) {
	for _, rec := range list {
		u, err := url.Parse(rec.URL)
		if err != nil {
			t.Error(err)
		}
		if record != dns.SRV {
			bodies = append(bodies, dnstest.Addr(u.Hostname()))
			continue
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, dnstest.SRV(u.Hostname()+".", uint16(port)))
	}
	return bodies
}

func TestAnswersAreSortedAndWhatStandsTwiceIsOne(t *testing.T) {
	s := dnstest.Serve(t)
	s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("b.fleet.test.", 8001), dnstest.SRV("a.fleet.test.", 8001), dnstest.SRV("B.Fleet.test.", 8001), dnstest.SRV("a.fleet.test.", 8000), dnstest.SRV(".", 8000))
	want := []string{"a.fleet.test:8000", "a.fleet.test:8001", "b.fleet.test:8001"}
	if diff := cmp.Diff(want, names(t, source(s, config(dns.SRV)))); diff != "" {
		t.Error(diff)
	}
}

func TestARecordsAndAAAARecordsAreTwoFleets(t *testing.T) {
	s := dnstest.Serve(t)
	s.Holds(name, dnsmessage.TypeA, dnstest.Addr("127.0.0.2"))
	s.Holds(name, dnsmessage.TypeAAAA, dnstest.Addr("::1"), dnstest.Addr("fd00:0::2"))
	for record, want := range map[string][]string{dns.A: {"127.0.0.2:8000"}, dns.AAAA: {"[::1]:8000", "[fd00::2]:8000"}} {
		if diff := cmp.Diff(want, names(t, source(s, config(record)))); diff != "" {
			t.Errorf("%s: %s", record, diff)
		}
	}
}

func TestAnAnswerThatIsTooLongForADatagramIsAskedForOverTCP(t *testing.T) {
	s := dnstest.Serve(t)
	var bodies []dnsmessage.ResourceBody
	for i := range 300 {
		bodies = append(bodies, dnstest.SRV(fmt.Sprintf("w%d.fleet.test.", i), 8000))
	}
	s.Holds(name, dnsmessage.TypeSRV, bodies...)
	if got := names(t, source(s, config(dns.SRV))); len(got) != 300 {
		t.Errorf("%d workers", len(got))
	}
	if s.OverTCP() == 0 {
		t.Error("nothing came over TCP")
	}
}

func TestAWorkerIsWhatTheTemplateSaysAtItsPlace(t *testing.T) {
	s := dnstest.Serve(t)
	s.Holds(name, dnsmessage.TypeAAAA, dnstest.Addr("fd00::7"))
	cfg := config(dns.AAAA)
	cfg.Template = fleet.Record{
		Model: "m", Group: "g", Engine: "sglang", DPSize: 2, Labels: map[string]string{"zone": "a"}, Taints: []string{"t"},
		KVEvents: map[int]string{0: "tcp://*:5557", 1: "tcp://*:5558"}, Replay: map[int]string{0: "tcp://*:6557"},
	}
	if err := cfg.Validate(); err == nil {
		t.Error("an interval of 10ms was taken")
	}
	got, err := source(s, cfg).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []fleet.Record{{
		ID: fleet.IDFromName("[fd00::7]:8000"), Name: "[fd00::7]:8000", URL: "http://[fd00::7]:8000",
		Model: "m", Group: "g", Engine: "sglang", DPSize: 2, Labels: map[string]string{"zone": "a"}, Taints: []string{"t"},
		KVEvents: map[int]string{0: "tcp://[fd00::7]:5557", 1: "tcp://[fd00::7]:5558"}, Replay: map[int]string{0: "tcp://[fd00::7]:6557"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAFailureIsALossAndNoEmptyList(t *testing.T) {
	for _, c := range []struct {
		name   string
		code   dnsmessage.RCode
		silent bool
	}{
		{"SERVFAIL", dnsmessage.RCodeServerFailure, false},
		{"REFUSED", dnsmessage.RCodeRefused, false},
		{"FORMERR", dnsmessage.RCodeFormatError, false},
		{"no answer", dnsmessage.RCodeSuccess, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dnstest.Serve(t)
			s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("a.fleet.test.", 8001))
			cfg := config(dns.SRV)
			if c.silent {
				cfg.Timeout = dns.MinTimeout
			}
			src := source(s, cfg)
			names(t, src)
			s.Fails(c.code, c.silent)
			began := time.Now()
			list, err := src.List(t.Context())
			if err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
				t.Errorf("got %v, %v", list, err)
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("it took %s", took)
			}
			s.Fails(dnsmessage.RCodeSuccess, false)
			if diff := cmp.Diff([]string{"a.fleet.test:8001"}, names(t, src)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestALookUpThatIsGivenUpLeavesNothing(t *testing.T) {
	for _, record := range []string{dns.SRV, dns.A} {
		s := dnstest.Serve(t)
		s.Fails(dnsmessage.RCodeSuccess, true)
		was := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- source(s, config(record)).Watch(ctx, func([]fleet.Record) error { return nil })
		}()
		<-s.Asked
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", record, err)
		}
		if err := goleak.Find(was); err != nil {
			t.Errorf("%s: %v", record, err)
		}
	}
}

func TestAServerThatIsNotThereIsALoss(t *testing.T) {
	packets, streams := dnstest.Listen(t)
	address := packets.LocalAddr().String()
	_, _ = packets.Close(), streams.Close()
	if list, err := dns.New(config(dns.A), dns.NewResolver(address)).List(t.Context()); err == nil {
		t.Errorf("got %v", list)
	}
}

// A name that is no host name is not left out silently: a worker would be gone.
func TestATargetThatIsNoHostNameIsALoss(t *testing.T) {
	s := dnstest.Serve(t)
	s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("a.fleet.test.", 8001), dnstest.SRV("b b.fleet.test.", 8001))
	if list, err := source(s, config(dns.SRV)).List(t.Context()); err == nil {
		t.Errorf("got %v", list)
	}
	s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("a.fleet.test.", 0))
	if list, err := source(s, config(dns.SRV)).List(t.Context()); err == nil {
		t.Errorf("a port of 0: got %v", list)
	}
}

// The names in SRV records may be known to nobody but the given server.
func TestTargetsAreLookedUpAtTheGivenServer(t *testing.T) {
	s := dnstest.Serve(t)
	s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("b.fleet.test.", 8001), dnstest.SRV("b.fleet.test.", 8000), dnstest.SRV("A.fleet.test.", 8001))
	s.Holds("a.fleet.test.", dnsmessage.TypeAAAA, dnstest.Addr("fd00::7"))
	s.Holds("b.fleet.test.", dnsmessage.TypeAAAA, dnstest.Addr("fd00::1"))
	s.Holds("b.fleet.test.", dnsmessage.TypeA, dnstest.Addr("127.0.0.4"), dnstest.Addr("127.0.0.3"))
	cfg := config(dns.SRV)
	cfg.Server, cfg.Template.KVEvents = s.Address, map[int]string{0: "tcp://*:5557"}
	got, err := source(s, cfg).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][2]string{}
	for _, rec := range got {
		at[rec.Name] = [2]string{rec.URL, rec.KVEvents[0]}
	}
	want := map[string][2]string{
		"a.fleet.test:8001": {"http://[fd00::7]:8001", "tcp://[fd00::7]:5557"},
		"b.fleet.test:8000": {"http://127.0.0.3:8000", "tcp://127.0.0.3:5557"},
		"b.fleet.test:8001": {"http://127.0.0.3:8001", "tcp://127.0.0.3:5557"},
	}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Error(diff)
	}
	s.Holds(name, dnsmessage.TypeSRV, dnstest.SRV("b.fleet.test.", 8000), dnstest.SRV("c.fleet.test.", 8000))
	list, err := source(s, cfg).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), `target "c.fleet.test."`) || !strings.Contains(err.Error(), "on "+s.Address+": ") {
		t.Errorf("a target without an address: %v, %v", list, err)
	}
}

func TestManyTargetsAreLookedUpAtOnce(t *testing.T) {
	s := dnstest.Serve(t)
	var bodies []dnsmessage.ResourceBody
	for i := range 300 {
		host := fmt.Sprintf("w%d.fleet.test.", i)
		bodies = append(bodies, dnstest.SRV(host, 8000))
		s.Holds(host, dnsmessage.TypeA, dnstest.Addr(fmt.Sprintf("127.1.%d.%d", i/200, i%200)))
	}
	s.Holds(name, dnsmessage.TypeSRV, bodies...)
	cfg := config(dns.SRV)
	cfg.Server = s.Address
	if got := names(t, source(s, cfg)); len(got) != 300 {
		t.Errorf("%d workers", len(got))
	}
}

func TestFailuresNameTheServerThatWasAsked(t *testing.T) {
	s := dnstest.Serve(t)
	s.Fails(dnsmessage.RCodeServerFailure, false)
	for _, record := range []string{dns.SRV, dns.A} {
		cfg := config(record)
		cfg.Server = s.Address
		if _, err := source(s, cfg).List(t.Context()); err == nil || !strings.Contains(err.Error(), "on "+s.Address+": server misbehaving") {
			t.Errorf("%s: %v", record, err)
		}
	}
}
