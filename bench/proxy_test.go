package bench_test

import (
	"bytes"
	"testing"
	"time"
)

const (
	callers = 32 // keep-alive connections
	rounds  = 7
	alone   = 100 // requests a round of the one caller that has the proxy for itself
)

// contender is one way to the workers.
type contender struct {
	name   string
	target *child // whose CPU time is told: the proxy; the workers where there is none
	crowd  crowd
	single crowd

	rate  series // requests a second of the crowd
	cpu   series // microseconds a request of the crowd
	first series // median microseconds to the first byte, of the crowd
	quick series // the same, of the single caller
}

// startContenders starts the workers and all ways to them; a router with a
// module only if the file of one is named.
func startContenders(tb testing.TB, module string) []*contender {
	tb.Helper()
	fleet := startChild(tb, "worker")
	all := []*contender{
		{name: "direct", target: fleet},
		{name: "relay", target: startChild(tb, "relay", fleet.addrs...)},
		{name: "router", target: startChild(tb, "router", fleet.addrs...)},
	}
	if module != "" {
		target := startChild(tb, "router-with-module", append([]string{module}, fleet.addrs...)...)
		all = append(all, &contender{name: "router-wasm", target: target})
	}
	for _, c := range all {
		var err error
		if c.crowd, err = assemble(callers, c.target.addrs); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { c.crowd.close() })
		c.single = c.crowd[:1]
	}
	return all
}

// BenchmarkProxy compares ways to the same workers, in turns: none (direct), a
// bare relay, and the whole router with the native and with the Go-written
// policy. CPU time is that of the proxy's process alone.
func BenchmarkProxy(b *testing.B) {
	all := startContenders(b, buildKVAware(b))
	for _, bc := range []struct {
		name   string
		size   int
		stream bool
		count  int // requests of each caller in a round
	}{
		{"unary-1KB", 1 << 10, false, 250},
		{"unary-512KB", 512 << 10, false, 12},
		{"sse-100-chunks", 1 << 10, true, 25},
	} {
		b.Run(bc.name, func(b *testing.B) {
			long, short := request(bc.size, bc.stream, eventCount), request(bc.size, bc.stream, 1)
			for _, c := range all {
				c.rate, c.cpu, c.first, c.quick = nil, nil, nil, nil
				if _, _, err := c.crowd.run(long, bc.count/4); err != nil {
					b.Fatalf("%s: %v", c.name, err)
				}
			}
			for i := range rounds {
				for k := range all {
					all[(i+k)%len(all)].round(b, long, bc.count, short)
				}
			}
			compare(b, all)
		})
	}
}

// round lets the crowd send count requests each, then the single caller the
// short one: its stream has one event, so that no flood of chunks delays the
// first.
func (c *contender) round(b *testing.B, request []byte, count int, short []byte) {
	before, err := c.target.cpu()
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	took, first, err := c.crowd.run(request, count)
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	after, err := c.target.cpu()
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	_, quick, err := c.single.run(short, alone)
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	n := float64(len(c.crowd) * count)
	c.rate.add(n / took.Seconds())
	c.cpu.add(micros(after-before) / n)
	c.first.add(micros(first[len(first)/2]))
	c.quick.add(micros(quick[len(quick)/2]))
}

// compare tells the figures of each, and its ratios by round to the direct way
// and to the relay.
func compare(b *testing.B, all []*contender) {
	direct, relay := all[0], all[1]
	var names []string
	told := map[string]figures{}
	for _, c := range all {
		f := figures{
			"req/s":              c.rate.median(),
			"cpu-us/req":         c.cpu.median(),
			"ttfb-p50-us":        c.first.median(),
			"single-ttfb-p50-us": c.quick.median(),
		}
		if c != direct {
			f["x-direct-req/s"] = c.rate.over(direct.rate)
			f["single-ttfb-added-us"] = c.quick.minus(direct.quick)
		}
		if c != direct && c != relay {
			f["x-relay-req/s"] = c.rate.over(relay.rate)
			f["x-relay-cpu"] = c.cpu.over(relay.cpu)
		}
		names, told[c.name] = append(names, c.name), f
	}
	report(b, names, told)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// What is compared must do the same work: the same bytes come back on all ways.
// That a module has decided is looked at when its router ends.
func TestAllWaysBringTheSameAnswer(t *testing.T) {
	all := startContenders(t, "")
	for _, tc := range []struct {
		name    string
		request []byte
		want    []byte
	}{
		{"unary", request(1<<10, false, 1), unaryAnswer()},
		{"large", request(512<<10, false, 1), unaryAnswer()},
		{"stream", request(1<<10, true, eventCount), append(bytes.Repeat([]byte(event), eventCount), done...)},
		{"short stream", request(1<<10, true, 1), []byte(event + done)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range all {
				for range 2 { // on a kept connection as well
					if _, err := c.crowd[0].do(tc.request); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					if got := c.crowd[0].body; !bytes.Equal(got, tc.want) {
						t.Errorf("%s: got %d bytes, want %d", c.name, len(got), len(tc.want))
					}
				}
			}
		})
	}
}
