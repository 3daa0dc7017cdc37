package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/routerd/routerd/internal/backoff"
)

// Bounds of what waits to be sent, and of one message.
const (
	queueRecords = 1 << 14
	queueBytes   = 16 << 20
	sendRecords  = 1024
	sendBytes    = 1 << 20
)

// records is the queue of what the primary is to be told. Full, it drops its oldest.
type records struct {
	mu    sync.Mutex // guards both below
	items [][]byte   // oldest first
	bytes int

	wake   chan struct{} // size 1: a full one already wakes the sender
	counts counts
}

func newRecords() records {
	return records{
		wake:   make(chan struct{}, 1),
		counts: newCounts(Answered, NoPartition, BlockSize, NoRank, Dropped, Deadline, Unreachable, Status, BadAnswer),
	}
}

// push adds a record. It never blocks.
func (q *records) push(item []byte) {
	q.mu.Lock()
	q.items, q.bytes = append(q.items, item), q.bytes+len(item)
	dropped := 0
	for ; len(q.items) > queueRecords || q.bytes > queueBytes; dropped++ {
		q.shift()
	}
	q.mu.Unlock()
	q.counts.add(Dropped, dropped)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// shift takes the oldest out. mu must be held, and there must be one.
func (q *records) shift() []byte {
	item := q.items[0]
	q.items[0] = nil
	q.items, q.bytes = q.items[1:], q.bytes-len(item)
	return item
}

// message takes the oldest records out for one message of n; 0 where there are none.
func (q *records) message() (message []byte, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return nil, 0
	}
	message = appendHead(nil, kindRecord, 0)
	for len(q.items) > 0 && n < sendRecords && (n == 0 || len(message)+len(q.items[0]) <= sendBytes) {
		message = append(message, q.shift()...)
		n++
	}
	setItems(message, n)
	return message, n
}

func (q *records) stats() (waiting int, by map[Outcome]uint64) {
	q.mu.Lock()
	waiting = len(q.items)
	q.mu.Unlock()
	return waiting, q.counts.load()
}

// sendRecords sends what is recorded until ctx ends. What fails is lost: it is old when the
// primary is back, and the queue has what is newer. After a failure it pauses, longer each
// time.
func (c *Client) sendRecords(ctx context.Context) {
	failures, lost := 0, 0
	for ctx.Err() == nil {
		message, n := c.records.message()
		if n == 0 {
			select {
			case <-c.records.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := c.sendRecord(ctx, message, n)
		if err == nil {
			if failures > 0 {
				c.log.Info("decisions reach the primary of the index again", "lost", lost)
			}
			failures, lost = 0, 0
			continue
		}
		lost += n
		if failures++; failures == 1 && ctx.Err() == nil {
			c.log.Warn("decisions do not reach the primary of the index", "reason", string(outcomeOf(err)), "err", err)
		}
		c.records.counts.add(outcomeOf(err), n)
		select {
		case <-time.After(backoff.Pause(firstPause, lastPause, failures)):
		case <-ctx.Done():
		}
	}
}

// sendRecord sends one message of n records.
func (c *Client) sendRecord(ctx context.Context, message []byte, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errDeadline)
	defer cancel()
	answer, err := c.post(ctx, PathRecord, message)
	if err != nil {
		return err
	}
	statuses, err := readRecorded(answer, n)
	if err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	for _, s := range statuses {
		c.records.counts.add(statusOutcomes[s], 1)
	}
	return nil
}

// readRecorded reads the statuses of so many records.
func readRecorded(message []byte, records int) ([]byte, error) {
	r := reader{rest: message}
	n := r.head(kindRecorded, maxRecords, leastRecorded)
	if r.err == nil && n != records {
		r.err = bad("%d answers to %d records", n, records)
	}
	statuses := r.take("the statuses", n)
	for _, s := range statuses {
		if s > statusNoRank && r.err == nil {
			r.err = bad("status %d of a record", s)
		}
	}
	return statuses, r.end()
}
