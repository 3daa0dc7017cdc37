package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// endMarker is the sequence number that closes a replay answer.
var endMarker = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// outlet is one rank's PUB and ROUTER socket with its numbering and its buffer.
// Owned by the publisher's goroutine.
type outlet struct {
	rank   int
	p      *publisher
	pub    *zmq.Socket
	replay *zmq.Socket // nil without a replay endpoint
	load   *zmq.Socket // nil without a load endpoint
	next   uint64
	buffer []sentBatch
	// The addresses bound first, which a restart takes again.
	pubAddress, replayAddress, loadAddress string

	loadSeq    uint64
	lastLoad   loadStat
	lastLoadAt time.Time
}

// sentBatch is one batch as it stays in the replay buffer.
type sentBatch struct {
	seq     [8]byte
	payload []byte
}

// open makes and binds the sockets.
func (o *outlet) open(ctx context.Context, zctx *zmq.Context) error {
	var err error
	if o.pubAddress, err = o.bind(ctx, zctx, zmq.PUB, &o.pub, o.pubAddress, o.p.cfg.EventsListen); err != nil {
		return fmt.Errorf("bind kv-endpoint of rank %d: %w", o.rank, err)
	}
	if o.p.cfg.ReplayListen != "" {
		if o.replayAddress, err = o.bind(ctx, zctx, zmq.ROUTER, &o.replay, o.replayAddress, o.p.cfg.ReplayListen); err != nil {
			return fmt.Errorf("bind replay-endpoint of rank %d: %w", o.rank, err)
		}
	}
	if o.p.cfg.LoadListen != "" {
		if o.loadAddress, err = o.bind(ctx, zctx, zmq.PUB, &o.load, o.loadAddress, o.p.cfg.LoadListen); err != nil {
			return fmt.Errorf("bind load-endpoint of rank %d: %w", o.rank, err)
		}
	}
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if o.load != nil {
		o.p.loads[o.rank] = o.loadAddress
	}
	o.p.events[o.rank] = o.pubAddress
	if o.replay != nil {
		o.p.replays[o.rank] = o.replayAddress
	}
	return nil
}

// bind makes one socket and binds it to the address that it had before, or to
// the configured one; it returns the address that it got.
func (o *outlet) bind(ctx context.Context, zctx *zmq.Context, kind zmq.Type, to **zmq.Socket, before, configured string) (string, error) {
	s, err := zctx.NewSocket(kind)
	if err != nil {
		return before, err
	}
	*to = s
	hwm := publishHWM
	switch to {
	case &o.replay:
		hwm = 0 // as vLLM 0.33: a replay answer is never cut by the socket
	case &o.load:
		hwm = loadHWM
	}
	if err := errors.Join(s.SetLinger(0), s.SetSndhwm(hwm)); err != nil {
		return before, err
	}
	address := before
	if before == "" {
		e, err := splitEndpoint("endpoint", configured)
		if err != nil {
			return before, err
		}
		address = e.address(o.rank)
	}
	if err := bindPatiently(ctx, s, address, before != ""); err != nil {
		return before, fmt.Errorf("%s: %w", address, err)
	}
	return s.GetLastEndpoint()
}

// bindPatiently tries again while a socket closed just now still has the port.
func bindPatiently(ctx context.Context, s *zmq.Socket, address string, again bool) error {
	deadline := time.Now().Add(rebindPatience)
	for {
		err := s.Bind(address)
		if err == nil || !again || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rebindPause):
		}
	}
}

// close closes the sockets; an outlet that was never opened may be nil.
func (o *outlet) close() {
	if o == nil {
		return
	}
	for _, s := range []**zmq.Socket{&o.pub, &o.replay, &o.load} {
		if *s == nil {
			continue
		}
		if err := (*s).Close(); err != nil {
			o.p.log.Warn("close zmq socket", "rank", o.rank, "err", err)
		}
		*s = nil
	}
}

// forget begins a new life: number 0, nothing to replay.
func (o *outlet) forget() {
	o.next, o.buffer = 0, nil
	o.loadSeq, o.lastLoad, o.lastLoadAt = 0, loadStat{}, time.Time{}
}

// publish gives a batch the next number, keeps it for replay, and sends it
// unless it is to be dropped.
func (o *outlet) publish(c command) {
	var b sentBatch
	binary.BigEndian.PutUint64(b.seq[:], o.next)
	o.next++
	at := float64(c.at.UnixNano()) / float64(time.Second)
	b.payload = o.p.encoder.batch(nil, at, c.events, o.rank)
	if len(o.buffer) == o.p.cfg.BufferSteps {
		o.buffer = o.buffer[1:]
	}
	o.buffer = append(o.buffer, b)
	if c.drop {
		return
	}
	if _, err := o.pub.SendMessageDontwait(o.p.cfg.Topic, b.seq[:], b.payload); err != nil {
		o.p.log.Warn("publish batch", "rank", o.rank, "err", err)
	}
}

// answerReplays serves every replay request that has arrived.
func (o *outlet) answerReplays() {
	for o.replay != nil {
		request, err := o.replay.RecvMessageBytes(zmq.DONTWAIT)
		if zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) {
			return
		}
		if err != nil {
			o.p.log.Warn("receive replay request", "rank", o.rank, "err", err)
			return
		}
		if len(request) != 3 || len(request[1]) != 0 || len(request[2]) != 8 {
			o.p.log.Warn("replay request refused: want identity, an empty frame and 8 bytes", "rank", o.rank)
			continue
		}
		o.answer(request[0], request[2])
	}
}

// answer sends every kept batch from start on, and the end marker.
func (o *outlet) answer(identity, start []byte) {
	mode := ""
	if f := o.p.faults.takeRank(faultDropReplies, o.rank); f != nil {
		mode = f.Mode
	}
	o.p.count(o.rank, func(c *publisherCounts) {
		c.answered++
		if mode != "" {
			c.disturbed++
		}
	})
	if mode == replySilent {
		return
	}
	sent := 0
	for _, b := range o.buffer {
		if bytes.Compare(b.seq[:], start) < 0 {
			continue
		}
		sent++
		if mode == replyHoles && sent%3 == 2 {
			continue
		}
		if !o.reply(identity, o.p.cfg.Topic, b.seq[:], b.payload) {
			return
		}
	}
	if mode != replyNoEnd {
		o.reply(identity, "", endMarker, nil)
	}
}

// reply sends one message of an answer; false when it could not be sent.
func (o *outlet) reply(identity []byte, topic string, seq, payload []byte) bool {
	parts := []any{identity, "", topic, seq, payload}
	if !o.p.cfg.ReplayTopicFrame {
		parts = []any{identity, "", seq, payload}
	}
	if _, err := o.replay.SendMessageDontwait(parts...); err != nil {
		o.p.log.Warn("send replay answer", "rank", o.rank, "err", err)
		return false
	}
	return true
}
