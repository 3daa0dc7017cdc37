//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// service is a running router with its selection service. Its calls are safe for
// concurrent use where they take no test.
type service struct {
	*router
	at     string // as the ready line says it
	bearer string // the token of its calls; empty for none
	client *http.Client
}

// startService is startRouter with the selection service on a free port.
func startService(t *testing.T, yaml string) *service {
	t.Helper()
	return startServiceAt(t, "127.0.0.1:0", yaml)
}

// startServiceAt is startService at an address, which may be a Unix socket.
func startServiceAt(t *testing.T, address, yaml string) *service {
	t.Helper()
	r := startRouterIn(t, t.TempDir(), yaml, "--selection.listen", address)
	return newService(t, r, r.selection)
}

// newService is a client of the service of r.
func newService(t *testing.T, r *router, at string) *service {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	if socket, ok := strings.CutPrefix(at, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &service{router: r, at: at, client: &http.Client{Transport: transport, Timeout: 2 * time.Minute}}
}

// base is what the paths of the service are appended to.
func (s *service) base() string {
	if strings.HasPrefix(s.at, "unix:") {
		return "http://localhost"
	}
	return s.at
}

// try makes a call; header are names and values in turn.
func (s *service) try(ctx context.Context, method, path string, in any, header ...string) (reply, error) {
	var body io.Reader
	if in != nil {
		raw, ok := in.([]byte)
		if !ok {
			var err error
			if raw, err = json.Marshal(in); err != nil {
				return reply{}, err
			}
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base()+path, body)
	if err != nil {
		return reply{}, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+s.bearer)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	answer, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, answer}, errors.Join(err, resp.Body.Close())
}

// says makes a call and checks the status.
func (s *service) says(t *testing.T, status int, method, path string, in any, header ...string) reply {
	t.Helper()
	a, err := s.try(t.Context(), method, path, in, header...)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != status {
		t.Fatalf("%s %s: got %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

// read decodes an answer.
func read[T any](t *testing.T, a reply) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// selected is what the tests read of a selection.
type selected struct {
	ID        string  `json:"selection_id"`
	Worker    uint64  `json:"worker_id"`
	Rank      uint32  `json:"dp_rank"`
	Endpoint  string  `json:"endpoint"`
	BlockSize int     `json:"block_size"`
	Prefill   int     `json:"effective_prefill_tokens"`
	Sequences []int64 `json:"sequence_hashes"`
	Overlap   struct {
		Longest int `json:"longest_matched"`
		GPU     int `json:"gpu"`
	} `json:"overlap"`
}

// pin is the header that sends a request of the frontend where it was selected.
func (s selected) pin() string { return fmt.Sprintf("%d;rank=%d", s.Worker, s.Rank) }

// books selects and books.
func (s *service) books(t *testing.T, body map[string]any, header ...string) selected {
	t.Helper()
	return read[selected](t, s.says(t, http.StatusOK, "POST", "/select_and_reserve", body, header...))
}

// frees ends a booking.
func (s *service) frees(t *testing.T, id string) {
	t.Helper()
	s.says(t, http.StatusOK, "DELETE", "/reservations/"+id, nil)
}

// wants is the body of a selection of model m.
func wants(ids []int, more ...any) map[string]any {
	body := map[string]any{"model_name": "m", "token_ids": ids}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// slotLoad is the load of one rank, as /loads tells it.
type slotLoad struct {
	Worker  uint64 `json:"worker_id"`
	Rank    uint32 `json:"dp_rank"`
	Prefill int    `json:"potential_prefill_tokens"`
	Decode  int    `json:"potential_decode_blocks"`
	Active  int    `json:"active_requests"`
}

// loads are those of model m and how many selections wait.
func (s *service) loads(t *testing.T) (ranks []slotLoad, waiting int) {
	t.Helper()
	got := read[[]struct {
		Loads   []slotLoad `json:"loads"`
		Pending int        `json:"pending_count"`
	}](t, s.says(t, http.StatusOK, "GET", "/loads?model_name=m", nil))
	if len(got) != 1 {
		t.Fatalf("%d partitions of model m, want 1", len(got))
	}
	return got[0].Loads, got[0].Pending
}

// active are the bookings of model m.
func (s *service) active(t *testing.T) (n int) {
	t.Helper()
	ranks, _ := s.loads(t)
	for _, l := range ranks {
		n += l.Active
	}
	return n
}

// unused checks that /loads shows ranks and no load on any.
func (s *service) unused(t *testing.T) {
	t.Helper()
	ranks, waiting := s.loads(t)
	if len(ranks) == 0 || waiting != 0 {
		t.Errorf("%d ranks, %d selections wait", len(ranks), waiting)
	}
	for _, l := range ranks {
		if l.Prefill != 0 || l.Decode != 0 || l.Active != 0 {
			t.Errorf("a load is left: %+v", l)
		}
	}
}

// refusesWith checks the service's error form and returns code and message.
func refusesWith(t *testing.T, a reply, status int) (code, message string) {
	t.Helper()
	e := read[struct {
		Error struct{ Code, Message string } `json:"error"`
	}](t, a).Error
	if a.status != status || e.Code == "" || e.Message == "" {
		t.Errorf("got %d %s, want %d with code and message", a.status, a.body, status)
	}
	return e.Code, e.Message
}
