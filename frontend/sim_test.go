package frontend_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/sim"
	"github.com/routerd/routerd/sim/simtest"
)

func TestASimulatedEngineBehindTheRealTokenizer(t *testing.T) {
	e := simtest.Start(t, func(c *sim.Config) { c.Model, c.Events, c.AnswerTokens = "m", false, 5 })
	var tokenizer *prompt.Tokenizer
	w := start(t, func(s *setup) {
		s.tokens.answer = func(ctx context.Context, in prompt.Input) ([]uint32, prompt.Outcome) {
			return tokenizer.Tokenize(ctx, key, in)
		}
	})
	tc := prompt.DefaultConfig()
	tc.Patience = patience
	var err error
	if tokenizer, err = prompt.New(tc, w.core, w.upstream, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokenizer.Close)
	w.join(t, "w1", e.URL())
	a := w.do(t, "POST", textPath, `{"model":"m","prompt":"one two three","max_tokens":5}`)
	if a.status != 200 || !strings.Contains(a.body, `"prompt_tokens":5`) {
		t.Fatalf("%+v", a)
	}
	if d := w.lastDecision(t); d.Request.Tokens != 5 {
		t.Errorf("decided on %d tokens, the engine counts 5", d.Request.Tokens)
	}
	a = w.do(t, "POST", chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"one two"}]}`)
	if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Fatalf("%+v", a)
	}
	eventually(t, "tokens", func() bool { return w.metric(t, "routerd_frontend_tokens_total", "completion") == 10 })
	if n := w.metric(t, "routerd_frontend_first_token_seconds"); n != 1 {
		t.Errorf("%v first tokens", n)
	}
	if got := w.released.kinds(); got["completed"] != 2 || len(got) != 1 {
		t.Errorf("%v", got)
	}
}
