package remote_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = fleet.PartitionKey{Model: "m", Group: "default"}

// posting is a Transport made of a function.
type posting func(ctx context.Context, path string, body []byte) (int, []byte, error)

func (p posting) Post(ctx context.Context, path string, body []byte) (status int, answer []byte, err error) {
	return p(ctx, path, body)
}

// booked is one record that a primary took.
type booked struct {
	worker fleet.Worker
	blocks int
}

// primary is an index of one partition with blocks of some size, whose ranks are those of
// trusted.
type primary struct {
	*remote.Server
	index     *exact.Index
	blockSize int
	trusted   map[fleet.Worker]bool

	mu     sync.Mutex // guards booked
	booked []booked
}

func newPrimary(blockSize int) *primary {
	p := &primary{index: exact.New(blockSize), blockSize: blockSize, trusted: map[fleet.Worker]bool{}}
	p.Server = remote.NewServer(p)
	return p
}

func (p *primary) Partition(k fleet.PartitionKey) (x remote.Index, blockSize int, ok bool) {
	if k != key {
		return nil, 0, false
	}
	return p, p.blockSize, true
}

func (p *primary) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	p.index.Find(blocks, workers, out)
}

func (p *primary) Trusted(w fleet.Worker) bool { return p.trusted[w] }

func (p *primary) Record(_ fleet.PartitionKey, w fleet.Worker, blocks []kvcache.BlockHash, _ bool) bool {
	if _, known := p.trusted[w]; !known {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.booked = append(p.booked, booked{w, len(blocks)})
	return true
}

func (p *primary) took() []booked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]booked(nil), p.booked...)
}

// answer is what the primary says to a message.
func (p *primary) answer(path string, body []byte) (int, []byte) {
	do := p.Server.Find
	if path == remote.PathRecord {
		do = p.Server.Record
	}
	answer, err := do(body)
	if err != nil {
		return 400, []byte(err.Error())
	}
	return 200, answer
}

// here is a Transport without a network.
func (p *primary) here() posting {
	return func(_ context.Context, path string, body []byte) (int, []byte, error) {
		status, answer := p.answer(path, body)
		return status, answer, nil
	}
}

// store makes a rank hold the blocks of tokens on the device, and be trusted.
func (p *primary) store(w fleet.Worker, tokens []uint32) {
	n := len(tokens) / p.blockSize
	e := kvcache.Event{Kind: kvcache.Stored, Tokens: tokens[:n*p.blockSize], BlockSize: p.blockSize, Adapter: ""}
	for i := range n {
		e.Hashes = append(e.Hashes, kvcache.NumberHash(uint64(w.ID)<<32|uint64(tokens[0])<<16|uint64(i)))
	}
	p.index.Apply(w, []kvcache.Event{e})
	p.trusted[w] = true
}

// sequence is n tokens, beginning with first.
func sequence(first, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(first + i)
	}
	return out
}

func hashes(t testing.TB, tokens []uint32, blockSize int) []kvcache.BlockHash {
	t.Helper()
	out, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ranks(n int) []fleet.Worker {
	out := make([]fleet.Worker, n)
	for i := range out {
		out[i] = fleet.Worker{ID: fleet.WorkerID(i + 1)}
	}
	return out
}

// rig is a Client with its log, and one partition of it.
type rig struct {
	*remote.Client
	*remote.Partition
	log *testkit.Log
}

func newRig(t testing.TB, blockSize int, deadline time.Duration, transport remote.Transport) *rig {
	t.Helper()
	r := &rig{log: &testkit.Log{}}
	c, err := remote.New(remote.Config{Deadline: deadline}, transport, slog.New(slog.NewTextHandler(r.log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = c
	if r.Partition, err = c.Open(key, blockSize); err != nil {
		t.Fatal(err)
	}
	return r
}

// run lets Run go until the returned function was called, which waits for it.
func (r *rig) run(t testing.TB) (stop func()) {
	t.Helper()
	return testkit.Running(t, r.Run)
}

// held is what each worker holds of a prompt.
func (r *rig) held(blocks []kvcache.BlockHash, workers ...fleet.Worker) []kvcache.Overlap {
	out := make([]kvcache.Overlap, len(workers))
	for i := range out {
		out[i].Device = 99 // what Find does not write stays
	}
	r.Find(blocks, workers, out)
	return out
}

// listener is a server of HTTP, of TCP or at a Unix socket, that keeps its address over
// kills.
type listener struct {
	network, address string
	handle           func(path string, body []byte) (int, []byte)
	http             *http.Server
	ended            chan struct{}
	hang             atomic.Bool
	client           *http.Client
}

func listen(t testing.TB, network string, handle func(string, []byte) (int, []byte)) *listener {
	t.Helper()
	l := &listener{network: network, address: "127.0.0.1:0", handle: handle}
	if network == "unix" {
		l.address = filepath.Join(t.TempDir(), "s")
	}
	l.start(t)
	address := l.address
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	l.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		l.kill()
		transport.CloseIdleConnections()
	})
	return l
}

func (l *listener) start(t testing.TB) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), l.network, l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.address, l.ended = ln.Addr().String(), make(chan struct{})
	l.http = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if l.hang.Load() {
			<-r.Context().Done()
			return
		}
		status, answer := l.handle(r.URL.Path, body)
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	})}
	server, ended := l.http, l.ended
	go func() {
		defer close(ended)
		_ = server.Serve(ln)
	}()
}

// kill ends it with all its connections.
func (l *listener) kill() {
	_ = l.http.Close()
	<-l.ended
}

func (l *listener) Post(ctx context.Context, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://primary"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
