package app_test

import (
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/catalog/dns/dnstest"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

const fleetName = "_http._tcp.fleet.test."

// named are settings of a router whose workers are those of fleetName, by a name
// server that alone knows their hosts.
func named(t *testing.T, s *dnstest.Server, interval time.Duration) config.Config {
	t.Helper()
	cfg := settings(t)
	cfg.Workers.DNS = []dns.Config{dns.Config{
		Name: "fleet", Host: fleetName, Server: s.Address, Interval: interval, EmptyAfter: 2 * interval,
		Template: fleet.Record{Model: "m", BlockSize: 16, NoHealthCheck: true},
	}.WithDefaults()}
	return cfg
}

// holds has the name stand for workers, of which each has an URL by its host.
func holds(t *testing.T, s *dnstest.Server, workers map[string]string) {
	t.Helper()
	var services []dnsmessage.ResourceBody
	for host, at := range workers {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddrPort(u.Host)
		s.Holds(host, dnsmessage.TypeA, dnstest.Addr(addr.Addr().String()))
		services = append(services, dnstest.SRV(host, addr.Port()))
	}
	s.Holds(fleetName, dnsmessage.TypeSRV, services...)
}

// isFleet waits until the router has these workers and no others, all ready.
func isFleet(t *testing.T, r *reloadable, hosts ...string) {
	t.Helper()
	testkit.Until(t, "the workers are those of "+strings.Join(hosts, " "), func() bool {
		got := map[string]bool{}
		for name, lifecycle := range lifecycles(t, r.App) {
			host, _, _ := strings.Cut(name, ":")
			got[host+"."] = lifecycle == "ready"
		}
		want := map[string]bool{}
		for _, h := range hosts {
			want[h] = true
		}
		return maps.Equal(want, got)
	})
}

func TestWorkersOfANameComeAndGoWithItsAnswers(t *testing.T) {
	s := dnstest.Serve(t)
	one, two := fakeWorker(t, fine), fakeWorker(t, fine)
	holds(t, s, map[string]string{"one.fleet.test.": one})
	r := startReloadable(t, named(t, s, 20*time.Millisecond))
	isFleet(t, r, "one.fleet.test.")
	status, head := r.ask(t, "m")
	if want := "one.fleet.test:" + one[strings.LastIndexByte(one, ':')+1:]; status != http.StatusOK || head.Get("x-routerd-worker") != want {
		t.Errorf("a request: status %d by %q, want %q", status, head.Get("x-routerd-worker"), want)
	}
	holds(t, s, map[string]string{"one.fleet.test.": one, "two.fleet.test.": two})
	isFleet(t, r, "one.fleet.test.", "two.fleet.test.")
	holds(t, s, map[string]string{"two.fleet.test.": two})
	isFleet(t, r, "two.fleet.test.")

	source := func() (st catalog.SourceStatus) {
		t.Helper()
		all := show[struct{ Sources []catalog.SourceStatus }](t, r, "/v1/sources").Sources
		return all[slices.IndexFunc(all, func(st catalog.SourceStatus) bool { return st.Name == "dns:fleet" })]
	}
	s.Fails(dnsmessage.RCodeServerFailure, false)
	testkit.Until(t, "the source is lost", func() bool { return !source().Up })
	if st := source(); !strings.Contains(st.Err, "on "+s.Address+": server misbehaving") {
		t.Errorf("the source says %q", st.Err)
	}
	isFleet(t, r, "two.fleet.test.") // its list stays
	s.Fails(dnsmessage.RCodeSuccess, false)
	testkit.Until(t, "the source is back", func() bool { return source().Up })
	s.Fails(dnsmessage.RCodeNameError, false)
	isFleet(t, r)
	if status, _ := r.ask(t, "m"); status == http.StatusOK {
		t.Errorf("status %d with no worker left", status)
	}
}

func TestAChangeOfANameNeedsARestart(t *testing.T) {
	s := dnstest.Serve(t)
	holds(t, s, map[string]string{"one.fleet.test.": fakeWorker(t, fine)})
	cfg := named(t, s, 20*time.Millisecond)
	r := startReloadable(t, cfg)
	isFleet(t, r, "one.fleet.test.")
	for name, change := range map[string]func(*dns.Config){
		"record": func(c *dns.Config) { c.Record, c.Port = dns.A, 8000 }, "host": func(c *dns.Config) { c.Host = "other.test." },
		"interval": func(c *dns.Config) { c.Interval = time.Hour }, "timeout": func(c *dns.Config) { c.Timeout = time.Minute },
		"empty_after": func(c *dns.Config) { c.EmptyAfter = time.Hour }, "server": func(c *dns.Config) { c.Server = "" },
		"template": func(c *dns.Config) { c.Template.Group = "other" }, "name": func(c *dns.Config) { c.Name = "other" },
	} {
		r.set(func(c *config.Config) {
			c.Workers.DNS = slices.Clone(cfg.Workers.DNS)
			change(&c.Workers.DNS[0])
		})
		got := r.reload(t)
		if got.status != http.StatusConflict || got.Error.Details.Step != "restart" || got.Error.Details.Item != "workers.dns" {
			t.Errorf("%s: got %+v", name, got)
		}
		const was = `[{name: fleet, record: srv, host: _http._tcp.fleet.test., interval: 20ms, `
		if allowed := got.Error.Details.Allowed; !strings.HasPrefix(strings.ReplaceAll(allowed, `\"`, `"`), `"`+was) || !strings.HasSuffix(allowed, ", or a restart") {
			t.Errorf("%s: allowed %s", name, allowed)
		}
	}
	r.set(func(c *config.Config) { c.Workers.DNS = nil })
	if got := r.reload(t); got.status != http.StatusConflict || !strings.Contains(got.Error.Message, `workers.dns: "[]" is not allowed; allowed: `) {
		t.Errorf("none: got %+v", got)
	}
	isFleet(t, r, "one.fleet.test.")
}

// workers.resync: what a source does not tell of itself comes with the comparison.
func TestTheListOfASourceIsComparedFromTimeToTime(t *testing.T) {
	s := dnstest.Serve(t)
	one, two := fakeWorker(t, fine), fakeWorker(t, fine)
	holds(t, s, map[string]string{"one.fleet.test.": one})
	cfg := named(t, s, time.Hour)
	cfg.Workers.Resync = config.Duration(50 * time.Millisecond)
	r := startReloadable(t, cfg)
	isFleet(t, r, "one.fleet.test.")
	holds(t, s, map[string]string{"one.fleet.test.": one, "two.fleet.test.": two})
	isFleet(t, r, "one.fleet.test.", "two.fleet.test.")
}

// What somebody else has made of the workers of the file is mended.
func TestTheWorkersOfTheFileAreComparedFromTimeToTime(t *testing.T) {
	cfg := settings(t)
	cfg.Workers.Static = []fleet.Record{record(t, "w1", fakeWorker(t, fine)), record(t, "w2", fakeWorker(t, fine))}
	cfg.Workers.Resync = config.Duration(50 * time.Millisecond)
	r := startReloadable(t, cfg)
	waitForWorkers(t, r.App)
	if err := r.inside.Plan("file", cfg.Workers.Static[:1]); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "w2 is back", func() bool { return lifecycles(t, r.App)["w2"] == "ready" })
	if diff := cmp.Diff(map[string]string{"w1": "ready", "w2": "ready"}, lifecycles(t, r.App)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
