//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// request makes a request at random and tells how it ended.
func (f *busyFleet) request(_ int, rnd *rand.Rand) string {
	path, body, header := f.draw(rnd)
	return f.c.outcome(rnd, 5, path, body, header...)
}

// refusalOf is an answer that is no 200, as status, code and param.
func refusalOf(a reply) string {
	var got struct {
		Error ours `json:"error"`
	}
	if err := json.Unmarshal(a.body, &got); err != nil || got.Error.Code == "" {
		return fmt.Sprintf("%d %.200q", a.status, a.body)
	}
	later := a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable
	if later && got.Error.Code != "engine_full" && a.header.Get("Retry-After") == "" {
		return fmt.Sprint(a.status, " ", got.Error.Code, " without Retry-After")
	}
	return strings.TrimSpace(fmt.Sprint(a.status, " ", got.Error.Code, " ", got.Error.Param))
}

// draw is a request at random.
func (f *busyFleet) draw(rnd *rand.Rand) (path string, body map[string]any, header []string) {
	model := "m"
	if n := rnd.IntN(20); n < 3 {
		model = fmt.Sprint("a", n+1)
	}
	body = map[string]any{"model": model, "max_tokens": 1 + rnd.IntN(16), "stream": rnd.IntN(2) == 0}
	text := strings.Repeat(fmt.Sprintf("word%d ", rnd.IntN(30)), 1+rnd.IntN(40))
	if path = "/v1/completions"; rnd.IntN(3) == 0 {
		path = "/v1/chat/completions"
		body["messages"] = []map[string]string{{"role": "user", "content": text}}
	} else {
		body["prompt"] = text
	}
	if rnd.IntN(3) > 0 {
		header = append(header, session, fmt.Sprint("s", rnd.IntN(manySessions)))
	}
	if n := rnd.IntN(4); n < 3 {
		header = append(header, "x-routerd-class", []string{"chat", "batch", "unheard"}[n])
	}
	if rnd.IntN(3) == 0 {
		header = append(header, "x-routerd-priority", fmt.Sprint(rnd.IntN(5)))
	}
	switch rnd.IntN(20) {
	case 0:
		header = append(header, "x-routerd-pin", fmt.Sprint("w", 1+rnd.IntN(manyWorkers)))
	case 1:
		header = append(header, "x-routerd-allow", fmt.Sprintf("w%d,w%d,w%d", 1+rnd.IntN(manyWorkers), 1+rnd.IntN(manyWorkers), 1+rnd.IntN(manyWorkers)))
	}
	return path, body, header
}

// disturb does something to a worker or to the router.
func (f *busyFleet) disturb(rnd *rand.Rand) {
	i := rnd.IntN(manyWorkers)
	id := fmt.Sprint("/v1/workers/", i+1)
	switch rnd.IntN(13) {
	case 0, 1:
		f.refuse(i, http.StatusTooManyRequests, rnd)
	case 2, 3:
		f.refuse(i, http.StatusServiceUnavailable, rnd)
	case 4:
		engineJSON(f.t, f.engines[i], "POST", "/sim/faults", map[string]any{"kind": "reset"}, nil)
	case 5:
		f.r.rewrite(busyConfig + busyForms[rnd.IntN(len(busyForms))] + "plugins:\n" + unhurried)
		f.r.must("POST", "/v1/config/reload", nil, nil)
	case 6:
		f.put(i, fmt.Sprint("http://127.0.0.77:", 100+i)) // nobody listens there
	case 7:
		f.decideBy(busyPolicies[rnd.IntN(len(busyPolicies))])
	case 8, 9:
		if status, _ := f.r.raw("DELETE", id, nil); status != http.StatusNoContent && status != http.StatusNotFound {
			f.t.Errorf("a worker is removed: status %d", status)
		}
	default: // several are put right
		for range 3 {
			f.put(i, f.engines[i].URL())
			i = rnd.IntN(manyWorkers)
		}
	}
}

// decideBy makes another policy the active one.
func (f *busyFleet) decideBy(spec string) {
	var made struct {
		Revision int `json:"revision"`
	}
	f.r.must("PUT", "/v1/policies/default", []byte(spec), &made)
	f.r.activate(made.Revision)
}

// refuse has an engine take no request for a moment.
func (f *busyFleet) refuse(i, status int, rnd *rand.Rand) {
	headers := map[string]string{}
	if rnd.IntN(2) == 0 {
		headers["Retry-After"] = "1"
	}
	engineJSON(f.t, f.engines[i], "POST", "/sim/faults", map[string]any{
		"kind": "status", "status": status, "count": 1 + rnd.IntN(3), "headers": headers,
		"body": map[string]any{"error": map[string]any{"message": "full", "type": "server_error", "code": "engine_full"}},
	}, nil)
}

// restore takes all disturbances back.
func (f *busyFleet) restore() {
	for i, e := range f.engines {
		engineJSON(f.t, e, "DELETE", "/sim/faults", nil, nil)
		f.put(i, e.URL())
	}
	f.r.rewrite(busyConfig + busyForms[0] + "plugins:\n" + unhurried)
	f.r.must("POST", "/v1/config/reload", nil, nil)
}
