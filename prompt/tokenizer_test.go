package prompt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/prompt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = fleet.PartitionKey{Model: "m", Group: "default"}

type oneWorker bool

func (w oneWorker) LeastLoaded(fleet.PartitionKey) (name, endpoint string, ok bool) {
	return "w1", "http://w1", bool(w)
}

// engine answers /tokenize; hold, when set, blocks each call until it is closed.
type engine struct {
	mu     sync.Mutex
	bodies []string
	status int
	answer string
	err    error
	hold   chan struct{}
	began  chan struct{}
}

func (e *engine) Post(ctx context.Context, endpoint, path string, body []byte) (status int, answer []byte, err error) {
	e.mu.Lock()
	e.bodies = append(e.bodies, endpoint+path+" "+string(body))
	e.mu.Unlock()
	if e.began != nil {
		e.began <- struct{}{}
	}
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	return e.status, []byte(e.answer), e.err
}

func (e *engine) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bodies)
}

func newTokenizer(t *testing.T, workers prompt.Workers, e *engine, change func(*prompt.Config)) *prompt.Tokenizer {
	t.Helper()
	cfg := prompt.DefaultConfig()
	cfg.Patience = 10 * time.Second
	if change != nil {
		change(&cfg)
	}
	tok, err := prompt.New(cfg, workers, e, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	return tok
}

func text(s string) prompt.Input {
	return prompt.Input{Route: prompt.Completions, Model: "m", Fields: []prompt.Field{{Name: "prompt", Value: []byte(s)}}}
}

func chat(s string) prompt.Input {
	return prompt.Input{Route: prompt.Chat, Model: "m", Fields: []prompt.Field{{Name: "messages", Value: []byte(s)}}}
}

func TestThePromptReachesTheEngineByteForByteOnce(t *testing.T) {
	e := &engine{status: 200, answer: `{"count":3,"tokens":[1,2,4294967295]}`}
	tok := newTokenizer(t, oneWorker(true), e, nil)
	in := chat(`[ {"role":"user" , "content":"\u00e9"} ]`)
	in.Fields = append(in.Fields, prompt.Field{Name: "add_special_tokens", Value: []byte("false")})
	for i, want := range []prompt.Outcome{prompt.Fresh, prompt.Cached} {
		ids, got := tok.Tokenize(t.Context(), key, in)
		if got != want || !cmp.Equal(ids, []uint32{1, 2, 1<<32 - 1}) {
			t.Errorf("call %d: got %v %s, want %s", i, ids, got, want)
		}
	}
	want := []string{`http://w1/tokenize {"model":"m","messages":[ {"role":"user" , "content":"\u00e9"} ],"add_special_tokens":false}`}
	if diff := cmp.Diff(want, e.bodies); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEveryFieldThatDecidesAboutTokensIsPartOfTheKey(t *testing.T) {
	e := &engine{status: 200, answer: `{"tokens":[1]}`}
	tok := newTokenizer(t, oneWorker(true), e, nil)
	inputs := []prompt.Input{text(`"a"`), chat(`"a"`), {Route: prompt.Completions, Model: "adapter", Fields: text(`"a"`).Fields}}
	for _, name := range prompt.Fields()[2:] {
		in := text(`"a"`)
		in.Fields = append(in.Fields, prompt.Field{Name: name, Value: []byte(`1`)})
		inputs = append(inputs, in)
	}
	for i, in := range inputs {
		if _, got := tok.Tokenize(t.Context(), key, in); got != prompt.Fresh {
			t.Errorf("input %d (%v): got %s, want fresh", i, in, got)
		}
	}
}

func TestEqualPromptsShareOneCall(t *testing.T) {
	e := &engine{status: 200, answer: `{"tokens":[7]}`, hold: make(chan struct{}), began: make(chan struct{}, 8)}
	tok := newTokenizer(t, oneWorker(true), e, nil)
	leader, cancel := context.WithCancel(t.Context())
	outcomes := make(chan prompt.Outcome, 4)
	go func() {
		_, o := tok.Tokenize(leader, key, text(`"x"`))
		outcomes <- o
	}()
	<-e.began
	var followers sync.WaitGroup
	for range 3 {
		followers.Go(func() {
			_, o := tok.Tokenize(t.Context(), key, text(`"x"`))
			outcomes <- o
		})
	}
	cancel()
	if got := <-outcomes; got != prompt.Cancelled {
		t.Errorf("the leader that gave up got %s", got)
	}
	close(e.hold)
	followers.Wait()
	for range 3 {
		if got := <-outcomes; got != prompt.Fresh && got != prompt.Cached {
			t.Errorf("a follower got %s", got)
		}
	}
	if n := e.calls(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

func TestASlowEngineCostsOnlyThePatienceAndFillsTheCache(t *testing.T) {
	e := &engine{status: 200, answer: `{"tokens":[7]}`, hold: make(chan struct{})}
	tok := newTokenizer(t, oneWorker(true), e, func(c *prompt.Config) { c.Patience = time.Millisecond })
	if _, got := tok.Tokenize(t.Context(), key, text(`"x"`)); got != prompt.Slow {
		t.Fatalf("got %s, want slow", got)
	}
	close(e.hold)
	deadline := time.After(10 * time.Second)
	for {
		ids, got := tok.Tokenize(t.Context(), key, text(`"x"`))
		if got == prompt.Cached {
			if !cmp.Equal(ids, []uint32{7}) {
				t.Errorf("got %v", ids)
			}
			break
		}
		select {
		case <-deadline:
			t.Fatalf("the slow answer never reached the cache, last outcome %s", got)
		default:
		}
	}
}

func TestFailuresAreOutcomesAndNotCached(t *testing.T) {
	for _, c := range []struct {
		name    string
		engine  *engine
		workers oneWorker
		in      prompt.Input
		want    prompt.Outcome
	}{
		{"no worker", &engine{}, false, text(`"x"`), prompt.NoWorker},
		{"connection refused", &engine{err: errors.New("refused")}, true, text(`"x"`), prompt.Failed},
		{"server error", &engine{status: 500}, true, text(`"x"`), prompt.Failed},
		{"not JSON", &engine{status: 200, answer: "<html>"}, true, text(`"x"`), prompt.Failed},
		{"no tokens", &engine{status: 200, answer: `{"count":1}`}, true, text(`"x"`), prompt.Failed},
		{"an empty list for a prompt", &engine{status: 200, answer: `{"count":0,"tokens":[]}`}, true, text(`"fifteen letters"`), prompt.Failed},
		{"an empty list for messages", &engine{status: 200, answer: `{"tokens":[]}`}, true, chat(`[{"role":"user"}]`), prompt.Failed},
		{"a token that is none", &engine{status: 200, answer: `{"tokens":[-1]}`}, true, text(`"x"`), prompt.Failed},
		{"no such route", &engine{status: 404}, true, chat(`[]`), prompt.Unsupported},
		{"prompt demanded", &engine{status: 422, answer: `{"detail":[{"type":"missing","loc":["body","prompt"]}]}`}, true, chat(`[]`), prompt.Unsupported},
		{"bad messages", &engine{status: 400, answer: `{"error":{"param":"messages"}}`}, true, chat(`[]`), prompt.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := newTokenizer(t, c.workers, c.engine, nil)
			for range 2 {
				if ids, got := tok.Tokenize(t.Context(), key, c.in); got != c.want || ids != nil {
					t.Errorf("got %v %s, want %s", ids, got, c.want)
				}
			}
			if refusing := tok.Refusing("w1"); refusing != (c.want == prompt.Unsupported) {
				t.Errorf("Refusing is %t", refusing)
			}
		})
	}
}

func TestAnEmptyPromptMayHaveNoTokens(t *testing.T) {
	e := &engine{status: 200, answer: `{"count":0,"tokens":[]}`}
	tok := newTokenizer(t, oneWorker(true), e, nil)
	for _, in := range []prompt.Input{text(`""`), text(`"\u0000 \u0000"`), chat(`[]`)} {
		in.Fields = append(in.Fields, prompt.Field{Name: "chat_template", Value: []byte(`"it is no part of the prompt"`)})
		if ids, got := tok.Tokenize(t.Context(), key, in); got != prompt.Fresh || len(ids) != 0 {
			t.Errorf("%s: got %v %s, want fresh", in.Fields[0].Value, ids, got)
		}
	}
}

func TestARefusalIsForgottenAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{status: 404}
		tok := newTokenizer(t, oneWorker(true), e, nil)
		tok.Tokenize(t.Context(), key, chat(`[1]`))
		<-time.After(9 * time.Minute)
		tok.Tokenize(t.Context(), key, chat(`[2]`))
		if !tok.Refusing("w1") || e.calls() != 1 {
			t.Errorf("after 9 minutes: refusing %t, %d calls", tok.Refusing("w1"), e.calls())
		}
		<-time.After(2 * time.Minute)
		tok.Tokenize(t.Context(), key, chat(`[3]`))
		if e.calls() != 2 {
			t.Errorf("after 11 minutes: %d calls, want 2", e.calls())
		}
		tok.Close()
	})
}

