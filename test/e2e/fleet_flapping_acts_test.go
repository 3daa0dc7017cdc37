//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// asks has a client of the frontend or a caller of the selection service ask for
// something at random and tells how it ended.
func (f *flappingFleet) asks(client int, rnd *rand.Rand) string {
	if client >= flappingClients {
		return f.selects(rnd)
	}
	body := map[string]any{"model": "m", "max_tokens": 1 + rnd.IntN(16), "stream": rnd.IntN(2) == 0}
	body["prompt"] = strings.Repeat(fmt.Sprintf("word%d ", rnd.IntN(40)), 1+rnd.IntN(200))
	var header []string
	if rnd.IntN(3) == 0 {
		header = append(header, session, fmt.Sprint("s", rnd.IntN(50)))
	}
	return f.c.outcome(rnd, 8, "/v1/completions", body, header...)
}

// selects books a worker by the selection service and frees it a little later, or
// leaves the booking to expire.
func (f *flappingFleet) selects(rnd *rand.Rand) string {
	body := wants(tokens(1000*rnd.IntN(40), 16*(1+rnd.IntN(20))))
	a, err := f.s.try(context.Background(), "POST", "/select_and_reserve", body)
	if err != nil {
		return "select: " + err.Error()
	}
	if a.status != http.StatusOK {
		return "select " + stepOf(a)
	}
	var got selected
	if err := json.Unmarshal(a.body, &got); err != nil || got.ID == "" || got.Endpoint == "" {
		return fmt.Sprintf("select: %v in %s", err, a.body)
	}
	if rnd.IntN(10) == 0 {
		return "left"
	}
	<-time.After(time.Duration(rnd.IntN(50)) * time.Millisecond)
	a, err = f.s.try(context.Background(), "DELETE", "/reservations/"+got.ID, nil)
	if err != nil {
		return "free: " + err.Error()
	}
	if a.status != http.StatusOK {
		return "free " + stepOf(a)
	}
	return "selected"
}

// stepOf is an answer of the selection service that is no 200, as status, code and
// step.
func stepOf(a reply) string {
	var got struct {
		Error struct {
			Code    string
			Details struct{ Step string }
		}
	}
	if err := json.Unmarshal(a.body, &got); err != nil || got.Error.Code == "" {
		return fmt.Sprintf("%d %.200q", a.status, a.body)
	}
	if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
		return fmt.Sprint(a.status, " ", got.Error.Code, " without Retry-After")
	}
	return strings.TrimSpace(fmt.Sprint(a.status, " ", got.Error.Code, " ", got.Error.Details.Step))
}

// disturb does something to a worker.
func (f *flappingFleet) disturb(rnd *rand.Rand) {
	e := f.engines[rnd.IntN(len(f.engines))]
	some := 1 + rnd.IntN(3)
	switch rnd.IntN(20) {
	case 0, 1:
		f.act("leave")
		f.allowed("leave", http.StatusNotFound, "DELETE", "/v1/workers/"+e.name(), nil)
	case 2:
		f.act("drain")
		f.allowed("drain", http.StatusNotFound, "POST", "/v1/workers/"+e.name()+"/drain", []byte(`{"timeout":"1s"}`))
	case 3:
		f.act("restart")
		f.order(e, "POST", "/sim/restart", nil)
	case 4, 5:
		f.crash(e, time.Duration(rnd.IntN(2000))*time.Millisecond)
	case 6:
		f.fault(e, "stall", "count", some)
	case 7:
		f.fault(e, "reset", "count", some)
	case 8:
		f.fault(e, "reset", "count", some, "after_chunks", some)
	case 9:
		f.fault(e, "status", "count", 3*some, "status", 500, "body", engineError("engine_broken"))
	case 10:
		f.fault(e, "status", "count", some, "status", 503, "body", engineError("engine_full"))
	case 11:
		f.fault(e, "status", "count", some, "status", 429, "body", engineError("engine_full"))
	case 12:
		f.fault(e, "status", "count", 3*some, "status", 500, "path", "/health")
	case 13:
		f.fault(e, "stall", "count", some, "path", "/health")
	case 14:
		f.fault(e, "drop_events", "count", some)
	case 15:
		f.fault(e, "drop_replies", "count", some, "mode", []string{"silent", "holes", "no_end"}[some-1])
	default: // several are put right
		for range 3 {
			f.act("join")
			f.order(e, "DELETE", "/sim/faults", nil)
			f.join(e, rnd.IntN(2) == 0)
			e = f.engines[rnd.IntN(len(f.engines))]
		}
	}
}

func engineError(code string) map[string]any {
	return map[string]any{"error": map[string]any{"message": "not now", "type": "server_error", "code": code}}
}

func (f *flappingFleet) act(name string) { f.acts[name]++ }

// allowed makes an admin call that may answer with one status besides success.
func (f *flappingFleet) allowed(act string, status int, method, path string, body []byte) {
	if got, answer := f.s.raw(method, path, body); got >= 300 && got != status {
		f.t.Errorf("%s: status %d: %s", act, got, answer)
	}
}

// fault has an engine misbehave.
func (f *flappingFleet) fault(e *flappingEngine, kind string, more ...any) {
	order := map[string]any{"kind": kind}
	name := kind
	for i := 0; i+1 < len(more); i += 2 {
		key := more[i].(string)
		order[key] = more[i+1]
		if key == "status" || key == "path" {
			name += fmt.Sprint(" ", more[i+1])
		} else if key == "after_chunks" {
			name += " of an answer that began"
		}
	}
	f.act(name)
	f.order(e, "POST", "/sim/faults", order)
}

// order uses a route of an engine unless it is down.
func (f *flappingFleet) order(e *flappingEngine, method, path string, in any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.e != nil {
		engineJSON(f.t, e.e, method, path, in, nil)
	}
}

// crash ends an engine and starts a new one in its place after a while.
func (f *flappingFleet) crash(e *flappingEngine, away time.Duration) {
	if !e.mu.TryLock() {
		return
	}
	up := e.e != nil
	e.mu.Unlock()
	if !up {
		return
	}
	f.act("crash")
	f.crashes.Go(func() {
		if err := e.stop(); err != nil {
			f.t.Error(err)
		}
		<-time.After(away)
		if err := e.start(); err != nil {
			f.t.Error(err)
		}
	})
}

// join registers a worker: by its URL alone, or with all that there is to say.
func (f *flappingFleet) join(e *flappingEngine, bare bool) {
	f.t.Helper()
	record := map[string]any{"id": e.id, "name": e.name(), "url": e.url()}
	if !bare {
		record["model"], record["engine"], record["max_batched_tokens"] = "m", "vllm", 8192
		record["kv_events"], record["replay"] = map[string]string{"0": e.events()}, map[string]string{"0": e.replay()}
	}
	f.s.must("PUT", "/v1/workers/"+fmt.Sprint(e.id), record, nil)
	f.allowed("undrain", http.StatusNotFound, "DELETE", "/v1/workers/"+e.name()+"/drain", nil)
}
