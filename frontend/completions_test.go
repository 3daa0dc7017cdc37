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
	if n := w.metric(t, "routerd_frontend_in_flight"); n != 0 {
		t.Errorf("%v in flight", n)
	}
}
