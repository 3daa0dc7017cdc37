package zmq

import (
	"strconv"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/ingress/stream"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

var _ stream.Port = (*listener)(nil)

// Apply implements stream.Port: it decodes a message and applies its events.
func (l *listener) Apply(seq uint64, payload []byte) stream.Outcome {
	l.begin(seq)
	b := &l.owner.batch
	if err := wire.DecodeBatch(payload, b); err != nil {
		l.drops[kvcache.DropCorruptMessage]++
		return stream.Outcome{Loss: kvcache.DropCorruptMessage.String()}
	}
	l.lastAt = time.Now()
	l.drops.Add(&b.Drops)
	w := l.src.Worker
	if b.HasRank && b.Rank != uint64(w.Rank) {
		if !l.src.owns(b.Rank) {
			l.drops[kvcache.DropBadRank] += uint64(len(b.Events))
			return stream.Outcome{}
		}
		w.Rank = uint32(b.Rank)
	}
	for i := range b.Events {
		l.settle(&b.Events[i])
		l.ingress.metrics.events[b.Events[i].Kind].Inc()
	}
	l.fed[w] = struct{}{}
	res := l.src.Sink.Apply(w, b.Events)
	l.drops.Add(&res.Drops)
	out := stream.Outcome{Cleared: res.Cleared > 0}
	out.Loss = lossOf(&res, &b.Drops)
	return out
}

// lossOf is why an index is no longer as its engine after a message, empty where it is.
func lossOf(res *kvcache.Applied, decoding *kvcache.DropCounts) string {
	if res.Degraded {
		for _, why := range []kvcache.DropReason{kvcache.DropBlockSizeMismatch, kvcache.DropIndexFull} {
			if res.Drops[why] > 0 {
				return why.String()
			}
		}
		return kvcache.DropUnknownParent.String()
	}
	if decoding[kvcache.DropUndecodable] > 0 {
		return kvcache.DropUndecodable.String()
	}
	return ""
}

// begin has an engine that tells its life from its first message on void what was known of it from elsewhere. Number 1
// is such a message in a replay alone: live it may be the first that was heard of an engine that counts from 0.
func (l *listener) begin(seq uint64) {
	if !l.began && (seq == 0 || seq == 1 && l.dealer != nil) {
		l.Clear()
	}
	l.began = true
}

// settle brings what engines say in their own ways into the common one.
func (l *listener) settle(ev *kvcache.Event) {
	if l.src.Engine == EngineLLMD && ev.HasParent && ev.Parent == kvcache.NumberHash(0) {
		ev.HasParent = false
	}
	if ev.Adapter != "" || ev.LoraID <= 0 {
		return
	}
	if l.src.AdapterName != nil {
		if name, ok := l.src.AdapterName(ev.LoraID); ok {
			ev.Adapter = name
			return
		}
	}
	ev.Adapter = "#" + strconv.FormatInt(ev.LoraID, 10)
}

// Clear implements stream.Port.
func (l *listener) Clear() {
	l.src.Sink.Clear(l.src.Worker)
	for w := range l.fed {
		if w != l.src.Worker {
			l.src.Sink.Clear(w)
		}
	}
	clear(l.fed)
	l.began = false
}

// Ask implements stream.Port. Each question has a socket of its own, so that no answer to an earlier one can mix in.
func (l *listener) Ask(from uint64) {
	l.EndAsk()
	if err := l.ask(from); err != nil {
		l.ingress.log.Error("cannot ask for a replay", "worker", l.src.Name, "rank", l.src.Worker.Rank, "err", err)
	}
}

func (l *listener) ask(from uint64) error {
	s, err := l.owner.zctx.NewSocket(zmq4.DEALER)
	if err != nil {
		return err
	}
	l.dealer = s
	l.owner.watch(s, l)
	if err := prepareSocket(s, &l.ingress.cfg, &l.ingress.keys, int64(l.ingress.cfg.MaxMessage), l.src.Replay); err != nil {
		return err
	}
	if err := s.SetRcvhwm(replayHWM); err != nil {
		return err
	}
	if err := s.SetRcvbuf(replayBuffer); err != nil {
		return err
	}
	if err := s.Connect(l.src.Replay); err != nil {
		return err
	}
	_, err = s.SendMessageDontwait([]byte{}, wire.SequenceFrame(from))
	return err
}

// EndAsk implements stream.Port.
func (l *listener) EndAsk() {
	l.owner.unwatch(l.dealer)
	l.dealer = nil
}
