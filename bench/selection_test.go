package bench_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

// serveSelection is the program with its selection service and so many workers,
// whose events nobody publishes.
func serveSelection(workers string) ([]string, func() error, error) {
	n, err := strconv.Atoi(workers)
	if err != nil {
		return nil, nil, fmt.Errorf("number of workers: %w", err)
	}
	dir, err := os.MkdirTemp("", "routerd-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder: %w", err)
	}
	cfg := config.DefaultConfig()
	cfg.DataDir = dir
	cfg.Frontend.Listen, cfg.Admin.Listen, cfg.Selection.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	for id := range n {
		rec, err := fleet.Record{
			ID: fleet.WorkerID(id + 1), Name: strconv.Itoa(id + 1), URL: "http://127.0.0.1:" + strconv.Itoa(20000+id), BlockSize: 16, MaxBatchedTokens: 8192,
			KVEvents: map[int]string{0: "ipc://" + dir + "/" + strconv.Itoa(id)},
		}.Normalised()
		if err != nil {
			return nil, nil, errors.Join(err, os.RemoveAll(dir))
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	a, err := app.Start(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() error { return errors.Join(a.Stop(context.Background()), os.RemoveAll(dir)) }
	return []string{strings.TrimPrefix(a.SelectionAddress(), "http://")}, stop, nil
}

// BenchmarkSelection measures the selection service in a process of its own: its CPU
// time and the time of a call, for /select by eight callers at once, and for
// /select_and_reserve and DELETE in turn by one, a request being one of both.
func BenchmarkSelection(b *testing.B) {
	for _, workers := range []int{8, 64, 512} {
		for _, tokens := range []int{512, 8192} {
			for _, mode := range []string{"select", "reserve"} {
				b.Run(fmt.Sprintf("workers=%d/tokens=%d/%s", workers, tokens, mode), func(b *testing.B) {
					c := startChild(b, "selection", strconv.Itoa(workers))
					s := selector{client: &fasthttp.HostClient{Addr: c.addrs[0], MaxConns: 8}, ids: promptIDs(tokens)}
					s.run(b, c, mode)
					s.client.CloseIdleConnections()
				})
			}
		}
	}
}

// promptIDs are the token ids of a prompt, as JSON.
func promptIDs(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa((i + 1) * 7919 % 100000)
	}
	return "[" + strings.Join(ids, ",") + "]"
}

// selector calls the service.
type selector struct {
	client *fasthttp.HostClient
	ids    string
}

func (s *selector) run(b *testing.B, c *child, mode string) {
	callers, one := 8, s.choose
	if mode == "reserve" {
		callers, one = 1, s.book
	}
	if err := one(-1); err != nil {
		b.Fatal(err)
	}
	before, err := c.cpu()
	if err != nil {
		b.Fatal(err)
	}
	took := make([][]time.Duration, callers)
	var all sync.WaitGroup
	b.ResetTimer()
	for k := range callers {
		all.Go(func() {
			for i := k; i < b.N; i += callers {
				began := time.Now()
				if err := one(i); err != nil {
					b.Error(err)
					return
				}
				took[k] = append(took[k], time.Since(began))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	after, err := c.cpu()
	if err != nil {
		b.Fatal(err)
	}
	requests := b.N
	if mode == "reserve" {
		requests *= 2
	}
	times := slices.Concat(took...)
	slices.Sort(times)
	b.ReportMetric(micros(after-before)/float64(requests), "cpu-µs/request")
	b.ReportMetric(micros(times[len(times)/2])*float64(b.N)/float64(requests), "p50-µs/request")
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
}

// choose makes one selection without a booking.
func (s *selector) choose(int) error {
	return s.call(fasthttp.MethodPost, "/select", `{"token_ids":`+s.ids+`}`)
}

// book makes one booking and frees it.
func (s *selector) book(i int) error {
	id := "s" + strconv.Itoa(i)
	return errors.Join(
		s.call(fasthttp.MethodPost, "/select_and_reserve", `{"selection_id":"`+id+`","token_ids":`+s.ids+`}`),
		s.call(fasthttp.MethodDelete, "/reservations/"+id, ""),
	)
}

func (s *selector) call(method, path, body string) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + s.client.Addr + path)
	req.Header.SetMethod(method)
	if body != "" {
		req.Header.SetContentType("application/json")
		req.SetBodyString(body)
	}
	if err := s.client.Do(req, resp); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode(), resp.Body())
	}
	return nil
}

func TestTheBenchmarkOfTheSelectionServiceBooksAndFrees(t *testing.T) {
	c := startChild(t, "selection", "2")
	s := selector{client: &fasthttp.HostClient{Addr: c.addrs[0]}, ids: promptIDs(32)}
	defer s.client.CloseIdleConnections()
	if err := errors.Join(s.choose(0), s.book(1), s.book(1)); err != nil {
		t.Error(err)
	}
}
