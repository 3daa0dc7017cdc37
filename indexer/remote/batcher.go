package remote

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Bounds of one request of finds; a find alone may have more bytes.
const (
	batchFinds = 64
	batchBytes = 1 << 20
)

// Why does the newest find of a request send it?
//
// No goroutine waits beside the callers: one of those whose finds go together sends them
// all. It has to stay until the answer is there or its own deadline has passed, and the
// newest has the latest deadline: so the others get all the time that they have.

// batcher joins the finds of many callers: one request is under way at a time, and who
// comes meanwhile goes with the next one.
type batcher struct {
	mu      sync.Mutex // guards all below, and find.sends and find.left
	busy    bool       // a find sends
	waiting []*find    // oldest first
}

// find is one caller's.
type find struct {
	message  []byte // with a head, as if it went alone
	deadline time.Time
	batch    []*find      // of the one that sends: who goes, itself last
	woken    chan verdict // size 1: gets one

	sends, left bool
}

// verdict is an answer, an error, or that the find sends its batch.
type verdict struct {
	sends  bool
	answer []byte
	err    error
}

// ask brings a find to its answer, by a request of its own or another's. send sends the
// finds of a batch and returns their answers; it is called by one caller at a time.
func (b *batcher) ask(f *find, send func(context.Context, []*find) ([][]byte, error)) ([]byte, error) {
	f.woken = make(chan verdict, 1)
	if !b.join(f) {
		v, ok := f.wait(time.Until(f.deadline))
		if !ok {
			if b.leave(f) {
				return nil, errDeadline
			}
			v = <-f.woken // its turn to send came at the same moment
		}
		if !v.sends {
			return v.answer, v.err
		}
	}
	ctx, cancel := context.WithDeadlineCause(context.Background(), f.deadline, errDeadline)
	defer cancel()
	answers, err := send(ctx, f.batch)
	if err != nil {
		b.fail(f, err)
		return nil, err
	}
	last := len(f.batch) - 1
	for i, other := range f.batch[:last] {
		other.woken <- verdict{answer: answers[i]}
	}
	b.next()
	return answers[last], nil
}

// join lets the find send at once, alone, where nobody does, or wait.
func (b *batcher) join(f *find) (sends bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy {
		b.waiting = append(b.waiting, f)
		return false
	}
	b.busy, f.sends, f.batch = true, true, []*find{f}
	return true
}

// wait is for the verdict, ok false when it took too long.
func (f *find) wait(long time.Duration) (v verdict, ok bool) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case v = <-f.woken:
		return v, true
	case <-timer.C:
		return verdict{}, false
	}
}

// leave takes a find back for which its caller waits no more; false when it is to send.
func (b *batcher) leave(f *find) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.left = !f.sends
	return f.left
}

// next has the finds that wait sent by one of them.
func (b *batcher) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*find
	bytes, taken := 0, 0
	for _, f := range b.waiting {
		if f.left {
			taken++
			continue
		}
		if len(batch) == batchFinds || len(batch) > 0 && bytes+len(f.message) > batchBytes {
			break
		}
		batch, bytes, taken = append(batch, f), bytes+len(f.message), taken+1
	}
	b.waiting = slices.Delete(b.waiting, 0, taken)
	if b.busy = len(batch) > 0; !b.busy {
		return
	}
	newest := batch[len(batch)-1]
	newest.sends, newest.batch = true, batch
	newest.woken <- verdict{sends: true} // never waits: it gets one verdict
}

// fail ends the finds of a batch that failed, and all that wait: they need not find out
// for themselves.
func (b *batcher) fail(f *find, err error) {
	for _, other := range f.batch[:len(f.batch)-1] {
		other.woken <- verdict{err: err}
	}
	b.mu.Lock()
	waiting := b.waiting
	b.waiting, b.busy = nil, false
	b.mu.Unlock()
	for _, other := range waiting {
		other.woken <- verdict{err: errAway}
	}
}

// joined is the message of a batch. It may be that of a find.
func joined(batch []*find) []byte {
	if len(batch) == 1 {
		return batch[0].message
	}
	size := headLength
	for _, f := range batch {
		size += len(f.message) - headLength
	}
	out := appendHead(make([]byte, 0, size), kindFind, len(batch))
	for _, f := range batch {
		out = append(out, f.message[headLength:]...)
	}
	return out
}
