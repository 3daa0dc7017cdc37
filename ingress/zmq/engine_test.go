package zmq_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/kvcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blockSize of the tests' engines, in tokens.
const blockSize = 2

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// publisher is a publisher with a replay socket, as an engine has them. Its live socket belongs to the test's goroutine.
type publisher struct {
	t        testing.TB
	zctx     *zmq4.Context
	pub      *zmq4.Socket
	endpoint string
	replay   string

	opened []*zmq4.Socket
	stop   chan struct{}
	done   sync.WaitGroup
	// secure, when set, prepares sockets that engines listen with.
	secure  func(s *zmq4.Socket)
	refused atomic.Int64 // clients
	told    atomic.Int64 // messages of answers

	mu     sync.Mutex // guards all below
	buffer [][2][]byte
	asked  []uint64
	// topicFrame sends answers in the newer form.
	topicFrame bool
	// answer, when set, says which buffered messages an answer has, and whether an end mark follows.
	answer func(start uint64) (messages [][2][]byte, end bool)
}

func newPublisher(t testing.TB, withReplay bool) *publisher {
	t.Helper()
	p := &publisher{t: t, stop: make(chan struct{})}
	var err error
	if p.zctx, err = zmq4.NewContext(); err != nil {
		t.Fatal(err)
	}
	p.bind("tcp://127.0.0.1:*")
	if withReplay {
		p.serveReplays()
	}
	t.Cleanup(func() {
		close(p.stop)
		p.done.Wait()
		for _, s := range p.opened {
			_ = s.Close() // of those that the test has closed it is none
		}
		must(t, p.zctx.Term())
	})
	return p
}

// serveReplays has it answer replay requests.
func (p *publisher) serveReplays() {
	p.t.Helper()
	router := p.socket(zmq4.ROUTER)
	if p.secure != nil {
		p.secure(router)
	}
	must(p.t, router.Bind("tcp://127.0.0.1:*"))
	endpoint, err := router.GetLastEndpoint()
	must(p.t, err)
	p.replay = string(bytes.TrimRight([]byte(endpoint), "\x00"))
	p.done.Go(func() { p.serve(router) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *publisher) socket(kind zmq4.Type) *zmq4.Socket {
	p.t.Helper()
	s, err := p.zctx.NewSocket(kind)
	must(p.t, err)
	must(p.t, s.SetLinger(0))
	must(p.t, s.SetRcvtimeo(20*time.Millisecond))
	must(p.t, s.SetSndhwm(0))
	p.opened = append(p.opened, s)
	return s
}

func (p *publisher) bind(endpoint string) {
	p.t.Helper()
	p.pub = p.socket(zmq4.XPUB)
	must(p.t, p.pub.SetXpubVerboser(1))
	if p.secure != nil {
		p.secure(p.pub)
	}
	deadline := time.Now().Add(patience)
	for {
		err := p.pub.Bind(endpoint)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
	last, err := p.pub.GetLastEndpoint()
	must(p.t, err)
	p.endpoint = string(bytes.TrimRight([]byte(last), "\x00"))
}

// kill ends the live socket and forgets the buffer, as the end of the process does.
func (p *publisher) kill() {
	p.t.Helper()
	must(p.t, p.pub.Close())
	p.forget()
}

// forget empties the buffer.
func (p *publisher) forget() { p.replies(nil, false) }

// replies makes recorded answers the buffer.
func (p *publisher) replies(answers [][2][]byte, topicFrame bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer, p.topicFrame = answers, topicFrame
}

// joined waits for a subscriber.
func (p *publisher) joined() {
	p.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if m, err := p.pub.RecvBytes(0); err == nil && len(m) > 0 && m[0] == 1 {
			return
		}
	}
	p.t.Fatal("no subscriber")
}

// keep puts a message into the replay buffer only.
func (p *publisher) keep(seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer = append(p.buffer, [2][]byte{wire.SequenceFrame(seq), payload})
}

func (p *publisher) send(seq uint64, payload []byte) {
	p.t.Helper()
	p.keep(seq, payload)
	p.frames([]byte("topic"), wire.SequenceFrame(seq), payload)
}

func (p *publisher) frames(frames ...[]byte) {
	p.t.Helper()
	parts := make([]any, len(frames))
	for i := range frames {
		parts[i] = frames[i]
	}
	_, err := p.pub.SendMessage(parts...)
	must(p.t, err)
}

func (p *publisher) starts() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]uint64(nil), p.asked...)
}

