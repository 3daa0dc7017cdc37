package sharedcache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/routerd/routerd/kvcache"
)

// maxAsked bounds the hashes of one question, so that a body is at most 700 kB
// and written in a small part of the deadline. Of longer prompts the tail is
// taken for not held.
const maxAsked = 1 << 15

// roomPerBlock and roomBeside bound an answer in bytes: a range indented over
// lines of its own needs less than the former, and one range names at least a
// block.
const (
	roomPerBlock = 64
	roomBeside   = 4 << 10
)

var (
	errDeadline = errors.New("no answer within the deadline")
	errBad      = errors.New("bad answer")
)

// statusError is an answer that is not 200.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

// ask sends one question and appends what is held to out; with an error the
// elements of out are as before. Its own deadline gives errDeadline.
func (c *Client) ask(
	ctx context.Context, deadline time.Duration, blocks []kvcache.SequenceHash, out []kvcache.BlockRange,
) ([]kvcache.BlockRange, error) {
	blocks = blocks[:min(len(blocks), maxAsked)]
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, errDeadline)
	defer cancel()
	status, answer, err := c.poster.Post(ctx, c.cfg.URL, "/hits", question(blocks))
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case status != 200:
		return nil, statusError(status)
	case len(answer) > roomBeside+roomPerBlock*len(blocks):
		return nil, fmt.Errorf("%w: %d bytes for %d blocks", errBad, len(answer), len(blocks))
	}
	held, err := decode(answer, uint32(len(blocks)), out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	return held, nil
}

// question is the body that asks for blocks.
func question(blocks []kvcache.SequenceHash) []byte {
	const digits = 20 // of the largest hash
	b := append(make([]byte, 0, 16+len(blocks)*(digits+1)), `{"hashes":[`...)
	for i, h := range blocks {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(h), 10)
	}
	return append(b, ']', '}')
}
