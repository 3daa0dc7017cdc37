//go:build oracle

package oracle_test

import (
	"encoding/binary"
	"fmt"
	"time"

	zmq "github.com/pebbe/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// publisher is the event socket of one rank of an engine. It notices who
// subscribes, so that nothing is sent before both services listen. One goroutine
// uses it.
type publisher struct {
	socket   *zmq.Socket
	endpoint string
	rank     int
	next     uint64 // number of the next message
	heard    int    // subscriptions that nobody has waited for
}

func newPublisher(ctx *zmq.Context, rank int) (*publisher, error) {
	s, err := ctx.NewSocket(zmq.XPUB)
	if err != nil {
		return nil, err
	}
	p := &publisher{socket: s, rank: rank}
	for _, set := range []func() error{
		func() error { return s.SetLinger(0) },
		func() error { return s.SetXpubVerbose(1) },
		func() error { return s.SetSndhwm(0) },
		func() error { return s.Bind("tcp://127.0.0.1:*") },
		func() error { p.endpoint, err = s.GetLastEndpoint(); return err },
	} {
		if err := set(); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("open a publisher: %w", err)
		}
	}
	return p, nil
}

// awaitSubscribers returns when n more subscriptions have come since it last did.
func (p *publisher) awaitSubscribers(n int, limit time.Duration) error {
	if err := p.socket.SetRcvtimeo(100 * time.Millisecond); err != nil {
		return err
	}
	for end := time.Now().Add(limit); p.heard < n; {
		got, err := p.socket.RecvBytes(0)
		if err == nil && len(got) > 0 && got[0] == 1 {
			p.heard++
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d services listen to %s", p.heard, n, p.endpoint)
		}
	}
	p.heard -= n
	return nil
}

// event is one KV event of an engine.
type event struct {
	kind   string // BlockStored, BlockRemoved, AllBlocksCleared
	hashes []uint64
	parent uint64 // 0 for none
	tokens []uint32
	block  int
	tier   string // GPU, CPU, DISK
	lora   string
}

// send publishes one batch in the form of vLLM: arrays with the tag first.
func (p *publisher) send(events ...event) error {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, float64(time.Now().UnixNano())/1e9)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		b = events[i].append(b)
	}
	b = msgp.AppendInt(b, p.rank)
	number := binary.BigEndian.AppendUint64(nil, p.next)
	p.next++
	_, err := p.socket.SendMessage("", number, b)
	return err
}

func (e *event) append(b []byte) []byte {
	hashes := func() {
		b = msgp.AppendArrayHeader(b, uint32(len(e.hashes)))
		for _, h := range e.hashes {
			b = msgp.AppendUint64(b, h)
		}
	}
	switch e.kind {
	case "AllBlocksCleared":
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendString(b, e.kind)
	case "BlockRemoved":
		b = msgp.AppendArrayHeader(b, 3)
		b = msgp.AppendString(b, e.kind)
		hashes()
		b = msgp.AppendString(b, e.tier)
	default:
		b = msgp.AppendArrayHeader(b, 8)
		b = msgp.AppendString(b, "BlockStored")
		hashes()
		if e.parent == 0 {
			b = msgp.AppendNil(b)
		} else {
			b = msgp.AppendUint64(b, e.parent)
		}
		b = msgp.AppendArrayHeader(b, uint32(len(e.tokens)))
		for _, t := range e.tokens {
			b = msgp.AppendUint32(b, t)
		}
		b = msgp.AppendInt(b, e.block)
		b = msgp.AppendNil(b) // the adapter by number, as older engines send it
		b = msgp.AppendString(b, e.tier)
		if e.lora == "" {
			b = msgp.AppendNil(b)
		} else {
			b = msgp.AppendString(b, e.lora)
		}
	}
	return b
}

func (p *publisher) close() { _ = p.socket.Close() }
