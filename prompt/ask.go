package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/routerd/routerd/fleet"
)

var (
	errNoWorker    = errors.New("no ready worker")
	errUnsupported = errors.New("the engine's /tokenize refuses messages")
)

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Fresh
	case errors.Is(err, errNoWorker):
		return NoWorker
	case errors.Is(err, errUnsupported):
		return Unsupported
	default:
		return Failed
	}
}

// ask sends one prompt to the least loaded ready worker.
func (t *Tokenizer) ask(ctx context.Context, key fleet.PartitionKey, in Input) ([]uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CallTimeout)
	defer cancel()
	slots := t.enterSlots(key)
	defer t.leaveSlots(key, slots)
	if err := slots.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for a tokenising slot of %s: %w", key, err)
	}
	defer slots.Release(1)
	name, endpoint, ok := t.workers.LeastLoaded(key)
	if !ok {
		return nil, errNoWorker
	}
	if in.Route == Chat && t.Refusing(name) {
		return nil, errUnsupported
	}
	status, answer, err := t.poster.Post(ctx, endpoint, "/tokenize", in.body())
	switch {
	case err != nil:
		return nil, fmt.Errorf("tokenise at worker %s: %w", name, err)
	case in.Route == Chat && refusesMessages(status, answer):
		t.refuse(name)
		return nil, errUnsupported
	case status != 200:
		return nil, fmt.Errorf("tokenise at worker %s: status %d", name, status)
	}
	var got struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, fmt.Errorf("tokenise at worker %s: read answer: %w", name, err)
	}
	if got.Tokens == nil {
		return nil, fmt.Errorf("tokenise at worker %s: the answer has no tokens", name)
	}
	if n := in.promptBytes(); len(got.Tokens) == 0 && n > emptyPrompt {
		return nil, fmt.Errorf("tokenise at worker %s: the answer has 0 tokens for a prompt of %d bytes", name, n)
	}
	return got.Tokens, nil
}

// refusesMessages tells an engine that knows no chat form of /tokenize from one
// that refuses this request: the former answers 404, 405 or 501, or complains
// of a missing prompt.
func refusesMessages(status int, answer []byte) bool {
	switch status {
	case 404, 405, 501:
		return true
	case 400, 422:
		var detail struct {
			Detail []struct {
				Loc  []any  `json:"loc"`
				Type string `json:"type"`
			} `json:"detail"`
			Error struct {
				Param string `json:"param"`
			} `json:"error"`
			Param string `json:"param"`
		}
		if json.Unmarshal(answer, &detail) != nil {
			return false
		}
		for _, d := range detail.Detail {
			if len(d.Loc) > 0 && d.Loc[len(d.Loc)-1] == "prompt" && d.Type == "missing" {
				return true
			}
		}
		return detail.Param == "prompt" || detail.Error.Param == "prompt"
	}
	return false
}

func (t *Tokenizer) refuse(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(t.refusing, func(_ string, until time.Time) bool { return now.After(until) })
	t.refusing[name] = now.Add(refusalHolds)
}

// slots bound the calls of a partition. They are there while somebody has them or waits
// for one.
type slots struct {
	*semaphore.Weighted
	users int // guarded by the Tokenizer's mu
}

func (t *Tokenizer) enterSlots(key fleet.PartitionKey) *slots {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slots[key]
	if s == nil {
		s = &slots{Weighted: semaphore.NewWeighted(t.cfg.Parallel)}
		t.slots[key] = s
	}
	s.users++
	return s
}

func (t *Tokenizer) leaveSlots(key fleet.PartitionKey, s *slots) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(t.slots, key)
	}
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // text always has a JSON form
		return []byte(`""`)
	}
	return b
}
