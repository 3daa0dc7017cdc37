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
			NoHealthCheck: true, Model: fleet.DefaultName, ID: fleet.WorkerID(id + 1), Name: strconv.Itoa(id + 1), URL: "http://127.0.0.1:" + strconv.Itoa(20000+id), BlockSize: 16, MaxBatchedTokens: 8192,
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
					callers, err := assemble(8, c.addrs)
					if err != nil {
						b.Fatal(err)
					}
					s := selector{callers, promptIDs(tokens)}
					s.run(b, c, mode)
					if err := callers.close(); err != nil {
						b.Error(err)
					}
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

// selector calls the service on one connection for each caller.
type selector struct {
	callers crowd
	ids     string
}

func (s *selector) run(b *testing.B, c *child, mode string) {
	callers, one := 8, s.choose
	if mode == "reserve" {
		callers, one = 1, s.book
	}
	if err := one(s.callers[0], -1); err != nil {
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
				if err := one(s.callers[k], i); err != nil {
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
func (s *selector) choose(c *caller, _ int) error {
	return call(c, "POST", "/select", `{"token_ids":`+s.ids+`}`)
}

// book makes one booking and frees it.
func (s *selector) book(c *caller, i int) error {
	id := "s" + strconv.Itoa(i)
	return errors.Join(
		call(c, "POST", "/select_and_reserve", `{"selection_id":"`+id+`","token_ids":`+s.ids+`}`),
		call(c, "DELETE", "/reservations/"+id, ""),
	)
}

func call(c *caller, method, path, body string) error {
	_, err := c.do(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func TestTheBenchmarkOfTheSelectionServiceBooksAndFrees(t *testing.T) {
	c := startChild(t, "selection", "2")
	callers, err := assemble(1, c.addrs)
	if err != nil {
		t.Fatal(err)
	}
	s := selector{callers, promptIDs(32)}
	if err := errors.Join(s.choose(callers[0], 0), s.book(callers[0], 1), s.book(callers[0], 1), callers.close()); err != nil {
		t.Error(err)
	}
	if err := s.book(callers[0], 1); err == nil {
		t.Error("a call on a closed connection gave no error")
	}
}
