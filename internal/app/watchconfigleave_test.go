package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/sim"
)

// doors are before a simulated engine and count who comes.
type doors struct {
	record   fleet.Record
	requests atomic.Int64 // of any path: those of clients and the router's own
	tcp      atomic.Int64 // event and replay connections that are open
	ever     atomic.Int64 // of those that were opened
	streams  atomic.Int64 // of these, event connections
}

// engineBehindDoors starts an engine and its doors.
func engineBehindDoors(t *testing.T, name string) *doors {
	t.Helper()
	e := engine(t, name, func(c *sim.Config) { c.DecodePerToken = time.Millisecond })
	d := &doors{}
	to, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = client.Transport
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	front := fakeWorker(t, func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		proxy.ServeHTTP(w, r)
	})
	d.record = record(t, name, front, func(r *fleet.Record) {
		r.BlockSize = 0 // the engine is asked
		r.KVEvents, r.Replay = d.before(t, e.EventEndpoints(), &d.streams), d.before(t, e.ReplayEndpoints(), new(atomic.Int64))
	})
	return d
}

// before makes a door for each endpoint; count counts them alone.
func (d *doors) before(t *testing.T, endpoints map[int]string, count *atomic.Int64) map[int]string {
	t.Helper()
	out := map[int]string{}
	for rank, to := range endpoints {
		out[rank] = d.open(t, strings.TrimPrefix(to, "tcp://"), count)
	}
	return out
}

// open forwards connections until the test ends.
func (d *doors) open(t *testing.T, to string, count *atomic.Int64) (endpoint string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d.tcp.Add(1)
			d.ever.Add(1)
			count.Add(1)
			running.Go(func() {
				defer d.tcp.Add(-1)
				forward(ctx, c, to)
			})
		}
	})
	t.Cleanup(func() {
		stop()
		_ = ln.Close()
		running.Wait()
	})
	return "tcp://" + ln.Addr().String()
}

// forward passes bytes both ways until one side ends.
func forward(ctx context.Context, c net.Conn, to string) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		_ = c.Close()
		return
	}
	closeBoth := func() { _, _ = c.Close(), far.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var back sync.WaitGroup
	back.Go(func() {
		defer closeBoth()
		_, _ = io.Copy(c, far)
	})
	_, _ = io.Copy(far, c)
	closeBoth()
	back.Wait()
}

func staticWorkers(t *testing.T, all ...*doors) string {
	t.Helper()
	list := []fleet.Record{}
	for _, d := range all {
		list = append(list, d.record)
	}
	text, err := json.Marshal(map[string]any{"static": list})
	if err != nil {
		t.Fatal(err)
	}
	return front("") + "workers: " + string(text) + "\n"
}

// traffic asks until the test ends; every answer must be a good one.
func (f *followed) traffic() {
	f.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ask := func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.FrontendURL()+"/v1/completions",
			strings.NewReader(`{"model":"m","prompt":"some words","max_tokens":2}`))
		if err != nil {
			f.t.Error(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				f.t.Error(err)
			}
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK && ctx.Err() == nil {
			f.t.Errorf("status %d: %s", resp.StatusCode, text)
		}
	}
	for range 3 {
		running.Go(func() {
			for ctx.Err() == nil {
				ask()
			}
		})
	}
	f.t.Cleanup(func() { stop(); running.Wait() })
}

func TestO6_WorkersThatLeaveTheFileAreLeftAloneWithinTwoSeconds(t *testing.T) {
	const within, after = 2 * time.Second, time.Second
	stays, leaves, comes := engineBehindDoors(t, "stays"), engineBehindDoors(t, "leaves"), engineBehindDoors(t, "comes")
	f := startFollowed(t, staticWorkers(t, stays, leaves), nil)
	waitForWorkers(t, f.App)
	f.traffic()
	testkit.Until(t, "both are at work and listened to", func() bool {
		return stays.requests.Load() > 5 && leaves.requests.Load() > 5 && stays.streams.Load() > 0 && leaves.tcp.Load() > 0
	})
	streams := stays.streams.Load()

	wrote := time.Now()
	f.write(staticWorkers(t, stays, comes))
	<-time.After(within)
	requests, ever := leaves.requests.Load(), leaves.ever.Load()
	if n := leaves.tcp.Load(); n != 0 {
		t.Errorf("%d event connections %v after the write", n, time.Since(wrote))
	}
	<-time.After(after)
	if n := leaves.requests.Load() - requests; n != 0 {
		t.Errorf("%d requests or probes in the %v after that", n, after)
	}
	if n := leaves.ever.Load() - ever; n != 0 {
		t.Errorf("%d event connections were opened in the %v after that", n, after)
	}
	if _, there := lifecycles(t, f.App)["leaves"]; there {
		t.Error("it is still in the list")
	}
	if stays.streams.Load() != streams {
		t.Error("the stream of the worker that stays was opened anew")
	}
	testkit.Until(t, "the new one is at work and listened to", func() bool { return comes.requests.Load() > 5 && comes.streams.Load() > 0 })
}
