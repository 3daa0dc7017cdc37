package health_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/health"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

const fleetSize = 5000

// thousands is a fleet of 5,000 workers in 50 partitions, at the URL that is given.
func thousands(url func(i int) string) *roster {
	r := newRoster()
	for i := range fleetSize {
		r.views = append(r.views, catalog.View{Lifecycle: core.Ready, Record: fleet.Record{
			ID: fleet.WorkerID(i + 1), Name: fmt.Sprintf("w%d", i), URL: url(i), Model: fmt.Sprintf("m%d", i%50), Group: "default",
		}})
	}
	return r
}

// await waits until n has risen by that many.
func await(n *atomic.Int64, by int64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := n.Load() + by; n.Load() < end; {
		<-tick.C
	}
}

// BenchmarkRound is what planning and noting 5,000 probes costs, without the
// network: the probes are due as fast as they can be.
func BenchmarkRound(b *testing.B) {
	cfg := health.DefaultConfig()
	cfg.Interval = 100 * time.Millisecond
	var n atomic.Int64
	m := health.NewAsking(cfg, thousands(func(i int) string { return fmt.Sprintf("http://w%d:80", i) }), health.Counting(&n), quiet())
	round(b, m, &n)
}

// BenchmarkRoundHTTP is the same over HTTP on loopback; the server's part is in it.
func BenchmarkRoundHTTP(b *testing.B) {
	var n atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1) }), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { _ = s.Serve(l); close(done) }()
	defer func() { _ = s.Close(); <-done }()
	cfg := health.DefaultConfig()
	cfg.Interval = 100 * time.Millisecond
	round(b, health.New(cfg, thousands(func(int) string { return "http://" + l.Addr().String() }), quiet()), &n)
}

func round(b *testing.B, m *health.Monitor, n *atomic.Int64) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	await(n, fleetSize)
	b.ReportAllocs()
	began, rounds := used(b), n.Load()
	for b.Loop() {
		await(n, fleetSize)
	}
	b.ReportMetric(float64(used(b)-began)/float64(time.Millisecond)*fleetSize/float64(n.Load()-rounds), "cpu-ms/round")
	b.StopTimer()
	cancel()
	<-done
}

// used is the processor time of the process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRefresh is a listing of 5,000 workers of which none has changed.
func BenchmarkRefresh(b *testing.B) {
	m := health.New(health.DefaultConfig(), thousands(func(i int) string { return fmt.Sprintf("http://w%d:80", i) }), quiet())
	m.Refresh()
	b.ReportAllocs()
	for b.Loop() {
		m.Refresh()
	}
}

// BenchmarkStorm is 5,000 workers of one partition that fail one after another.
func BenchmarkStorm(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		cfg := health.DefaultConfig()
		cfg.Interval = 0
		r := thousands(func(i int) string { return fmt.Sprintf("http://w%d:80", i) })
		for i := range r.views {
			r.views[i].Model = "m"
		}
		m := health.New(cfg, r, quiet())
		m.Refresh()
		b.StartTimer()
		for i := range fleetSize {
			m.Breaker(fleet.WorkerID(i+1), true, "")
		}
	}
}

// BenchmarkNarrow is what a decision over 100 candidates pays while nobody returns.
func BenchmarkNarrow(b *testing.B) {
	m := health.New(health.DefaultConfig(), newRoster(), quiet())
	workers, keep, seed := make([]fleet.Worker, 100), make([]bool, 100), uint64(1)
	req := &core.Request{Seed: &seed}
	b.ReportAllocs()
	for b.Loop() {
		m.Narrow(req, workers, keep)
	}
}
