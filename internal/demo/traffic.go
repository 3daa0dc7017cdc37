package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	talkers   = 4                      // requests under way at once, about
	topics    = 6                      // conversations share one of these beginnings
	pauseMean = 400 * time.Millisecond // of one talker between two turns
	turns     = 5                      // of one conversation
)

// traffic is light load of the demo's own: conversations that begin with one of
// a few long texts and grow turn by turn, so that a worker which has the
// beginning saves work.
type traffic struct {
	frontend string
	client   *http.Client
	sent     atomic.Uint64
	failed   atomic.Uint64
}

func newTraffic(frontend string) *traffic {
	return &traffic{frontend: frontend, client: &http.Client{}}
}

// run talks until ctx ends.
func (t *traffic) run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range talkers {
		all.Go(func() { t.talk(ctx, rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	all.Wait()
	t.client.CloseIdleConnections()
}

func (t *traffic) talk(ctx context.Context, draw *rand.Rand) {
	for conversation := 0; ctx.Err() == nil; conversation++ {
		topic := draw.IntN(topics)
		text := opening(topic) + fmt.Sprintf("\nConversation %d of guest %d.", conversation, draw.Uint32())
		for turn := range turns {
			text += fmt.Sprintf("\nQuestion %d: and then?", turn)
			answer, err := t.complete(ctx, text)
			if ctx.Err() != nil {
				return
			}
			t.sent.Add(1)
			if err != nil {
				t.failed.Add(1)
			}
			text += "\n" + answer
			rest := time.Duration(float64(pauseMean) * draw.ExpFloat64())
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(rest, 4*pauseMean)):
			}
		}
	}
}

// opening is the long text that conversations about one topic share: 40
// sentences, several hundred tokens.
func opening(topic int) string {
	return strings.Repeat(fmt.Sprintf("Rule %d of the house: be kind, be brief, be right. ", topic), 40)
}

func (t *traffic) complete(ctx context.Context, prompt string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": Model, "prompt": prompt, "max_tokens": 24})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.frontend+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		return "", err
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("completion: status %d, %w", resp.StatusCode, err)
	}
	var got struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Choices) == 0 {
		return "", fmt.Errorf("completion: unreadable answer: %w", err)
	}
	return got.Choices[0].Text, nil
}
