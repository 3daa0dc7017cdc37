package dns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// anyHost begins an endpoint of the template.
const anyHost = "tcp://*:"

// Resolver asks a name server. *net.Resolver is one; with another than NewResolver's,
// a name server that fails may look like one that knows nothing.
type Resolver interface {
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewResolver asks the name server at HOST:PORT, or those of the system when it is
// empty. Unlike the default resolver it takes no half answer, does not go on with the
// search list when a server fails, and leaves no connection open when ctx ends.
func NewResolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if server != "" {
			address = server
		}
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() }) // a read of the resolver does not look at ctx
		}
		return c, err
	}}
}

// Source is the workers of one name.
type Source struct {
	cfg      Config
	resolver Resolver

	mu      sync.Mutex // guards the fields below
	known   []fleet.Record
	empties int       // empty answers in a row
	empty   time.Time // when the first of them came
}

var _ catalog.Source = (*Source)(nil)

// New makes the source of a valid configuration. It looks nothing up.
func New(cfg Config, r Resolver) *Source { return &Source{cfg: cfg, resolver: r} }

// Name implements catalog.Source: dns: and the configured name.
func (s *Source) Name() string { return "dns:" + s.cfg.Name }

// Watch implements catalog.Source. A list that is as the one before is not given
// again.
func (s *Source) Watch(ctx context.Context, give func([]fleet.Record) error) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	var last []fleet.Record
	for first := true; ; first = false {
		list, err := s.List(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if first || !slices.EqualFunc(last, list, fleet.Record.Equal) {
			_ = give(slices.Clone(list)) // a refusal is the reconciler's to tell; the next answer may be taken
			last = list
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// List implements catalog.Source: it looks the name up. While an empty answer is not
// believed yet, it is the list before.
func (s *Source) List(ctx context.Context) ([]fleet.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, fmt.Errorf("no answer within %s", s.cfg.Timeout))
	defer cancel()
	found, err := s.lookUp(ctx)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.empties = 0
		return nil, fmt.Errorf("look up %s records of %q: %w", s.cfg.Record, s.cfg.Host, err)
	}
	return slices.Clone(s.believe(found, time.Now())), nil
}

// believe takes an answer over, an empty one only when it has been so for a while.
func (s *Source) believe(found []fleet.Record, now time.Time) []fleet.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(found) > 0 {
		s.known, s.empties = found, 0
		return found
	}
	s.empties++
	if s.empties == 1 {
		s.empty = now
	}
	if s.empties > 1 && now.Sub(s.empty) >= s.cfg.EmptyAfter {
		s.known = nil
	}
	return s.known
}

// lookUp asks once. No workers without an error is what the name server said.
func (s *Source) lookUp(ctx context.Context) ([]fleet.Record, error) {
	ask := s.addresses
	if s.cfg.Record == SRV {
		ask = s.services
	}
	places, err := ask(ctx)
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, s.asked(err)
	}
	if s.cfg.Record == SRV && s.cfg.Server != "" {
		if err := s.locate(ctx, places); err != nil {
			return nil, err
		}
	}
	workers := map[fleet.WorkerID]fleet.Record{}
	for _, p := range places {
		rec, err := s.cfg.worker(p)
		if err != nil {
			return nil, err
		}
		workers[rec.ID] = rec
	}
	return slices.SortedFunc(maps.Values(workers), func(a, b fleet.Record) int { return strings.Compare(a.Name, b.Name) }), nil
}

// place is where a worker listens.
type place struct {
	name    string // of its host, which is the worker's
	address string // by which it is called; the name where the system knows it
	port    uint16
}

func (s *Source) services(ctx context.Context) (places []place, err error) {
	_, records, err := s.resolver.LookupSRV(ctx, "", "", s.cfg.Host)
	for _, r := range records {
		if host := strings.ToLower(strings.TrimSuffix(r.Target, ".")); host != "" {
			places = append(places, place{host, host, r.Port})
		}
	}
	return places, err
}

func (s *Source) addresses(ctx context.Context) (places []place, err error) {
	network := "ip4"
	if s.cfg.Record == AAAA {
		network = "ip6"
	}
	addrs, err := s.resolver.LookupNetIP(ctx, network, s.cfg.Host)
	for _, a := range addrs {
		at := a.Unmap().String()
		places = append(places, place{at, at, uint16(s.cfg.Port)})
	}
	return places, err
}

// targetsAtOnce is how many targets of SRV records are looked up at a time.
const targetsAtOnce = 16

// locate finds the addresses of the hosts that the given server has named: the
// system's need not know them. Of several the smallest is taken, IPv4 first. A host
// without any is no empty answer.
func (s *Source) locate(ctx context.Context, places []place) error {
	hosts := map[string]string{}
	for _, p := range places {
		hosts[p.name] = ""
	}
	var mu sync.Mutex // guards hosts
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(targetsAtOnce)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		asking.Go(func() error {
			target := host + "."
			addrs, err := s.resolver.LookupNetIP(ctx, "ip", target)
			if err != nil {
				return fmt.Errorf("target %q: %w", target, s.asked(err))
			}
			for i := range addrs {
				addrs[i] = addrs[i].Unmap()
			}
			mu.Lock()
			defer mu.Unlock()
			hosts[host] = slices.MinFunc(addrs, netip.Addr.Compare).String()
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	for i, p := range places {
		places[i].address = hosts[p.name]
	}
	return nil
}

// asked is an error of the resolver, which names the system's server also when
// another was asked.
func (s *Source) asked(err error) error {
	e, ok := err.(*net.DNSError) //nolint:errorlint // the resolver wraps none
	if !ok || s.cfg.Server == "" || e.Server == "" {
		return err
	}
	told := *e
	told.Server = s.cfg.Server
	return &told
}

// worker is the template at a place.
func (c Config) worker(p place) (fleet.Record, error) {
	port := strconv.Itoa(int(p.port))
	rec := c.Template
	rec.Name, rec.URL = net.JoinHostPort(p.name, port), "http://"+net.JoinHostPort(p.address, port)
	rec.KVEvents, rec.Replay = endpoints(c.Template.KVEvents, p.address), endpoints(c.Template.Replay, p.address)
	return rec.Normalised()
}

// endpoints puts the host in the place of the star.
func endpoints(template map[int]string, host string) map[int]string {
	if template == nil {
		return nil
	}
	out := make(map[int]string, len(template))
	for rank, e := range template {
		if port, ok := strings.CutPrefix(e, anyHost); ok {
			e = "tcp://" + net.JoinHostPort(host, port)
		}
		out[rank] = e
	}
	return out
}