func (p *publisher) answers(f func(start uint64) ([][2][]byte, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// from returns the buffered messages from a number on.
func (p *publisher) from(start uint64) [][2][]byte {
	var out [][2][]byte
	for _, m := range p.buffer {
		if binary.BigEndian.Uint64(m[0]) >= start {
			out = append(out, m)
		}
	}
	return out
}

func (p *publisher) serve(router *zmq4.Socket) {
	defer func() { _ = router.Close() }()
	for {
		select {
		case <-p.stop:
			return
		default:
		}
		request, err := router.RecvMessageBytes(0)
		if err != nil || len(request) != 3 || len(request[1]) != 0 || len(request[2]) != 8 {
			continue // engines do not answer other requests either
		}
		start := binary.BigEndian.Uint64(request[2])
		p.mu.Lock()
		p.asked = append(p.asked, start)
		messages, end := p.from(start), true
		if p.answer != nil {
			messages, end = p.answer(start)
		}
		topic := p.topicFrame
		p.mu.Unlock()
		if end {
			messages = append(messages, [2][]byte{wire.SequenceFrame(wire.EndOfReplay), {}})
		}
		for _, m := range messages {
			parts := []any{request[0], []byte{}}
			if topic {
				parts = append(parts, []byte("topic"))
			}
			if _, err := router.SendMessage(append(parts, m[0], m[1])...); err != nil {
				break
			}
			p.told.Add(1)
		}
	}
}

// sink is an index that remembers what it was told.
type sink struct {
	*exact.Index
	mu      sync.Mutex // guards all below
	states  []string
	applied int
	sealed  bool
	late    int // calls after sealed was set
}

func newSink() *sink { return &sink{Index: exact.New(blockSize)} }

func (s *sink) Apply(w fleet.Worker, events []kvcache.Event) kvcache.Applied {
	s.mu.Lock()
	s.applied++
	if s.sealed {
		s.late++
	}
	s.mu.Unlock()
	return s.Index.Apply(w, events)
}

func (s *sink) State(_ fleet.Worker, status zmq.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, status.State.String())
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

// payload packs a batch: each event is given as ready msgpack.
func payload(events ...[]byte) []byte {
	b := []byte{0x93, 0x01, 0xdc, byte(len(events) >> 8), byte(len(events))}
	for _, e := range events {
		b = append(b, e...)
	}
	return append(b, 0x00)
}

// store packs a BlockStored of one block for each hash; the block of hash h has the tokens h, h.
func store(parent int, hashes ...uint32) []byte {
	b := append([]byte{0x95, 0xab}, "BlockStored"...)
	b = append(b, 0xdc, byte(len(hashes)>>8), byte(len(hashes)))
	for _, h := range hashes {
		b = binary.BigEndian.AppendUint32(append(b, 0xce), h)
	}
	if parent < 0 {
		b = append(b, 0xc0)
	} else {
		b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(parent))
	}
	b = append(b, 0xdc, byte(2*len(hashes)>>8), byte(2*len(hashes)))
	for _, h := range hashes {
		for range blockSize {
			b = binary.BigEndian.AppendUint32(append(b, 0xce), h)
		}
	}
	return append(b, blockSize)
}

func drop(hashes ...uint32) []byte {
	b := append([]byte{0x92, 0xac}, "BlockRemoved"...)
	b = append(b, 0xdc, byte(len(hashes)>>8), byte(len(hashes)))
	for _, h := range hashes {
		b = binary.BigEndian.AppendUint32(append(b, 0xce), h)
	}
	return b
}

func cleared() []byte { return append([]byte{0x91, 0xb0}, "AllBlocksCleared"...) }

// overlap asks how much of the prompt with the blocks of hashes w holds.
func overlap(t *testing.T, s *sink, w fleet.Worker, hashes ...uint32) uint32 {
	t.Helper()
	var tokens []uint32
	for _, h := range hashes {
		for range blockSize {
			tokens = append(tokens, h)
		}
	}
	blocks, err := kvcache.BlockHashes(nil, tokens, blockSize, kvcache.Seed("", ""))
	must(t, err)
	out := make([]kvcache.Overlap, 1)
	s.Find(blocks, []fleet.Worker{w}, out)
	return out[0].Device
}
