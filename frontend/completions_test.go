package frontend_test

import (
	"context"
	"strings"
	"testing"

	"github.com/routerd/routerd/prompt"
)

func TestAnUnaryAnswerPassesWithOurHeaders(t *testing.T) {
	w := start(t)
	w.join(t, "w1", answering(t, plain(`{"usage":{"prompt_tokens":3,"completion_tokens":5}}`)).url)
	got := w.chat(t, "X-Request-Id", "abc")
	if got.status != 200 || got.body != `{"usage":{"prompt_tokens":3,"completion_tokens":5}}` {
		t.Fatalf("%+v", got)
	}
	for name, want := range map[string]string{"X-Routerd-Worker": "w1", "X-Routerd-Rank": "0", "X-Request-Id": "abc", "Content-Type": "application/json"} {
		if v := got.header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if got.header.Get("X-Routerd-Decision") == "" {
		t.Error("no decision id")
	}
	if n := w.active("w1"); n != 0 {
		t.Errorf("%d active requests", n)
	}
	if n := w.metric(t, "routerd_frontend_tokens_total", "completion"); n != 5 {
		t.Errorf("%v tokens", n)
	}
}

func TestABatchIsRoutedByItsFirstPromptAndCountsWhole(t *testing.T) {
	for _, c := range []struct {
		name, prompt string
		tokens       int64
	}{
		{"text", `"abcdefgh"`, 2},
		{"texts", `["abcdefgh","abcdefghij"]`, 2 + 3}, // by bytes, quotes included
		{"ids", `[1,2,3]`, 3},
		{"batch of ids", `[[1,2,3],[4,5],[6]]`, 3 + 2 + 1},
		{"batch of one", `[[1,2,3]]`, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t)
			var load int64
			w.join(t, "w1", serve(t, func(p *peer) {
				if _, ok := p.next(); ok {
					load = w.prefill()
					p.say(plain("{}"))
				}
			}).url)
			if got := w.do(t, "POST", textPath, `{"model":"m","prompt":`+c.prompt+`}`); got.status != 200 || load != c.tokens {
				t.Errorf("%d tokens, want %d: %+v", load, c.tokens, got)
			}
		})
	}
}

func TestT3_APanicCostsOneRequestAndTellsNothing(t *testing.T) {
	panics := true
	w := start(t, func(s *setup) {
		s.tokens.answer = func(context.Context, prompt.Input) ([]uint32, prompt.Outcome) {
			if panics {
				panic("sk-CANARY-1")
			}
			return nil, prompt.Failed
		}
	})
	w.join(t, "w1", answering(t, plain("{}")).url)
	checkError(t, w.chat(t), 500, "internal_error")
	panics = false
	if got := w.chat(t); got.status != 200 {
		t.Errorf("%+v", got)
	}
	log := w.log.String()
	if strings.Contains(log, "CANARY") || !strings.Contains(log, "handler panicked") {
		t.Errorf("log: %s", log)
	}
	eventually(t, "nothing in flight", func() bool { return w.metric(t, "routerd_frontend_in_flight") == 0 })
}
