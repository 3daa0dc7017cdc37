package sharedcache_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/sharedcache"
)

const url = "http://cache.test:9"

func TestAQuestionIsTheHashesInOrderAsUnsignedDecimals(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
		_, _ = w.Write([]byte(`{"ranges":[[0,2]]}`))
	}))
	defer srv.Close()
	r := newRig(t, srv.URL+"/v1", time.Second, over{srv.Client()})
	held, err := r.Hits(t.Context(), key, []kvcache.SequenceHash{1<<64 - 1, 0, 1 << 63}, []kvcache.BlockRange{{Start: 7, End: 8}})
	if diff := cmp.Diff([]kvcache.BlockRange{{Start: 7, End: 8}, {Start: 0, End: 2}}, held); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if want := `POST /v1/hits {"hashes":[18446744073709551615,0,9223372036854775808]}`; got != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if asked, hit, calls := r.counted(t, "asked_blocks_total", ""), r.counted(t, "hit_blocks_total", ""), r.counted(t, "request_seconds", ""); asked != 3 || hit != 2 || calls != 1 {
		t.Errorf("counted %v blocks asked, %v held, %v calls; want 3, 2, 1", asked, hit, calls)
	}
}

func TestAPromptWithoutBlocksIsNotAskedFor(t *testing.T) {
	p := answering(200, `{"ranges":[]}`)
	r := newRig(t, url, time.Second, p)
	if held, err := r.hits(t, 0); len(held) != 0 || err != nil || p.calls.Load() != 0 {
		t.Errorf("got %v, %v after %d calls", held, err, p.calls.Load())
	}
}

func TestOfALongPromptTheBeginningIsAsked(t *testing.T) {
	asked := 0
	p := &posting{post: func(_ context.Context, body string) (int, string, error) {
		asked = strings.Count(body, ",") + 1
		return 200, `{"ranges":[[0,4000000000]]}`, nil
	}}
	r := newRig(t, url, time.Second, p)
	held, err := r.hits(t, 40_000)
	if want := []kvcache.BlockRange{{Start: 0, End: 32_768}}; !cmp.Equal(want, held) || err != nil || asked != 32_768 {
		t.Errorf("got %v, %v for %d hashes, want %v", held, err, asked, want)
	}
}

func TestEachFailureIsCountedByReasonAndTakesTheServerOut(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		poster       *posting
	}{
		{"connection refused", "unreachable", &posting{post: func(context.Context, string) (int, string, error) { return 0, "", errors.New("refused") }}},
		{"too slow", "deadline", &posting{post: func(ctx context.Context, _ string) (int, string, error) {
			<-ctx.Done()
			return 0, "", ctx.Err()
		}}},
		{"no such route", "status", answering(404, "")},
		{"overloaded", "status", answering(503, `{"ranges":[[0,1]]}`)},
		{"a lie", "bad_answer", answering(200, `{"ranges":[[2,1]]}`)},
		{"another service", "bad_answer", answering(200, `<html>`)},
		{"without end", "bad_answer", answering(200, `{"ranges":[]}`+strings.Repeat(" ", 1<<20))},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, url, 5*time.Millisecond, c.poster)
				given := []kvcache.BlockRange{{Start: 3, End: 4}}
				begun := time.Now()
				held, err := r.Hits(t.Context(), key, hashes(8), given)
				if !cmp.Equal(given, held) || err == nil || errors.Is(err, sharedcache.ErrAway) {
					t.Errorf("got %v, %v", held, err)
				}
				for range 10 {
					if held, err = r.Hits(t.Context(), key, hashes(8), given); !cmp.Equal(given, held) || !errors.Is(err, sharedcache.ErrAway) {
						t.Errorf("then got %v, %v", held, err)
					}
				}
				if took := time.Since(begun); took > 5*time.Millisecond {
					t.Errorf("11 calls took %v, more than one deadline", took)
				}
				if n, away, gauge := r.failures(t, c.reason), r.failures(t, "away"), r.counted(t, "away", ""); n != 1 || away != 10 || gauge != 1 {
					t.Errorf("counted %d %s and %d away, gauge %v; want 1, 10, 1", n, c.reason, away, gauge)
				}
				if n := r.lines("reason=" + c.reason); n != 1 {
					t.Errorf("told %d times:\n%s", n, r.log)
				}
			})
		})
	}
}

func TestACallerThatGivesUpSaysNothingAboutTheServer(t *testing.T) {
	for name, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		},
		"out of time": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &posting{post: func(ctx context.Context, _ string) (int, string, error) {
					<-ctx.Done()
					return 0, "", ctx.Err()
				}}
				r := newRig(t, url, time.Second, p)
				ctx, cancel := limit(t.Context())
				defer cancel()
				_, err := r.Hits(ctx, key, hashes(1), nil)
				if err == nil || r.failures(t, "cancelled") != 1 || r.counted(t, "away", "") != 0 || r.log.String() != "" {
					t.Errorf("got %v, %d cancelled, log %q", err, r.failures(t, "cancelled"), r.log)
				}
			})
		})
	}
}

func TestBeingAwayCostsNoAllocation(t *testing.T) {
	r := newRig(t, url, time.Second, answering(500, ""))
	blocks, out := hashes(64), make([]kvcache.BlockRange, 0, 8)
	ctx := t.Context()
	if _, err := r.Hits(ctx, key, blocks, out); err == nil {
		t.Fatal("status 500 is no error")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Hits(ctx, key, blocks, out) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestConfigNamesWhatIsNotAllowed(t *testing.T) {
	good := sharedcache.DefaultConfig()
	good.URL = url
	for _, c := range []struct {
		name, field string
		change      func(*sharedcache.Config)
	}{
		{"no URL", "url", func(c *sharedcache.Config) { c.URL = "" }},
		{"a scheme that is not spoken", "url", func(c *sharedcache.Config) { c.URL = "https://cache.test:9" }},
		{"a password", "url", func(c *sharedcache.Config) { c.URL = "http://u:secret@cache.test:9" }},
		{"no deadline", "deadline", func(c *sharedcache.Config) { c.Deadline = 0 }},
		{"a deadline below 1 ms", "deadline", func(c *sharedcache.Config) { c.Deadline = 999 * time.Microsecond }},
		{"a deadline above 1 s", "deadline", func(c *sharedcache.Config) { c.Deadline = time.Second + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			_, err := sharedcache.New(cfg, answering(200, ""), nil, prometheus.NewRegistry())
			fe, ok := errors.AsType[*fleet.FieldError](err)
			if !ok || fe.Field != c.field || fe.Allowed == "" || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTwoClientsAreRefusedByOneRegistry(t *testing.T) {
	r := newRig(t, url, time.Second, answering(200, ""))
	if _, err := sharedcache.New(sharedcache.Config{URL: url, Deadline: time.Second}, answering(200, ""), nil, r.reg); err == nil {
		t.Error("a second client took the metrics of the first")
	}
}