func TestAtMostTheConfiguredCallsRunAtOnce(t *testing.T) {
	e := &engine{status: 200, answer: `{"tokens":[7]}`, hold: make(chan struct{}), began: make(chan struct{}, 16)}
	tok := newTokenizer(t, oneWorker(true), e, func(c *prompt.Config) { c.Parallel = 2 })
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, got := tok.Tokenize(t.Context(), key, text(fmt.Sprintf("%q", fmt.Sprint(i)))); got != prompt.Fresh {
				t.Errorf("got %s", got)
			}
		})
	}
	<-e.began
	<-e.began
	select {
	case <-e.began:
		t.Error("a third call ran beside two")
	case <-time.After(50 * time.Millisecond):
	}
	if n := tok.Partitions(); n != 1 {
		t.Errorf("calls of %d partitions", n)
	}
	close(e.hold)
	all.Wait()
	if n := tok.Partitions(); n != 0 {
		t.Errorf("%d partitions are known though nobody asks", n)
	}
}

func TestCloseEndsCallsAndLaterOnesFail(t *testing.T) {
	e := &engine{hold: make(chan struct{}), began: make(chan struct{}, 1)}
	tok := newTokenizer(t, oneWorker(true), e, nil)
	got := make(chan prompt.Outcome, 1)
	go func() {
		_, o := tok.Tokenize(t.Context(), key, text(`"x"`))
		got <- o
	}()
	<-e.began
	tok.Close()
	if o := <-got; o != prompt.Failed {
		t.Errorf("got %s, want failed", o)
	}
	if _, o := tok.Tokenize(t.Context(), key, text(`"y"`)); o != prompt.Failed {
		t.Errorf("after Close got %s, want failed", o)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	cfg := prompt.DefaultConfig()
	cfg.Parallel = 0
	if err := cfg.Validate(); err == nil {
		t.Error("Parallel 0 was accepted")
	}
}
